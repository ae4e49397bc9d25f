"""Reads a job's output: from which place, which lines, and as it grows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from dray.clusters.protocol import END, Cluster
from dray.errors import ClusterError, NotFound
from dray.job.model import JobView
from dray.launcher import log_lines
from dray.launcher.context import UNAVAILABLE, Context
from dray.launcher.patience import Patience
from dray.launcher.tail import line_start, tail_offsets
from dray.launcher.watching import Watching
from dray.node.processes.layout import tasks_of
from dray.records import NamedTuple

OUTAGE = 600.0  # seconds without an answer after which nobody follows a log any longer
LAST_WORDS = 8192  # bytes at the end of a log

TYPE_CHECKING = False
if TYPE_CHECKING:  # at run time it would compile each annotation
    from typing import TypedDict

    class Wanted(TypedDict, total=False):
        """Which part of a job's output is read; by default, all of it."""

        attempt: int | None
        rank: int
        tail: int | None  # so many lines at the end
        follow: bool
        grep: re.Pattern[str] | None  # only lines in which it is found
        since: float | None
        stamps: bool  # each line with a time


class Output(NamedTuple):
    """One rank's output of a job, over its attempts."""

    view: JobView
    cluster: Cluster
    attempt: int | None  # the only one that is wanted
    rank: int

    def attempts(self) -> list[int]:
        return [self.attempt] if self.attempt else [one.number for one in self.view.attempts]


class Logs:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)

    def read(
        self,
        reference: str,
        *,
        attempt: int | None = None,
        rank: int = 0,
        tail: int | None = None,
        follow: bool = False,
        grep: re.Pattern[str] | None = None,
        since: float | None = None,
        stamps: bool = False,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of one rank's raw output, each with its attempt, in order."""
        view = self.watching.require_files(reference)
        require_attempt(view, None if follow else attempt)
        require_rank(view, rank)
        output = Output(view, self.context.cluster(view.cluster), attempt, rank)
        counts = log_lines.search(grep) if grep is not None else None
        offsets = self._offsets_since(output, since) if since is not None else {}
        if tail is not None:
            last = tail_offsets(output.cluster, view.id, output.attempts(), tail, rank, counts)
            offsets = max(offsets, last, key=lambda one: min(one.items(), default=(0, 0)))
        pieces = self._pieces(output, offsets, follow)
        if counts is None and not stamps:
            return ((number, piece) for number, _, piece in pieces)
        lines = log_lines.lines_of(pieces)
        if counts is not None:
            lines = (line for line in lines if counts(line[2]))
        if stamps:
            lines = log_lines.stamped(lines, lambda number: self._times(output, number))
        return ((number, line) for number, _, line in lines)

    def _times(self, output: Output, attempt: int) -> log_lines.Times | None:
        """Return at which time the output had which length; None where that was not recorded."""
        view, rank = output.view, output.rank
        times = output.cluster.files.log_times(view.id, attempt) if rank == 0 else []
        of = next((one for one in view.attempts if one.number == attempt), None)
        if times or of is None or of.outcome is None:
            return times
        why = "only rank 0's times are kept" if rank else "it wrote none, or an older dray made it"
        self.context.say_once(
            f"when the lines of attempt {attempt} were written is not known: {why}"
        )
        return None

    def _offsets_since(self, output: Output, since: float) -> dict[int, int]:
        """Return the first attempt that had not ended by then, with the offset to begin at."""
        view, cluster, _, rank = output
        numbers = output.attempts()
        for one in view.attempts:
            if one.number not in numbers or (one.ended is not None and one.ended < since):
                continue
            if one.started is not None and one.started >= since:
                return {one.number: 0}
            times = self._times(output, one.number)
            size = log_lines.size_at(times, since) if times else 0
            return {one.number: line_start(cluster, view.id, one.number, size, rank)}
        last = max(numbers, default=0)
        return {last: cluster.files.read_log(view.id, last, END, rank).size} if last else {}

    def _pieces(
        self, output: Output, offsets: Mapping[int, int], follow: bool
    ) -> Iterator[log_lines.Piece]:
        cluster, only = output.cluster, output.attempt
        job_id, rank = output.view.id, output.rank
        place = min(offsets, default=only or 1)
        offset = offsets.get(place, 0)
        pause = 0.05
        patience = Patience(OUTAGE if follow else 0.0, self.context.reporter)
        while True:
            try:
                # Before reading: what ended by now has written all it will.
                view = self.watching.show(job_id)
                while piece := cluster.files.read_log(job_id, place, offset, rank).data:
                    pause = 0.05
                    yield place, offset, piece
                    offset += len(piece)
                patience.renew()
            except ClusterError as error:
                patience.wait(error)
                continue
            newest = view.attempts[-1].number if view.attempts else 0
            if place < newest and only is None:
                place, offset = place + 1, 0
            elif not follow or not view.state.active or (only and place < newest):
                return
            else:
                time.sleep(pause)
                pause = min(pause * 1.3, 1.0)

    def last_lines(self, view: JobView, most: int = 10) -> list[str]:
        """Return the last lines of the last attempt; none where they cannot be read."""
        if not view.attempts:
            return []
        cluster, attempt = self.context.cluster(view.cluster), view.attempts[-1].number
        try:
            begin = max(cluster.files.read_log(view.id, attempt, END).size - LAST_WORDS, 0)
            text = cluster.files.read_log(view.id, attempt, begin).data[-LAST_WORDS:]
        except UNAVAILABLE:
            return []
        lines = text.decode("utf-8", "replace").splitlines()
        return [line.rstrip() for line in lines if line.strip()][-most:]


def require_attempt(view: JobView, attempt: int | None) -> None:
    numbers: Sequence[int] = [one.number for one in view.attempts]
    if attempt is not None and attempt not in numbers:
        made = f"its attempts are {numbers}" if numbers else "it has made none yet"
        raise NotFound(f"{view.id} has no attempt {attempt}: {made}")


def require_rank(view: JobView, rank: int) -> None:
    ranks = tasks_of(view.spec.to_dict())
    if not 0 <= rank < ranks:
        raise NotFound(f"{view.id} has no rank {rank}: its last one is {ranks - 1}")
