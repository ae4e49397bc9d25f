"""Sweeps as they are now, from what their clusters tell and the jobs' states. Pure."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dray import checks
from dray.checks import Malformed
from dray.job.quantities import show_count
from dray.node.jobs import arrays
from dray.node.sweeps.space import chosen_in, complete, point_of
from dray.node.sweeps.stopping import rungs_of
from dray.records import NamedTuple
from dray.store import Row, SweepRow
from dray.sweep import table
from dray.sweep.space import records_of
from dray.sweep.study import MOST_TRIALS, Study, Trial, plain_value

MOST_PARTS = 10_000
MOST_STEPS = 4  # at which trials are compared, in a line
ACTIVE = ("queued", "running")
MEASURES = (
    "value",
    "objectives",
    "step",
    "rungs",
    "gpu_seconds",
    "metrics",
    "levels",
    "taken",
)  # of a result
ENDS = {"done": "done", "failed": "failed", "lost": "failed", "stopped": "stopped"}


class Part(NamedTuple):
    """An array of a sweep: the trials from ``first`` on."""

    id: str
    first: int
    size: int
    at_once: int | None = None
    cluster: str = ""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Part:
        read = checks.required(record, **PART)
        return cls(read["id"], read["first"], read["count"], read["at_once"])

    @property
    def end(self) -> int:
        return self.first + self.size

    def in_store(self, place: str) -> dict[str, Any]:
        """Return what is kept here of it."""
        told = self._asdict()
        return {"count": told.pop("size"), **told, "place": place}


def array_id(value: Any) -> str:
    """Read the id of an array: that of a job, without an index."""
    if arrays.split(checks.job_id(value)) is not None:
        raise Malformed(f"{checks.brief(value)} is not the id of an array")
    return str(value)


PART: Mapping[str, checks.Check[Any]] = {
    "id": array_id,
    "first": checks.count,
    "count": lambda value: checks.integer(value, 1, MOST_TRIALS),
    "at_once": checks.optional(checks.count),
}


class Sweep(NamedTuple):
    """A sweep as it is now."""

    study: Study
    clusters: tuple[str, ...]
    parts: tuple[Part, ...]
    trials: tuple[Trial, ...]
    is_closed: bool = False  # by dray sweep stop
    failures: int = 0
    problems: Mapping[str, str] = MappingProxyType({})  # why clusters could not be asked

    @property
    def has_failed(self) -> bool:
        """Whether no further trial starts, as too many have failed."""
        most = self.study.max_failures
        return most is not None and self.failures > most

    @property
    def why_closed(self) -> str:
        """Why no further trial starts; '' where they do."""
        if self.has_failed:
            return (
                f"{show_count(self.failures, 'trial')} failed, more than "
                f"max_failures = {self.study.max_failures}"
            )
        return "it was stopped" if self.is_closed else ""


def parts_of(
    row: SweepRow | None,
    told: Mapping[str, Mapping[str, Any]],
    places: Iterable[str],
) -> tuple[Part, ...]:
    """Return the arrays of a sweep, in the order of their trials. Those that were submitted from
    here are known here, whatever a cluster tells of them; where a sweep is on one cluster alone,
    another machine may have added some."""
    own: dict[str, list[Part]] = {name: [] for name in places}
    for one in row.parts if row else ():
        name = one.get("cluster", row.cluster if row else "")
        own[name].append(Part.from_dict(one)._replace(cluster=name))
    found: list[Part] = []
    for name, known in own.items():
        if name not in told or told[name]:
            found += known
        if row is None or len(own) == 1:
            found += added(known, parts_told(name, told.get(name, {}), row is None))
    if sum(one.size for one in found) > MOST_TRIALS or any(one.end > MOST_TRIALS for one in found):
        raise Malformed(f"a sweep has {MOST_TRIALS} trials at most")
    return tuple(sorted(found, key=lambda one: one.first))


def parts_told(cluster: str, told: Mapping[str, Any], is_all: bool) -> tuple[Part, ...]:
    """Return the arrays that a cluster tells of. What cannot be read is an error only where nothing
    else is known of the sweep (``is_all``): it must hide no trial."""
    if not told:
        return ()
    parts = []
    try:
        listed = checks.several(lambda value: value, MOST_PARTS)(told.get("parts"))
    except Malformed:
        if is_all:
            raise
        return ()
    for one in listed:
        try:
            parts.append(Part.from_dict(checks.record(one))._replace(cluster=cluster))
        except Malformed:
            if is_all:
                raise
    return tuple(parts)


def added(known: Sequence[Part], told: Iterable[Part]) -> list[Part]:
    """Return the arrays that only the cluster knows of; none that claims trials of another one, or
    more than a sweep has."""
    names = {one.id for one in known}
    taken = sorted((one.first, one.end) for one in known)
    found: list[Part] = []
    for one in sorted(told, key=lambda part: part.first):
        at = bisect(taken, (one.first, one.end))
        is_apart = at == 0 or taken[at - 1][1] <= one.first
        is_apart = is_apart and (at == len(taken) or one.end <= taken[at][0])
        if is_apart and one.id not in names and one.end <= MOST_TRIALS:
            found.append(one)
            taken.insert(at, (one.first, one.end))
            names.add(one.id)
    return found


def as_submitted(
    parts: Sequence[Part], rows: Mapping[str, Row], told: Mapping[str, Mapping[str, Any]]
) -> tuple[Part, ...]:
    """Return the arrays without the trials at their ends that were never submitted, or that a later
    array has taken over."""
    found = []
    for at, part in enumerate(parts):
        end = parts[at + 1].first if at + 1 < len(parts) else part.end
        indices = range(min(part.size, max(end - part.first, 0)))
        there = [index for index in indices if is_there(part, index, rows, told)]
        found.append(part._replace(size=there[-1] + 1 if there else 0))
    return tuple(found)


def is_there(
    part: Part, index: int, rows: Mapping[str, Row], told: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Return whether a trial has a job, or had one that told how it did. Where trials are submitted
    one by one, that may have been cut in the middle."""
    number = part.first + index
    return f"{part.id}.{index}" in rows or bool(record_in(told_of(part, told), "results", number))


