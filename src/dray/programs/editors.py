"""Finds an editor that works over SSH, and opens a folder of another machine in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from dray import tracing

KNOWN = ("code", "cursor", "codium", "code-insiders", "windsurf")
PATIENCE = 60.0  # seconds: these return once a window is asked for


def find(wanted: str = "") -> str | None:
    names = (wanted,) if wanted else KNOWN
    return next((path for name in names if (path := shutil.which(name))), None)


def words(program: str, host: str, folder: str) -> list[str]:
    """Return the command that opens a folder there. It begins with a slash, and is no option."""
    return [program, "--remote", f"ssh-remote+{host}", folder]


def start(argv: Sequence[str]) -> str:
    """Open it. Return why it could not be opened; "" if it was, as far as can be told."""
    tracing.trace_program(argv)
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:  # it stays until its window is closed
        return ""
    return f"exit code {ended.returncode}" if ended.returncode else ""
