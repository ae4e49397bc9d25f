"""Tells why a job waits in Slurm's queue, and with what it would start sooner. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.agent.answers import Told
from dray.clusters.queues import explaining, slurm
from dray.clusters.queues.slurm_reasons import LIMIT, reason_of
from dray.job.model import JobSpec
from dray.job.quantities import show_duration
from dray.job.situation import (
    Alternative,
    Explanation,
    Limit,
    Maintenance,
    QueueEntry,
    QueueView,
    Share,
)
from dray.node.schedulers.slurm import minutes
from dray.records import NamedTuple

VIEW = ("queue", "gpus", "nodes", "reservations", "config")
LIMITS = ("limits", "shares", "config")
EARLIER = 300.0  # seconds: a change that gains less is not worth telling
QUARTER = 900.0
MARGIN = 600.0  # seconds between the end of a job and a maintenance
MAINTENANCE = "ReqNodeNotAvail, Reserved for maintenance"
PRIVATE = "this cluster shows you only your own jobs: places in the queue are not known"


class Change(NamedTuple):
    """Something else to ask for: as sbatch, a person and scontrol have it."""

    flag: str
    words: str
    update: str


def queue_view(told: Told) -> QueueView:
    config = told.text("config")
    hidden = slurm.hides_others(config)
    remarks = [PRIVATE] if hidden else []
    remarks += [f"{name}: {said}" for name, said in told.errors.items()]
    return QueueView(
        entries=tuple(slurm.entries(told.text("queue"), told.text("gpus"), told.user)),
        pools=tuple(slurm.pools(told.text("nodes"))),
        maintenance=tuple(slurm.maintenances(told.text("reservations"))),
        as_of=told.as_of,
        me=told.user,
        remarks=tuple(remarks),
        is_ordered=not hidden and "queue" not in told.errors,
    )


def explanation(spec: JobSpec, number: str, about: Told, told: Told) -> Explanation:
    """Tell why a job waits: ``about`` is what Slurm says of it, ``told`` of all the rest."""
    view = queue_view(told)
    entry = explaining.find(view, number)
    job = slurm.fields_of(about.text("job"))
    why = entry.why if entry else job.get("Reason", "").replace("_", " ")
    pools = slurm.pools(told.text("nodes"), entry.partition.split(",") if entry else ())
    found = explaining.explain(spec, view._replace(pools=tuple(pools)), entry, reason_of(why))
    account, qos = job.get("Account", ""), job.get("QOS", "")
    limits = limits_for(why, slurm.limits(told.text("limits"), told.user, told.uid, account, qos))
    shares = slurm.shares(told.text("shares"), told.text("config"), told.user)
    return found._replace(
        start=found.start or slurm.moment(job.get("StartTime", "")),
        limits=tuple(limits),
        holders=explaining.own_running(view) if LIMIT.fullmatch(why) else (),
        share=share_of(shares, account),
        maintenance=tuple(in_the_way(view.maintenance, spec, entry, told.as_of)),
        remarks=(*view.remarks, *node_remarks(why, told)),
    )


def limits_for(why: str, limits: Sequence[Limit]) -> list[Limit]:
    """Choose the limits to show: those on GPUs and jobs, those that are reached, and the kind that
    keeps the job back."""
    is_limit = LIMIT.fullmatch(why) is not None
    return [
        one
        for one in limits
        if one.what in ("GPUs", "GPU hours", "running jobs")
        or one.is_reached
        or (is_limit and one.used is None)
    ]


def share_of(shares: Sequence[Share], account: str) -> Share | None:
    for one in shares:
        if one.account == account:
            return one
    return shares[0] if len(shares) == 1 else None


def in_the_way(
    ahead: Sequence[Maintenance], spec: JobSpec, entry: QueueEntry | None, now: float
) -> list[Maintenance]:
    """Return the next maintenance, if the job would run into it were it to start now."""
    limit = spec.resources.time or (entry.limit if entry else None) or 0.0
    return [one for one in ahead if one.end > now and one.start < now + limit][:1]


def node_remarks(why: str, told: Told) -> list[str]:
    """Say why nodes that the job waits for do not work."""
    if "UnavailableNodes" not in why and "DOWN, DRAINED" not in why:
        return []
    return [f"{name}: {said}" for name, said in slurm.troubles(told.text("nodes")).items()][:5]


def changes_for(
    spec: JobSpec, entry: QueueEntry | None, told: Told, settings: Mapping[str, Any]
) -> list[Change]:
    """Think of what might start the job sooner: three changes at most, as Slurm plans for each.
    Where a limit keeps it back there are none: Slurm's guesses know of nodes only."""
    if entry is not None and (entry.is_held or LIMIT.fullmatch(entry.why)):
        return []
    limit = (entry.limit if entry else None) or spec.resources.time
    found = [shorter(max(limit / 4, QUARTER))] if limit and limit >= 2 * QUARTER else []
    own = set(entry.partition.split(",") if entry else settings.get("partition", "").split(","))
    roomy = roomy_partitions(told.text("nodes"), spec) if spec.resources.gpus else []
    found += [elsewhere(name) for name in roomy if name not in own]
    return list(dict.fromkeys(found))[:3]


def before_maintenance(
    spec: JobSpec, found: Explanation, number: str, now: float, host: str
) -> list[Alternative]:
    """Return the time limit with which the job ends before a maintenance, if it could start at once
    with it. Slurm's own guess is of no use there: it stands behind the very job that waits."""
    wanted, free = spec.resources.gpus * spec.resources.nodes, found.pool
    ahead = found.maintenance[0].start - now - MARGIN if found.maintenance else 0.0
    if ahead < QUARTER or found.place > 1 or found.reason != reason_of(MAINTENANCE):
        return []
    if wanted and (free is None or free.free < wanted):
        return []
    change = shorter(ahead)
    basis = "as it ends before the maintenance"
    return [Alternative(change.words, 0.0, "", update(change, number, host), basis)]


def update(change: Change, number: str, host: str) -> str:
    command = f"scontrol update JobId={number} {change.update}"
    return f"ssh {host} {command}" if host else command


def shorter(seconds: float) -> Change:
    whole = max(int(seconds // QUARTER * QUARTER), int(QUARTER))
    limit = minutes(whole)
    return Change(f"--time={limit}", f"--time {show_duration(whole)}", f"TimeLimit={limit}")


def elsewhere(partition: str) -> Change:
    return Change(f"--partition={partition}", f"partition {partition}", f"Partition={partition}")


def roomy_partitions(nodes: str, spec: JobSpec) -> list[str]:
    """Return the partitions in which enough GPUs of the kind are free now."""
    return [name for name in slurm.partitions(nodes) if has_room(slurm.pools(nodes, (name,)), spec)]


def has_room(pools: Sequence[Any], spec: JobSpec) -> bool:
    pool = explaining.pool_for(spec, pools)
    return pool is not None and pool.free >= spec.resources.gpus * spec.resources.nodes


def alternatives(
    changes: Sequence[Change],
    guesses: Sequence[str],
    number: str,
    expected: float | None,
    now: float,
    host: str,
) -> list[Alternative]:
    """Return the changes with which the job would start earlier than it will as it is."""
    found = []
    for change, said in zip(changes, guesses, strict=False):
        guess = slurm.guess_of(said)
        if guess is None or (expected and guess[0] > expected - EARLIER):
            continue
        start = 0.0 if guess[0] <= now + explaining.SOON else guess[0]
        command = f"scontrol update JobId={number} {change.update}"
        found.append(
            Alternative(change.words, start, guess[1], f"ssh {host} {command}" if host else command)
        )
    return found
