"""Sweeps: submits their trials as arrays, and puts together what is known of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray import checks
from dray.checks import Malformed
from dray.clusters.protocol import Cluster
from dray.errors import ClusterError, DrayError, NotFound, Refused, UsageError
from dray.job.model import JobArray, JobSpec
from dray.job.quantities import show_count
from dray.launcher.context import Context, unclaimed
from dray.launcher.notifying import private_settings, private_values
from dray.launcher.running import Running
from dray.node.sweeps import sampler
from dray.node.sweeps.expressions import Condition, NotAnExpression
from dray.node.sweeps.filling import fill, names_in
from dray.node.sweeps.space import complete, learnt, point_of
from dray.node.sweeps.stopping import rungs_of
from dray.records import NamedTuple, replace
from dray.store import Row, SweepRow
from dray.sweep import table
from dray.sweep.options import USUAL_TRIALS
from dray.sweep.space import check_template, records_of
from dray.sweep.study import Study, Trial

if TYPE_CHECKING:
    from dray.launcher.housekeeping import Housekeeping
    from dray.launcher.submission import Submission

MOST_PARTS = 10_000
ACTIVE = ("queued", "running")
MEASURES = ("value", "step", "rungs", "gpu_seconds", "metrics")  # of a result
ENDS = {"done": "done", "failed": "failed", "lost": "failed", "stopped": "stopped"}


class Part(NamedTuple):
    """An array of a sweep: the trials from ``first`` on."""

    id: str
    first: int
    size: int
    at_once: int | None = None

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Part:
        read = checks.required(record, **PART)
        return cls(read["id"], read["first"], read["count"], read["at_once"])

    @property
    def end(self) -> int:
        return self.first + self.size

    def to_dict(self) -> dict[str, Any]:
        told = self._asdict()
        return {"count": told.pop("size"), **told}


PART: Mapping[str, checks.Check[Any]] = {
    "id": checks.job_id,
    "first": checks.count,
    "count": lambda value: checks.integer(value, 1, 10**6),
    "at_once": checks.optional(checks.count),
}


class Sweep(NamedTuple):
    """A sweep as it is now."""

    study: Study
    cluster: str
    parts: tuple[Part, ...]
    trials: tuple[Trial, ...]
    is_closed: bool = False  # by dray sweep stop
    failures: int = 0

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


class Sweeping:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.running = Running(context)
        self.watching = self.running.watching

    @cached_property
    def _housekeeping(self) -> Housekeeping:
        from dray.launcher.housekeeping import Housekeeping

        return Housekeeping(self.context)

    # -- submitting -----------------------------------------------------------------------------

    def start(
        self,
        study: Study,
        command: Sequence[str],
        configurations: int | None,
        *,
        at_once: int | None = None,
        snapshot: bool = True,
        notify: bool | None = None,
    ) -> str:
        """Submit a sweep and return its id. Of ``study`` all but the id, the name and the time are
        used; a grid without a number of configurations has all."""
        cluster = self.running.target()
        common = self.running.describe(command)
        cluster.check(common)
        check_template(common.command, study.space)
        require_sound(study)
        if at_once and not cluster.capabilities.limits_at_once:
            raise Refused(
                f"{cluster.name} cannot limit how many trials run at once",
                hint="Leave out --at-once, or add trials bit by bit: dray sweep add",
            )
        count = number_of(study, configurations) * study.repeats
        study = study._replace(id=common.id, name=common.name, created=common.created)
        common = replace(common, sweep={"id": study.id, "at_once": at_once})
        place = cluster.files.path()
        row = SweepRow(study.id, cluster.name, place, study.created, study.to_dict(), [])
        self.running.tell(common)
        self.context.say_once(*notes_on_repeats(study, common.command))
        self._submit(row, common, count, snapshot=snapshot, notify=notify)
        return study.id

    def add(self, sweep_id: str, configurations: int) -> int:
        """Submit further configurations of a sweep, like the first ones and with their code; return
        how many trials were submitted. One that was stopped is open again."""
        self.context.config.require_trust()
        row, sweep = self._own(sweep_id), self.look(sweep_id)
        if sweep.has_failed:
            raise Refused(
                f"no further trial of {row.id} would start: {sweep.why_closed}",
                hint="Let those that failed run again (dray resume), or start another sweep.",
            )
        repeats, end = sweep.study.repeats, max((one.end for one in sweep.parts), default=0)
        if sweep.study.sampler == "grid":
            left = sampler.grid_size(records_of(sweep.study.space)) + -end // repeats
            if configurations > left:
                raise UsageError(f"the grid has only {show_count(left, 'point')} left")
        common = self.context.open_store().array_spec(sweep.parts[0].id) if sweep.parts else None
        if common is None:
            raise Refused(f"the trials of {row.id} have been removed: start another sweep")
        common = replace(common, created=time.time())
        row = row._replace(parts=[one.to_dict() for one in sweep.parts])
        rest = -end % repeats  # of a configuration that was submitted in part
        number = self._submit(row, common, rest + configurations * repeats, snapshot=False)
        if sweep.is_closed:
            self.context.reporter.say(f"{row.id} was stopped, and is open again")
        return number

    def _own(self, sweep_id: str) -> SweepRow:
        found = [one for one in self.known() if one.id == sweep_id]
        if not found:
            raise NotFound(
                f"there is no sweep '{sweep_id}' that was submitted from here",
                hint="dray sweep status lists them.",
            )
        return found[0]

    def _submit(
        self,
        row: SweepRow,
        common: JobSpec,
        count: int,
        *,
        snapshot: bool,
        notify: bool | None = None,
    ) -> int:
        """Submit so many further trials, as arrays of which each is as large as the cluster takes;
        return how many the cluster has taken, which may be fewer than all."""
        cluster, done = self.context.cluster(row.cluster), 0
        for array in arrays_of(row, common, count, cluster.queue.array_size):
            settings = private_settings(self.context.config, cluster.name, notify, array.size)
            private = private_values(common.secrets, settings)
            work = self.running.submission(cluster, array, private, snapshot=snapshot)
            try:
                row = self._submit_array(row, array, work)
            except BaseException as error:
                there = len(self.context.open_store().in_array(work.job.id))
                done += there if there < array.size else 0  # all: perhaps, if nobody answers
                if not isinstance(error, DrayError) and (done or there):
                    self.context.reporter.say(left_behind(row, done, count))
                if not isinstance(error, DrayError) or not done:
                    raise
                self.context.reporter.say(
                    f"only {done} of {count} trials were submitted: {error.message}"
                )
                break
            done += array.size
        return done

    def _submit_array(self, row: SweepRow, array: JobArray, work: Submission) -> SweepRow:
        """Submit an array, and return the sweep with it. What is about to be submitted is written
        down before; where nothing came of it, that is forgotten."""
        store = self.context.open_store()
        longer = row._replace(parts=[*row.parts, array.part])
        store.save_sweep(longer)
        try:
            work.submit()
        except BaseException:
            there = len(store.in_array(work.job.id))
            part = {**array.part, "id": work.job.id, "count": there}
            store.save_sweep(row._replace(parts=[*row.parts, part]) if there else row)
            raise
        if work.job.id != array.id:  # which was taken
            longer = row._replace(parts=[*row.parts, {**array.part, "id": work.job.id}])
            store.save_sweep(longer)
        return longer

    # -- looking --------------------------------------------------------------------------------

    def known(self) -> list[SweepRow]:
        """Return the sweeps that were submitted from here, the newest first."""
        return self.context.open_store().sweeps()

    def size_of(self, sweep_id: str) -> int:
        """Return how many trials of a sweep have been submitted from here."""
        return sum(part["count"] for part in self._own(sweep_id).parts)

    def find(self, reference: str) -> str:
        """Return the sweep that this id, or unique beginning of one, means."""
        ids = [one.id for one in self.known()]
        found = [one for one in ids if one == reference] or [
            one for one in ids if reference and one.startswith(reference)
        ]
        if len(found) > 1:
            raise UsageError(f"'{reference}' is not unique: {', '.join(found[:10])}")
        if not found:
            raise NotFound(
                f"there is no sweep '{reference}'", hint="dray sweep status lists the sweeps."
            )
        return found[0]

    def look(self, sweep_id: str, on: str | None = None) -> Sweep:
        """Ask the sweep's cluster how it is. ``on``: of a sweep that another machine has
        submitted."""
        row = next((one for one in self.known() if one.id == sweep_id), None)
        name = row.cluster if row else on
        if name is None:
            raise NotFound(
                f"there is no sweep '{sweep_id}'", hint="Another machine's: --on CLUSTER"
            )
        cluster = self.context.cluster(name)
        if row and row.place != cluster.files.path():
            raise ClusterError(
                f"{sweep_id} was submitted to {name} with other settings: it is in {row.place}",
                hint="Run dray in the project that it was submitted from.",
            )
        told = cluster.files.sweep(sweep_id)
        try:
            study = Study.from_dict(row.study if row else checks.record(told.get("study")))
            parts = checks.several(Part.from_dict, MOST_PARTS)(told.get("parts"))
        except Malformed as error:
            raise ClusterError(f"{sweep_id} on {name} is damaged: {error}") from error
        rows = self._rows(parts, cluster)
        parts = as_submitted(parts, rows, told)
        space = records_of(study.space)
        trials = tuple(
            trial_of(study, space, part, index, rows, told, name)
            for part in parts
            for index in range(part.size)
            if is_there(part, index, rows, told)
        )
        return Sweep(study, name, parts, trials, told.get("closed") is True, failures_in(told))

    def _rows(self, parts: Iterable[Part], cluster: Cluster) -> dict[str, Row]:
        """Return what is known of the trials' jobs, after a look at those that have not ended."""
        store = self.context.open_store()
        names = [f"{one.id}.{index}" for one in parts for index in range(one.size)]
        self.watching.active_among(names)
        rows = {row.id: row for one in parts for row in store.rows_in(one.id)}
        unknown = [name for name in names if name not in rows]
        if unknown:  # another machine has submitted them
            store.save(unclaimed(store, cluster.queue.status(unknown).jobs.values()))
            rows = {row.id: row for one in parts for row in store.rows_in(one.id)}
        return rows

    def command_of(self, sweep: Sweep, trial: Trial) -> tuple[str, ...]:
        """Return the command of a trial that has its parameters."""
        spec = self.context.open_store().array_spec(sweep.parts[0].id)
        if spec is None:
            raise Refused(f"{sweep.study.id} is not known to have been submitted from here")
        repeat = trial.number % sweep.study.repeats
        seed = sweep.study.seed + repeat
        space = records_of(sweep.study.space)
        values = trial.to_dict()["values"]
        return tuple(fill(spec.command, space, values, trial.number, repeat, seed))

    # -- changing -------------------------------------------------------------------------------

    def stop(self, sweep_id: str, *, now: bool = False, waiting: bool = False) -> int:
        """Let no further trial start, and stop those that run, after a checkpoint or at once; with
        ``waiting``, only those that have not begun. Returns how many were stopped."""
        sweep = self.look(sweep_id)
        cluster = self.context.cluster(sweep.cluster)
        cluster.files.close_sweep(sweep_id)
        states = ("queued",) if waiting else ACTIVE
        ids = [one.job for one in sweep.trials if one.state in states]
        if len(ids) == 1:  # which may have ended meanwhile
            ids = list(self.watching.active_among(ids))
        return len(self._housekeeping.stop_all(ids, now=now)) if ids else 0

    def go_on(self, sweep_id: str, best: int) -> list[str]:
        """Resume the most promising of the trials that were pruned; return their ids."""
        from dray.launcher.resuming import Resuming

        sweep = self.look(sweep_id)
        chosen = most_promising(sweep, best)
        if not chosen:
            raise Refused(f"no trial of {sweep_id} was pruned: there is nothing to go on with")
        resuming = Resuming(self.context, lambda: self.running.images)
        return [resuming.resume(one.job) for one in chosen]


