"""Ray's own command line, with more patience: it gives up a node that has not started after half a
minute, which a busy machine may need. Run by the Python that Ray is installed for."""

import sys

from ray._private.node import Node
from ray.scripts.scripts import main

HURRIED, PATIENT = 30, 600  # seconds

code = Node.__init__.__code__
assert HURRIED in code.co_consts, "Ray waits otherwise by now"
constants = tuple(PATIENT if one == HURRIED else one for one in code.co_consts)
Node.__init__.__code__ = code.replace(co_consts=constants)
sys.exit(main())