def as_told(part: Part, told: Mapping[str, Any]) -> Part:
    """Return an array with only the trials that have told a result."""
    there = [n for n in range(part.size) if record_in(told, "results", part.first + n)]
    return part._replace(size=there[-1] + 1 if there else 0)


def told_of(part: Part, told: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the files that tell of an array: its cluster's, or, where that has not answered, what
    another one was told of it."""
    return told[part.cluster] if part.cluster in told else next(iter(told.values()), {})


def trials_of(
    study: Study,
    parts: Iterable[Part],
    rows: Mapping[str, Row],
    told: Mapping[str, Mapping[str, Any]],
) -> tuple[Trial, ...]:
    space = records_of(study.space)
    return tuple(
        trial_of(study, space, part, index, rows, told_of(part, told))
        for part in parts
        for index in range(part.size)
        if is_there(part, index, rows, told)
    )


def trial_of(
    study: Study,
    space: list[Any],
    part: Part,
    index: int,
    rows: Mapping[str, Row],
    told: Mapping[str, Any],
) -> Trial:
    """Put together what the files and the job's state say of a trial. Files that cannot be read
    hide no trial."""
    number = part.first + index
    configuration = number // study.repeats
    job = f"{part.id}.{index}"
    row = rows.get(job)
    result = record_in(told, "results", number)
    state = state_of(row.state if row else "", str(result.get("state", "")))
    record = {key: result[key] for key in MEASURES if key in result}
    if state == "running" and row is not None:
        record.update(latest(study, row))
    chosen = result if result.get("values") else record_in(told, "trials", configuration)
    values = values_of(space, chosen, configuration)
    own = {"number": number, "configuration": configuration, "job": job, "cluster": part.cluster}
    own.update(values=values, state=state, reason=reason_of(row, result, state))
    try:
        return with_objectives(study, Trial.from_dict({**record, **own}))
    except Malformed as error:
        return Trial.from_dict({**own, "reason": f"its result is damaged: {error}"})


def reason_of(row: Row | None, result: Mapping[str, Any], state: str) -> str:
    """Return why a trial ended: what its job says, or, where that has been removed, what the trial
    itself has told; of one that was pruned, this one first."""
    found = result.get("reason") if state in ("failed", "pruned") else ""
    told, own = found if isinstance(found, str) else "", row.reason if row else ""
    return (told or own) if state == "pruned" else (own or told)


def with_objectives(study: Study, trial: Trial) -> Trial:
    """Return a trial with as many values as its sweep has metrics. Of one that runs, the first may
    be known by what its job told last."""
    count = len(study.objectives)
    found = trial.objectives if len(trial.objectives) == count else (None,) * count
    if not count:
        return trial._replace(objectives=())
    if trial.state == "running" and trial.value is not None:
        found = (trial.value, *found[1:])
    return trial._replace(objectives=found, value=found[0])


def failures_in(told: Mapping[str, Any], cluster: str, parts: Iterable[Part]) -> int:
    """Count the trials of a cluster that told of their failure, as those on the nodes do."""
    own = [one for one in parts if one.cluster == cluster]
    numbers = [number for one in own for number in range(one.first, one.end)]
    results = [record_in(told, "results", number) for number in numbers]
    return sum(1 for one in results if one.get("state") == "failed")


def record_in(told: Mapping[str, Any], kind: str, number: int) -> Mapping[str, Any]:
    found = told.get(kind)
    one = found.get(str(number)) if isinstance(found, dict) else None
    return one if isinstance(one, dict) else {}


def state_of(job: str, result: str) -> str:
    """Return a trial's state: a job that is active is not what it told before; one that has ended
    is what it told, where it did."""
    if job in ACTIVE:
        return job
    if result in ("done", "failed", "pruned", "stopped"):
        return result
    return ENDS.get(job, "running" if result == "running" else "queued")


def latest(study: Study, row: Row) -> dict[str, Any]:
    """Return the latest value of a running trial, if it is of the sweep's metric."""
    metric = json.loads(row.metric) or {}
    if not metric or (study.metric and metric.get("name") != study.metric):
        return {}
    value = metric.get("value")
    return {"value": "nan" if value is None else value, "step": metric.get("step")}


def values_of(space: list[Any], told: Mapping[str, Any], configuration: int) -> dict[str, Any]:
    """Return a configuration's values, if they are of the space; what follows from others is
    computed here."""
    values = told.get("values")
    if not isinstance(values, dict):
        return {}
    try:
        point_of(space, values)
        found = complete(space, chosen_in(space, values), configuration)
        plain_value(found)  # a formula may give what cannot be shown
        return found
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return {}


def most_promising(sweep: Sweep, best: int) -> list[Trial]:
    """Return the trials that came farthest of those that a comparison has pruned, of those at the
    same rung the best."""
    pruned = [one for one in sweep.trials if one.state == "pruned" and not one.met_condition]
    ordered = sorted(pruned, key=lambda one: (*table.promise(sweep.study, one), one.number))
    return ordered[:best]


def look_steps(study: Study) -> str:
    """Name the first steps at which trials are compared, with a sign where there are more."""
    rule: Any = study.stop.to_dict() if study.stop else None
    steps = rungs_of(rule)
    more = ["…"] if len(steps) > MOST_STEPS else []
    return ", ".join([*map(str, steps[:MOST_STEPS]), *more])


def best_trials(sweep: Sweep, most: int | None) -> list[Trial]:
    """Return the first trial of each of the best configurations."""
    found = table.configurations(sweep.study, sweep.trials)
    return [one.trials[0] for one in table.best_of(sweep.study, found)[:most]]
