"""Reads the last lines of a job's output, backwards from its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.clusters.protocol import END, Cluster
from dray.launcher.log_lines import LONGEST

TAIL_BLOCK = 64 * 1024

Counts = Callable[[bytes], bool]


def tail_offsets(
    cluster: Cluster,
    job_id: str,
    attempts: Sequence[int],
    lines: int,
    rank: int,
    counts: Counts | None = None,
) -> dict[int, int]:
    """Return, by attempt, where the last ``lines`` lines begin. With ``counts``, only lines that it
    accepts are counted."""
    offsets: dict[int, int] = {}
    for attempt in reversed(attempts):
        offset, found = last_lines(cluster, job_id, attempt, lines, rank, counts)
        offsets[attempt] = offset
        lines -= found
        if lines <= 0:
            break
    return offsets


def last_lines(
    cluster: Cluster,
    job_id: str,
    attempt: int,
    lines: int,
    rank: int,
    counts: Counts | None = None,
) -> tuple[int, int]:
    """Return where the last lines of an attempt begin, and how many there are. Reads backwards,
    each byte once."""
    end = start = cluster.files.read_log(job_id, attempt, END, rank).size
    found = 0
    block = TAIL_BLOCK
    rest = b""  # of a line whose beginning was not read yet; never more than is taken for one
    while start > 0 and lines > 0:
        before, start = start, max(0, start - block)
        block = min(2 * block, 64 * TAIL_BLOCK)
        data = read_span(cluster, job_id, attempt, start, before, rank)
        # A newline at the very end closes the last line; any other begins a new one.
        at = len(data) - 1 if before == end else len(data)
        line_end = len(data)
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            if counts is None or counts((data[at + 1 : line_end] + rest)[:LONGEST]):
                found += 1
                if found == lines:
                    return start + at + 1, lines
            line_end, rest = at + 1, b""
        if counts is not None:
            rest = (data[:line_end] + rest)[:LONGEST]
        if len(data) < before - start:  # there is less than was said: it may be nothing at all
            return start, found
    if lines > 0 and end > 0:
        found += counts is None or counts(rest)
    return start if lines > 0 else end, found


def line_start(cluster: Cluster, job_id: str, attempt: int, offset: int, rank: int) -> int:
    """Return where the line that contains this offset begins; in a very long line, some place in
    it."""
    start = max(0, offset - TAIL_BLOCK)
    before = read_span(cluster, job_id, attempt, start, offset, rank)
    return start + before.rfind(b"\n") + 1


def read_span(
    cluster: Cluster, job_id: str, attempt: int, start: int, end: int, rank: int
) -> bytes:
    data = bytearray()
    while len(data) < end - start:
        piece = cluster.files.read_log(job_id, attempt, start + len(data), rank).data
        if not piece:
            break
        data += piece
    return bytes(data[: end - start])
