"""Copying outputs on this machine, only what is new or changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dray.landing import Incoming, Landing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

Progress = Callable[[int, int], None]

CHUNK = 1 << 20
GONE = (FileNotFoundError, NotADirectoryError)  # itself, or a folder on the way to it


def copy_changed(
    source: Path, found: Sequence[Incoming], landing: Landing, progress: Progress
) -> tuple[int, int]:
    """Copy those of the files that differ in size or time: (files copied, files in all). Each
    arrives whole; one that a running job removes meanwhile is none of them."""
    changed = [file for file in found if landing.wants(file)]
    gone = copy_files(source, changed, landing, progress)
    return len(changed) - gone, len(found) - gone


def copy_files(
    source: Path, changed: Sequence[Incoming], landing: Landing, progress: Progress
) -> int:
    """Copy these files. Return how many of them are gone."""
    total = sum(file.size for file in changed)
    done = gone = 0
    for file in changed:
        if not copy_one(source / file.path, file, landing):
            gone += 1
            continue
        done += file.size
        progress(done, total)
    return gone


def copy_one(source: Path, file: Incoming, landing: Landing) -> bool:
    """Copy one file. Return False if the source is gone."""
    if file.link is not None:
        landing.put(file, ())
        return True
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except GONE:
        return False
    with os.fdopen(fd, "rb") as opened:
        landing.put(file, beginning(opened, file.size))
    return True


def beginning(opened: IO[bytes], left: int) -> Iterator[bytes]:
    """Yield as much of the file as there was when it was listed: the job may go on writing for
    ever."""
    while left and (piece := opened.read(min(left, CHUNK))):
        left -= len(piece)
        yield piece
