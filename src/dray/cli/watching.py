"""Shows a listing again and again: in place on a terminal, otherwise one below the other."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from dray.cli.terminal import lines, on_terminal, repaint, tell
from dray.launcher import Launcher

PAUSE = 2.0  # seconds; a cluster's queue is not asked more often anyway


def watch_jobs(verbs: Launcher, paint: Callable[[], Sequence[str]], pause: float = PAUSE) -> None:
    """Show the listing until Ctrl-C. Warnings about clusters are shown below the jobs."""
    notes: list[str] = []
    verbs.reporter = verbs.reporter._replace(say=notes.append)
    is_first = True
    try:
        while True:
            notes.clear()
            shown = [*paint(), *notes]
            if on_terminal():
                repaint(lines(fitted(shown, terminal_height())), is_first=is_first)
            else:
                tell(lines([*shown, ""]))
            is_first = False
            time.sleep(pause)
    except KeyboardInterrupt:
        return


def fitted(shown: Sequence[str], height: int) -> list[str]:
    """Return as many lines as fit on the screen, without the line that the cursor is in."""
    room = max(height - 1, 2)
    if len(shown) <= room:
        return list(shown)
    return [*shown[: room - 1], f"… {len(shown) - room + 1} more lines"]


def terminal_height() -> int:
    return os.get_terminal_size(sys.stdout.fileno()).lines or 24