# -- pure -----------------------------------------------------------------------------------------


def require_sound(study: Study) -> None:
    """Refuse what could only go wrong on a node."""
    if study.sampler.startswith("optuna:"):
        raise Refused(
            f"the sampler {study.sampler} is not there yet",
            hint="There is tpe, random, quasi and grid.",
        )
    for text in study.stop_if:
        try:
            Condition(text)
        except NotAnExpression as error:
            raise UsageError(f"--stop-if: {error}") from error
    if study.stop and not study.stop.first and not study.stop.total:
        raise UsageError(
            f"--stop {study.stop.rule} needs to know when trials are compared",
            hint="Name the steps of a whole training: --stop-total 1500, or the first look: "
            "--stop-first 100",
        )
    if study.stop and study.stop.first and study.stop.total:
        require_comparison(study.stop.first, study.stop.total)


def require_comparison(first: int, total: int) -> None:
    if first >= total:
        raise UsageError(
            f"trials would never be compared: the first time at step {first}, and a training has "
            f"{show_count(total, 'step')}",
            hint="--stop-first has to be smaller than --stop-total.",
        )


def notes_on_repeats(study: Study, command: Sequence[str]) -> list[str]:
    """Say so where nothing in the command differs from one repeat to the next."""
    if study.repeats < 2 or {"seed", "repeat", "trial"} & names_in(command):
        return []
    missing = f"{study.repeats} repeats, and neither {{seed}} nor {{repeat}} in the command"
    unless = "unless it reads DRAY_SEED from its environment"
    return [f"{missing}: {unless}, all repeats of a configuration are the same"]


