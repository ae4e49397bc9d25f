"""What a batch system has, and what of a job it would refuse or never start. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.job.model import JobSpec, Resources
from dray.job.quantities import show_duration, show_size
from dray.records import NamedTuple

NO_VERSION = "of a version that it does not tell"  # a scheduler


class Shape(NamedTuple):
    """Nodes of one sort in a partition (a queue, for PBS)."""

    partition: str
    open: bool  # takes new jobs
    default: bool
    time: float | None  # the longest that is allowed; None: no limit
    nodes: int
    cpus: int
    memory: int | None
    gpus: Mapping[str, int]  # by type


class Facts(NamedTuple):
    shapes: tuple[Shape, ...] = ()
    accounts: tuple[str, ...] = ()  # of this user; none where there is no accounting
    partition_word: str = "partition"


class Placement(NamedTuple):
    """Where the job is to run, according to the cluster's settings."""

    partitions: tuple[str, ...] = ()
    account: str | None = None
    gpu_type: str | None = None
    time_is_checked: bool = True  # a quality of service may allow more than the partition


class Problem(NamedTuple):
    what: str
    advice: str = ""


def partition_names(facts: Facts) -> list[str]:
    return sorted({shape.partition for shape in facts.shapes})


def problem(job: JobSpec, placement: Placement, facts: Facts) -> Problem | None:
    """Return why the cluster would refuse the job, or never start it; only what is certain."""
    if placement.account and facts.accounts and placement.account not in facts.accounts:
        yours = ", ".join(facts.accounts)
        return Problem(f"you have no account '{placement.account}'", f"Yours: {yours}.")
    if not facts.shapes:
        return None
    return _unknown_partition(placement, facts) or _too_much(job.resources, placement, facts)


def _unknown_partition(placement: Placement, facts: Facts) -> Problem | None:
    known = partition_names(facts)
    for name in placement.partitions:
        if name not in known:
            what = f"there is no {facts.partition_word} '{name}'"
            return Problem(what, f"There is: {', '.join(known)}.")
    return None


def _too_much(wanted: Resources, placement: Placement, facts: Facts) -> Problem | None:
    """Narrow the nodes by one requirement after another; name the one that leaves none."""
    shapes = _candidates(placement, facts)
    where = f"{facts.partition_word} {', '.join(sorted({one.partition for one in shapes}))}"
    taking = [one for one in shapes if one.open]
    if not taking:
        return Problem(f"{where} takes no jobs now")
    in_time = [one for one in taking if _in_time(wanted, placement, one)]
    if not in_time:
        return _time_problem(wanted, where, taking)
    kind = wanted.gpu_type or placement.gpu_type
    with_gpus = [one for one in in_time if wanted.gpus <= _gpus(one, kind)]
    if not with_gpus:
        return _gpu_problem(wanted, kind, where, in_time)
    return _node_problem(wanted, where, with_gpus)


def _node_problem(wanted: Resources, where: str, shapes: Sequence[Shape]) -> Problem | None:
    cpus = max(one.cpus for one in shapes)
    if wanted.cpus > cpus:
        what = f"{wanted.cpus} CPUs asked for, and no such node of {where} has more than {cpus}"
        return Problem(what)
    memory = [one.memory for one in shapes if one.memory and one.cpus >= wanted.cpus]
    if wanted.memory and memory and wanted.memory > max(memory):
        asked, most = show_size(wanted.memory), show_size(max(memory))
        return Problem(f"{asked} of memory asked for, and no such node of {where} has over {most}")
    nodes = _most_nodes(shapes)
    if wanted.nodes > nodes:
        return Problem(f"{wanted.nodes} nodes asked for, and {where} has {nodes} such nodes")
    return None


def _most_nodes(shapes: Sequence[Shape]) -> int:
    """Return the most nodes that one partition has: a job runs in a single partition."""
    count: dict[str, int] = {}
    for one in shapes:
        count[one.partition] = count.get(one.partition, 0) + one.nodes
    return max(count.values())


def _in_time(wanted: Resources, placement: Placement, shape: Shape) -> bool:
    if wanted.time is None or shape.time is None or not placement.time_is_checked:
        return True
    return wanted.time <= shape.time


def _candidates(placement: Placement, facts: Facts) -> list[Shape]:
    """Return the nodes of the chosen partitions, else of the default one, else of all."""
    chosen = [one for one in facts.shapes if one.partition in placement.partitions]
    return chosen or [one for one in facts.shapes if one.default] or list(facts.shapes)


def _gpus(shape: Shape, kind: str | None) -> int:
    if kind is None:
        return sum(shape.gpus.values())
    return shape.gpus.get(kind, 0)


def _time_problem(wanted: Resources, where: str, shapes: Sequence[Shape]) -> Problem:
    most = show_duration(max(one.time or 0 for one in shapes))
    return Problem(
        f"{show_duration(wanted.time or 0)} asked for, and {where} allows {most}",
        f"Write --time {most}: a job that saves checkpoints is resumed until it is done.",
    )


def _gpu_problem(
    wanted: Resources, kind: str | None, where: str, shapes: Sequence[Shape]
) -> Problem:
    types = sorted({name for one in shapes for name in one.gpus if name})
    most = max(_gpus(one, kind) for one in shapes)
    asked = f"{wanted.gpus:g} GPUs{f' of type {kind}' if kind else ''}"
    if kind and not most:
        found = f"Its types: {', '.join(types)}." if types else "It has GPUs of no type."
        return Problem(f"{where} has no GPUs of type '{kind}'", found)
    if not most:
        return Problem(f"{asked} asked for, and {where} has none")
    return Problem(f"{asked} asked for, and no node of {where} has more than {most}")
