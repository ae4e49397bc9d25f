"""Splits a job's output into lines, selects them, and tells when each was written."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

LONGEST = 1 << 20  # bytes that are taken for one line, though no newline has come
SEARCHED = 1 << 16  # characters of a line in which a pattern is looked for
COLOR = re.compile(r"\x1b\[[0-9;]{0,64}m")
UNKNOWN = "-" * len("2026-11-16 21:20:17")

Piece = tuple[int, int, bytes]  # of an attempt's output, from this offset
Line = tuple[int, int, bytes]  # of an attempt's output, up to this offset
Times = Sequence[tuple[float, int]]  # see dray.node.jobs.log_times


def lines_of(pieces: Iterable[Piece]) -> Iterator[Line]:
    """Yield whole lines. If an attempt ended without a newline and another follows, one is
    added."""
    kept, of, end = b"", 0, 0
    for attempt, offset, piece in pieces:
        if kept and attempt != of:
            yield of, end + len(kept), kept + b"\n"
            kept = b""
        of, end = attempt, offset - len(kept)
        *whole, kept = (kept + piece).split(b"\n")
        for line in whole:
            end += len(line) + 1
            yield attempt, end, line + b"\n"
        if len(kept) > LONGEST:
            end += len(kept)
            yield attempt, end, kept
            kept = b""
    if kept:
        yield of, end + len(kept), kept


def search(pattern: re.Pattern[str]) -> Callable[[bytes], bool]:
    """Return a function that tells whether the pattern is found in a line, ignoring colours."""

    def found(line: bytes) -> bool:
        text = line.rstrip(b"\r\n")[: 4 * SEARCHED].decode("utf-8", "replace")
        return pattern.search(COLOR.sub("", text)[:SEARCHED]) is not None

    return found


def stamped(lines: Iterable[Line], times_of: Callable[[int], Times | None]) -> Iterator[Line]:
    """Put the time before each line by which it had been written. ``times_of`` is called once for
    each attempt, and returns None where its times are not known. A line that is newer than all of
    them was written just now."""
    known: dict[int, Times | None] = {}
    for attempt, end, line in lines:
        if attempt not in known:
            known[attempt] = times_of(attempt)
        stamp = stamp_of(known[attempt], end, time.time())
        yield attempt, end, f"{stamp}  ".encode() + line


def stamp_of(times: Times | None, end: int, now: float) -> str:
    if times is None:
        return UNKNOWN
    at = bisect_left(times, end, key=lambda one: one[1])
    moment = times[at][0] if at < len(times) else now
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def size_at(times: Times, moment: float) -> int:
    """Return how long the output was at that time, as far as it was recorded."""
    at = bisect_right(times, moment, key=lambda one: one[0])
    return times[at - 1][1] if at else 0
