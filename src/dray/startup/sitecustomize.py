"""Lets a job import its own code instead of an editable install of it: see ``dray_editable``.

A job's PYTHONPATH begins with the folder of this file, so it is what Python's ``site`` imports by
this name once it has read all ``.pth`` files. The module that it hides, of the distribution or the
user, is imported after it. Every Python of a job runs this: a quick check decides whether there is
anything to do, and the syntax is also valid in Python 2.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ITSELF = sys.modules.pop(__name__)

if sys.version_info >= (3, 6) and os.environ.get("DRAY_EDITABLE") != "installed":
    try:
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        given = [os.path.abspath(one) for one in given if one]
        library = os.path.dirname(os.__file__)
        usual = ("site-packages", "dist-packages", ".zip")
        entries = [
            one
            for one in sys.path
            if os.path.isabs(one)
            and one not in given
            and not one.startswith(library)
            and not one.endswith(usual)
        ]
        finders = [
            sys.modules[one.__module__]
            for one in sys.meta_path
            if getattr(one, "__module__", "").startswith("__editable__")
        ]
        if os.environ.get("DRAY_CODE") and (entries or finders):
            __import__("dray_editable").use_own_code(entries, finders)
    except Exception as error:  # the program works without, as it did where it was installed
        sys.stderr.write("[dray] an editable install was left as it is: {!r}\n".format(error))

if HERE in sys.path:
    sys.path.remove(HERE)
try:
    __import__("sitecustomize")
except Exception:  # mostly since there is none, which ``site`` takes well
    sys.modules["sitecustomize"] = ITSELF
    raise
