"""Decides which event files of a job are one run in TensorBoard.

Most trainers write a new folder with each attempt (``2026-11-17_07-30-00``, ``version_3``), which
TensorBoard would show as a run of its own each time. Files of different attempts whose folders
differ only in their digits are one run; folders of the same attempt are different ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from dray.records import NamedTuple

CLOCKS_DIFFER = 1.0  # seconds by which a file may seem older than the attempt that wrote it
DIGITS = re.compile(r"\d+")


class EventFile(NamedTuple):
    """An event file among a job's outputs, and when its first record was written."""

    path: str
    began: float


class Place(NamedTuple):
    """Where an event file goes: its run, below the job's, and the attempt that wrote it."""

    run: str
    attempt: int


def attempt_of(file: EventFile, starts: Sequence[float]) -> int:
    """Return which attempt wrote the file; ``starts``: when each of them began, in order."""
    return max(bisect_right(starts, file.began + CLOCKS_DIFFER), 1)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def as_they_are(files: Sequence[EventFile], starts: Sequence[float]) -> dict[str, Place]:
    """Give each folder a run of its own."""
    return {one.path: Place(folder_of(one.path), attempt_of(one, starts)) for one in files}


def merged(files: Sequence[EventFile], starts: Sequence[float]) -> dict[str, Place]:
    """Make one run of what different attempts wrote to folders that differ only in digits."""
    attempts = {one.path: attempt_of(one, starts) for one in files}
    kinds: dict[str, set[str]] = {}  # folders, by what they are called without digits
    for path in attempts:
        kinds.setdefault(DIGITS.sub("#", folder_of(path)), set()).add(folder_of(path))
    names = {
        folder: name
        for kind, folders in kinds.items()
        for folder, name in names_of(kind, folders, attempts).items()
    }
    shown = short_names(set(names.values()))
    return {path: Place(shown[names[folder_of(path)]], attempts[path]) for path in attempts}


def names_of(kind: str, folders: set[str], attempts: Mapping[str, int]) -> dict[str, str]:
    """Return the run of each of these folders: one for all, unless an attempt wrote to several."""
    writers = [
        {attempt for path, attempt in attempts.items() if folder_of(path) == folder}
        for folder in folders
    ]
    alike = sum(map(len, writers)) == len(set().union(*writers))
    return {folder: kind if alike else folder for folder in folders}


def short_names(names: set[str]) -> dict[str, str]:
    """Leave out the folders that all names begin with; a single run needs no name."""
    split = {name: name.split("/") for name in names}
    common = 0
    while split and all(len(parts) > common for parts in split.values()):
        if len({parts[common] for parts in split.values()}) > 1:
            break
        common += 1
    return {name: "/".join(parts[common:]) for name, parts in split.items()}
