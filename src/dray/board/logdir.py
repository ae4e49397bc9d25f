"""Lays event files out for TensorBoard: one folder for each run, in the order of the attempts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from dray.board import events
from dray.board.runs import EventFile, Place
from dray.records import NamedTuple

HEAD = 1 << 20  # bytes in which the first values of a file are looked for
PIECE = 1 << 20


class Mirror:
    """Copies of a job's event files on this machine, each as long as what has come of it.

    The names come from the cluster, and were checked to stay below the folder, which only dray
    writes to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def lengths(self) -> dict[str, int]:
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                found[str(path.relative_to(self.folder))] = path.stat().st_size
        return found

    def write(self, path: str, offset: int, data: bytes) -> None:
        target = self.folder / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(target, "r+b" if target.exists() else "w+b") as file:
            file.truncate(offset)
            file.seek(offset)
            file.write(data)

    def files(self) -> list[EventFile]:
        """Return the files that have begun: those with a first record."""
        return [
            EventFile(path, first.time)
            for path in sorted(self.lengths())
            for first in self._first_event(path)
        ]

    def _first_event(self, path: str) -> Iterator[events.Event]:
        try:
            yield from list(events.events(self.head(path)))[:1]
        except events.Damaged:  # by a trainer, or on purpose: TensorBoard could not read it either
            return

    def head(self, path: str) -> bytes:
        with open(self.folder / path, "rb") as file:
            return file.read(HEAD)


class JobLogs:
    """A job's part of the folder that TensorBoard reads."""

    def __init__(self, mirror: Mirror, folder: Path) -> None:
        self.mirror = mirror
        self.folder = folder
        self._places: dict[str, Place] = {}
        self._copied: dict[str, int] = {}  # bytes of each mirrored file that are in the folder

    def lay_out(self, places: Mapping[str, Place]) -> None:
        """Bring the folder up to date. It is made again if a file belongs elsewhere by now, as the
        first file of a second run makes it, or has begun anew."""
        lengths = self.mirror.lengths()
        moved = any(places.get(path) != place for path, place in self._places.items())
        if moved or any(lengths.get(path, 0) < size for path, size in self._copied.items()):
            shutil.rmtree(self.folder, ignore_errors=True)
            self._copied.clear()
        self._places = dict(places)
        resumed = resumed_files(places)
        for path, place in places.items():
            self._copy(path, self.folder / place.run / name_of(path, place), path in resumed)

    def _copy(self, path: str, target: Path, is_resumed: bool) -> None:
        """Copy what has come. TensorBoard reads whole records only, whatever is behind them."""
        if path not in self._copied:
            head = beginning(self.mirror.head(path), is_resumed)
            if head is None:
                return  # the step that it goes on from has not come yet
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_bytes(head.written)
            self._copied[path] = head.read
        with open(self.mirror.folder / path, "rb") as source, open(target, "ab") as file:
            source.seek(self._copied[path])
            while piece := source.read(PIECE):
                file.write(piece)
                self._copied[path] += len(piece)


class Head(NamedTuple):
    """How a file begins in TensorBoard's folder, and how much of the original that stands for."""

    written: bytes
    read: int


def beginning(data: bytes, is_resumed: bool) -> Head | None:
    """Return how a file is to begin: one of a later attempt says, behind the version of the format,
    from which step on it replaces what was there. None if that is not known yet."""
    if not is_resumed:
        return Head(b"", 0)
    version = 0
    try:
        for event in events.events(data):
            if event.is_version and not version:
                version = event.end
            if event.has_values:
                again = events.started_again(event.step, event.time)
                return Head(data[:version] + again, version)
    except events.Damaged:
        return Head(b"", 0)
    return None if len(data) < HEAD else Head(b"", 0)


def resumed_files(places: Mapping[str, Place]) -> set[str]:
    """Return the first file of each attempt that goes on with the run of an earlier one."""
    found, attempts = set(), dict[str, int]()
    for path, (run, attempt) in sorted(places.items(), key=lambda one: (one[1].attempt, one[0])):
        if run in attempts and attempts[run] < attempt:
            found.add(path)
        attempts[run] = attempt
    return found


def name_of(path: str, place: Place) -> str:
    """Return a name that TensorBoard takes for an event file; it reads them in this order."""
    return f"{place.attempt:06d}.{path.rpartition('/')[2]}"
