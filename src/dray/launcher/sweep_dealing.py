"""Divides the trials of a sweep among clusters, and into arrays. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.clusters.protocol import Cluster
from dray.errors import Refused, UsageError
from dray.job.model import JobArray, JobSpec
from dray.records import NamedTuple, replace
from dray.store import SweepRow

if TYPE_CHECKING:
    from dray.launcher.running import Running


class Load(NamedTuple):
    """What one cluster is given: so many trials like ``common``, of which ``per_node`` share a
    batch job, that is what ``common`` describes then."""

    running: Running
    cluster: Cluster
    common: JobSpec
    trials: int = 0
    per_node: int = 1


def names_in(on: str) -> list[str]:
    """Return the clusters of 'euler,box'."""
    names = [one.strip() for one in on.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(f"--on {on}: name each cluster once, with commas between: --on euler,box")
    return names


def evenly(count: int, among: int) -> list[int]:
    """Divide into whole numbers; the first ones get what is left over."""
    return [count // among + (at < count % among) for at in range(among)]


def dealt(loads: Sequence[Load], configurations: int, repeats: int) -> list[Load]:
    """Give each cluster its trials. All repeats of a configuration run on one."""
    shares = evenly(configurations, len(loads))
    given = [one._replace(trials=share * repeats) for one, share in zip(loads, shares, strict=True)]
    return [one for one in given if one.trials]


def limited(loads: Sequence[Load], sweep: str, at_once: int | None) -> list[Load]:
    """Say of each cluster's trials which sweep they are of, and how many run at once there: where
    several share a batch job, as many as whole batch jobs have."""
    if at_once and at_once < len(loads):
        raise UsageError(
            f"--at-once {at_once}: of {len(loads)} clusters, each has to run one trial at least"
        )
    for one in loads if at_once else ():
        if not one.cluster.capabilities.limits_at_once:
            raise Refused(
                f"{one.cluster.name} cannot limit how many trials run at once",
                hint="Leave out --at-once, or add trials bit by bit: dray sweep add",
            )
    shares = evenly(at_once, len(loads)) if at_once else [None] * len(loads)
    pairs = list(zip(loads, shares, strict=True))
    for one, share in pairs:
        require_room(one, share)
    rounded = [(one, whole(one, share) if share else None) for one, share in pairs]
    return [
        one._replace(common=replace(one.common, sweep=sweep_of(one, sweep, share)))
        for one, share in rounded
    ]


def whole(load: Load, at_once: int) -> int:
    """Return how many trials run where only whole batch jobs of them do."""
    return at_once - at_once % load.per_node


def require_room(load: Load, at_once: int | None) -> None:
    """Refuse a limit that a single batch job would exceed."""
    if at_once and at_once < load.per_node:
        raise UsageError(
            f"{load.per_node} trials share a batch job on {load.cluster.name}, and only {at_once} "
            f"of them may run at once",
            hint=f"Write --at-once {load.per_node} or more, or a smaller --per-node.",
        )


def sweep_of(load: Load, sweep: str, at_once: int | None) -> dict[str, Any]:
    """Return what the trials on one cluster have in common as trials."""
    found: dict[str, Any] = {"id": sweep, "at_once": at_once}
    return {**found, "per_node": load.per_node} if load.per_node > 1 else found


def arrays_of(row: SweepRow, loads: Sequence[Load]) -> Iterator[tuple[Load, JobArray]]:
    """Divide further trials of a sweep into arrays that the clusters take; the first of all has the
    sweep's own id."""
    first = max((one["first"] + one["count"] for one in row.parts), default=0)
    number = len(row.parts)
    for load in loads:
        end = first + load.trials
        while first < end:
            number += 1
            name = row.id if number == 1 else f"{row.id}-{number}"
            sweep = {**load.common.sweep, "first": first}
            size = min(size_of_array(load.cluster.queue.array_size, sweep), end - first)
            job = replace(load.common, id=name, sweep=sweep)
            yield load, JobArray(job, trials=size, study=row.study)
            first += size


def size_of_array(most: int, sweep: Mapping[str, Any]) -> int:
    """Return how many trials an array has, of ``most`` that the cluster takes: all its batch jobs
    but the last are full."""
    per_node = sweep.get("per_node") or 1
    return most - most % per_node or most
