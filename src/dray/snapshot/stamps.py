"""Stamps: they tell that a file has changed without reading it."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int]

NO_FILE: Stamp = (0, 0, 0)
UNSURE: Stamp = (-1, -1, -1)  # never equal to a real one: looked at again next time


def stamp_of_file(path: str) -> Stamp:
    try:
        return stamp_of(os.stat(path))
    except OSError:
        return NO_FILE


def stamp_of(status: os.stat_result) -> Stamp:
    # The change time moves with every write, chmod and rename, and cannot be set back.
    return (status.st_ctime_ns, status.st_size, status.st_ino)


def to_remember(stamp: Stamp, fresh: int) -> Stamp:
    """Return the stamp as it is to be remembered: one that moved just now could miss the next
    change."""
    return UNSURE if stamp[0] > fresh else stamp
