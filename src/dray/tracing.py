"""Traces what dray does behind a command: each program it starts and each request, with its time.

Only the verb and size of a request are shown: its content may be secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

LONGEST = 300  # characters of a program's arguments

_tell: Callable[[str], None] | None = None
_since = 0.0


def begin(tell: Callable[[str], None] | None) -> None:
    """Hand every line to ``tell`` from now on; None ends it."""
    global _tell, _since
    _tell, _since = tell, time.monotonic()


def trace(text: str) -> None:
    if _tell is not None:
        _tell(f"{time.monotonic() - _since:8.3f} s  {text}")


def trace_program(argv: Sequence[str]) -> None:
    if _tell is not None:
        import shlex

        text = shlex.join(argv)
        trace(f"start {text[:LONGEST]}{' …' if len(text) > LONGEST else ''}")