def number_of(study: Study, asked: int | None) -> int:
    """Return how many configurations there are to be: of a grid, all, where nobody says."""
    if study.sampler != "grid":
        return asked or USUAL_TRIALS
    try:
        most = sampler.grid_size(records_of(study.space))
    except ValueError as error:
        raise UsageError(str(error), hint="Give it a step: 0..1:step=0.1") from error
    if asked and asked > most:
        raise UsageError(f"the grid has {show_count(most, 'point')}, and {asked} are asked for")
    return asked or most


def arrays_of(row: SweepRow, common: JobSpec, count: int, most: int) -> Iterator[JobArray]:
    """Divide further trials of a sweep into arrays; the first of all has the sweep's own id."""
    first = max((one["first"] + one["count"] for one in row.parts), default=0)
    end, number = first + count, len(row.parts)
    while first < end:
        number += 1
        name = row.id if number == 1 else f"{row.id}-{number}"
        size = min(most, end - first)
        job = replace(common, id=name, sweep={**common.sweep, "first": first})
        yield JobArray(job, trials=size, study=row.study)
        first += size


def left_behind(row: SweepRow, done: int, count: int) -> str:
    """Say what there is of a sweep whose submission was cut short."""
    if not done:
        return f"{row.id} may be there: dray sweep status {row.id} tells"
    missing = max((count - done) // row.study["repeats"], 1)
    return (
        f"{done} of {show_count(count, 'trial')} of {row.id} {'is' if done == 1 else 'are'} "
        f"submitted: dray sweep add {row.id} {missing} submits the others, "
        f"dray sweep stop {row.id} ends what is there"
    )


def as_submitted(
    parts: Sequence[Part], rows: Mapping[str, Row], told: Mapping[str, Any]
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


def is_there(part: Part, index: int, rows: Mapping[str, Row], told: Mapping[str, Any]) -> bool:
    """Return whether a trial has a job, or had one that told how it did. Where trials are submitted
    one by one, that may have been cut in the middle."""
    return f"{part.id}.{index}" in rows or bool(record_in(told, "results", part.first + index))


def trial_of(
    study: Study,
    space: list[Any],
    part: Part,
    index: int,
    rows: Mapping[str, Row],
    told: Mapping[str, Any],
    cluster: str,
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
    values = values_of(space, record_in(told, "trials", configuration), configuration)
    own = {"number": number, "configuration": configuration, "job": job, "cluster": cluster}
    own.update(values=values, state=state, reason=row.reason if row else "")
    try:
        return Trial.from_dict({**record, **own})
    except Malformed as error:
        return Trial.from_dict({**own, "reason": f"its result is damaged: {error}"})


def failures_in(told: Mapping[str, Any]) -> int:
    """Count the trials that told of their failure, as those on the nodes do."""
    found = told.get("results")
    results = found.values() if isinstance(found, dict) else ()
    return sum(1 for one in results if isinstance(one, dict) and one.get("state") == "failed")


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
        chosen = {one["name"]: values[one["name"]] for one in learnt(space)}
        return complete(space, chosen, configuration)
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return {}


def most_promising(sweep: Sweep, best: int) -> list[Trial]:
    """Return the pruned trials that came farthest, of those at the same rung the best."""
    pruned = [one for one in sweep.trials if one.state == "pruned"]

    def standing(one: Trial) -> tuple[float, float, int]:
        last = max(one.rungs, default=0)
        return -last, sweep.study.loss(one.rungs.get(last, one.value)), one.number

    return sorted(pruned, key=standing)[:best]


def look_steps(study: Study) -> list[int]:
    """Return the first steps at which trials are compared, for people."""
    rule: Any = study.stop.to_dict() if study.stop else None
    return rungs_of(rule)[:4]


def best_trials(sweep: Sweep, most: int) -> list[Trial]:
    """Return the first trial of each of the best configurations."""
    found = table.configurations(sweep.study, sweep.trials)
    return [one.trials[0] for one in table.ranking(sweep.study, found)[:most]]
