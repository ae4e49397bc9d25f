"""Puts together why a job waits, for any scheduler. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.job.model import JobSpec
from dray.job.situation import Explanation, Pool, QueueEntry, QueueView, Reason

SOON = 60.0  # seconds: what starts within them starts at once


def find(view: QueueView, number: str) -> QueueEntry | None:
    """Find a batch job by its number. The jobs of an array that wait share an entry."""
    for one in view.entries:
        if one.number == number:
            return one
    array = number.partition("_")[0]
    for one in view.entries:
        if one.is_waiting and array and one.number.partition("_")[0] == array:
            return one
    return None


def explain(
    spec: JobSpec, view: QueueView, entry: QueueEntry | None, reason: Reason
) -> Explanation:
    """Tell the job's place, what those before it ask for, and what is free."""
    explanation = Explanation(
        reason=reason, pool=pool_for(spec, view.pools), frees=next_to_end(spec, view)
    )
    if entry is None:
        return explanation
    explanation = explanation._replace(partition=entry.partition, start=entry.start)
    if entry.is_held or not view.is_ordered:
        return explanation
    line = [
        one
        for one in view.waiting
        if not one.is_held and shares_partition(one.partition, entry.partition)
    ]
    before = line[: line.index(entry)] if entry in line else []
    return explanation._replace(
        place=sum(one.jobs for one in before) + 1,
        waiting=sum(one.jobs for one in line),
        gpus_before=sum(one.gpus * one.jobs for one in before if wants_same(spec, one)),
    )


def shares_partition(one: str, other: str) -> bool:
    return not set(one.split(",")).isdisjoint(other.split(","))


def wants_same(spec: JobSpec, entry: QueueEntry) -> bool:
    wanted = spec.resources.gpu_type
    return not wanted or not entry.gpu_type or entry.gpu_type == wanted


def pool_for(spec: JobSpec, pools: Sequence[Pool]) -> Pool | None:
    """Return the GPUs that the job can have: those of its kind, or all of them."""
    if not spec.resources.gpus:
        return None
    kind = spec.resources.gpu_type
    fitting = [one for one in pools if kind in (None, one.kind)]
    if not fitting:
        return None
    if len(fitting) == 1:
        return fitting[0]
    return Pool(
        "",
        sum(one.free for one in fitting),
        sum(one.total for one in fitting),
        sum(one.nodes for one in fitting),
        sum(one.down for one in fitting),
    )


def next_to_end(spec: JobSpec, view: QueueView) -> tuple[float, str] | None:
    """Return when a running job with GPUs of this kind ends at the latest, and where it runs."""
    if not spec.resources.gpus:
        return None
    ends = [
        (view.as_of + one.left, one.nodes)
        for one in view.entries
        if not one.is_waiting and one.gpus and one.left is not None and wants_same(spec, one)
    ]
    return min(ends, default=None)


def own_running(view: QueueView) -> tuple[str, ...]:
    """Name the user's jobs that run and hold GPUs."""
    mine: Iterable[QueueEntry] = (
        one for one in view.entries if one.owner == view.me and not one.is_waiting and one.gpus
    )
    return tuple(one.job or one.number for one in mine)
