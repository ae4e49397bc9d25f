"""Records how long an attempt's output was at which time, to tell when a line was written.

They are lines "TIME SIZE" in a text file, to which the supervisor adds at its heartbeats while the
output grows. A line of the output was written by the first time at which the output reached beyond
it. There are never more than MOST lines: when the file is full, every other one is dropped, and
from then on the times are further apart.
"""

import os
import re

from ..formats import files, shapes
from ..formats.pace import HEARTBEAT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    Entry = Tuple[float, int]

MOST = 4096
LONGEST = 40  # bytes of one line
LINE = re.compile(r"([0-9]{1,11}\.[0-9]{1,3}) ([0-9]{1,15})$")


class LogTimes:
    """Writes the file while the output grows."""

    def __init__(self, log: str, path: str) -> None:
        self.log = log
        self.path = path
        self.entries = []  # type: List[Entry]
        self.distance = 0.0  # minimum seconds between two times

    def record(self, now: float, last: bool = False) -> None:
        """Record the output's current length. Raise OSError if that fails."""
        size = os.stat(self.log).st_size
        before = self.entries[-1] if self.entries else (0.0, 0)
        if size <= before[1] or (now - before[0] < self.distance and not last):
            return
        self.entries.append((now, size))
        if len(self.entries) < MOST:
            files.append(self.path, encoded(self.entries[-1:]))
            return
        self.entries = self.entries[1::2]
        self.distance = max(2 * self.distance, 2 * HEARTBEAT)
        files.write_bytes(self.path, encoded(self.entries), durable=False)


def encoded(entries: "List[Entry]") -> bytes:
    return "".join("{:.3f} {}\n".format(*one) for one in entries).encode("ascii")


def read(path: str) -> "List[Entry]":
    """Return the recorded times and sizes, in order, without lines that were cut short or are not
    ours."""
    found = []  # type: List[Entry]
    _, text = files.read_piece(path, 0, MOST * LONGEST)
    for line in text.decode("ascii", "replace").split("\n")[:MOST]:
        match = LINE.match(line)
        if not match:
            continue
        moment, size = float(match.group(1)), int(match.group(2))
        if shapes.is_moment(moment) and (not found or size > found[-1][1]):
            found.append((moment, size))
    return found
