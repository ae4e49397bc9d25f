"""Where a notebook server says how it is reached, for who asks from beside it.

In a container that is a folder which the container and the node both see, under different names.
"""

import json
import os

from ..containers import container
from ..formats import files
from ..processes.environment import IN_CONTAINER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

NAME = "lab.json"


def place() -> str:
    """Return the private folder of this attempt that is seen from outside a container, too."""
    if os.environ.get(IN_CONTAINER):
        return container.RUN
    job = os.path.dirname(os.environ["DRAY_OUTPUTS"])
    return os.path.join(job, "attempts", "{:03d}".format(int(os.environ["DRAY_ATTEMPT"])))


def write(socket: str, token: str) -> None:
    files.write_json(os.path.join(place(), NAME), {"socket": socket, "token": token}, durable=False)


def read() -> "Optional[Dict[str, Any]]":
    return files.read_record(os.path.join(place(), NAME))


def remove() -> None:
    files.discard(os.path.join(place(), NAME))


def show() -> int:
    """Print how the server is reached: the laptop asks for it, beside the server."""
    print(json.dumps(read()))
    return 0
