"""Supports file names in any language, under a Python 3.6 that runs in the C locale.

Newer Pythons read such names as UTF-8 by themselves. An old one has to be started again with a
UTF-8 locale; the command then gets the original locale.
"""

import os
import sys

from . import interpreters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

KEPT = "DRAY_LC_ALL"  # what LC_ALL was; also shows that we have been started again
CANDIDATES = ("C.UTF-8", "en_US.UTF-8")


def ensure_utf8(arguments: "List[str]") -> None:
    if sys.getfilesystemencoding().lower().replace("-", "") == "utf8" or KEPT in os.environ:
        return
    import locale  # only here: the rest of the node side does without

    for name in CANDIDATES:
        try:
            locale.setlocale(locale.LC_CTYPE, name)
        except locale.Error:
            continue
        env = dict(os.environ, LC_ALL=name)
        env[KEPT] = os.environ.get("LC_ALL", "")
        argv = interpreters.python_words() + ["-I", "-S", sys.argv[0]]
        os.execve(argv[0], argv + arguments, env)


def original_environment() -> "Dict[str, str]":
    """Return the environment as it was before we were started again."""
    env = dict(os.environ)
    if KEPT in env:
        before = env.pop(KEPT)
        if before:
            env["LC_ALL"] = before
        else:
            del env["LC_ALL"]
    return env
