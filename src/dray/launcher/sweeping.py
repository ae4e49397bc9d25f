"""Sweeps: submits their trials as arrays, and puts together what is known of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray import checks
from dray.checks import Malformed
from dray.clusters.protocol import Cluster
from dray.errors import ClusterError, DrayError, NotFound, Refused, UsageError
from dray.job.model import JobArray
from dray.job.quantities import show_count
from dray.launcher.asking import ask_each
from dray.launcher.context import UNAVAILABLE, Context, message_of, unclaimed
from dray.launcher.intents import Intents
from dray.launcher.notifying import private_settings, private_values
from dray.launcher.running import Running
from dray.launcher.sweep_checks import (
    notes_on_metric,
    notes_on_population,
    notes_on_repeats,
    notes_on_sampler,
    number_of,
    require_enough,
    require_metric,
    require_objectives,
    require_private,
    require_python,
    require_readable,
    require_resumable,
    require_room,
    require_sound,
)
from dray.launcher.sweep_dealing import Load, arrays_of, dealt, limited, names_in
from dray.launcher.sweep_exchange import others_of
from dray.launcher.sweep_packing import packed
from dray.launcher.sweep_views import (
    ACTIVE,
    Part,
    Sweep,
    as_submitted,
    as_told,
    failures_in,
    most_promising,
    parts_of,
    trials_of,
)
from dray.node.sweeps import sampler
from dray.node.sweeps.filling import fill
from dray.node.sweeps.presence import present
from dray.node.sweeps.stopping import EVEN as PBT
from dray.records import replace
from dray.store import Row, SweepRow
from dray.sweep.space import check_template, records_of
from dray.sweep.study import Study, Trial

if TYPE_CHECKING:
    from dray.launcher.asking import Answer
    from dray.launcher.freezing import Freezer
    from dray.launcher.housekeeping import Housekeeping
    from dray.launcher.submission import Submission

MOST_UNSEEN = 1000  # trials of an array that is not known here, before it is asked for
CUT_OFF = 600.0  # seconds after which a submission that has left nothing is over


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
        per_node: int = 1,
        snapshot: bool = True,
        notify: bool | None = None,
    ) -> str:
        """Submit a sweep and return its id. Of ``study`` all but the id, the name and the time are
        used; a grid without a number of configurations has all. Where several clusters are named,
        each gets its share of the trials. With ``per_node``, so many trials have together what the
        settings ask for."""
        self.context.config.require_trust()
        loads = [self._load(name, command) for name in names_in(self.context.config.on)]
        loads = [packed(one, per_node) for one in loads]
        cluster, common = loads[0].cluster, loads[0].common
        for one in loads:
            one.cluster.check(one.common)
        check_template(common.command, study.space)
        require_sound(study)
        require_objectives(study, common.metrics.pattern)
        require_python(study, common.command)
        require_private(study, common.secrets)
        require_metric(study, common.metrics.pattern)
        for one in loads if study.stop and study.stop.rule == PBT else ():
            require_resumable(one.common)
        number = number_of(study, configurations)
        require_enough(study, number)
        loads = limited(loads, common.id, at_once)
        loads = dealt(loads, number, study.repeats)
        study = study._replace(id=common.id, name=common.name, created=common.created)
        require_readable(study)
        place = cluster.files.path()
        row = SweepRow(study.id, cluster.name, place, study.created, study.to_dict(), [])
        self.context.say_once(*(note for one in loads for note in one.common.notes))
        self.context.say_once(*notes_on_repeats(study, common.command))
        self.context.say_once(*notes_on_sampler(study))
        self.context.say_once(*notes_on_population(study, at_once))
        self.context.say_once(*notes_on_metric(study, common.metrics.pattern))
        freezer = self.running.freezer(common) if snapshot else None
        self._submit(row, loads, freezer, notify)
        return study.id

    def _load(self, name: str, command: Sequence[str]) -> Load:
        """Describe the trials as they are on one cluster."""
        config = self.context.config
        config = config._replace(job={**config.job, "job.on": name})
        running = Running(self.context.with_settings(config))
        return Load(running, running.target(), running.describe(command))

    def add(self, sweep_id: str, configurations: int) -> int:
        """Submit further configurations of a sweep, like the first ones and with their code; return
        how many trials were submitted. One that was stopped is open again."""
        self.context.config.require_trust()
        with Intents(self.context).held(f"add+{sweep_id}"):  # two would forget each other's arrays
            return self._add(sweep_id, configurations)

    def _add(self, sweep_id: str, configurations: int) -> int:
        row, sweep = self._own(sweep_id), self.look(sweep_id)
        require_answers(sweep)
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
        require_room(end + configurations * repeats)
        places = places_of(row)
        there = [one for one in sweep.parts if one.size]  # an array may have come to nothing
        row = row._replace(parts=[one.in_store(places[one.cluster]) for one in there])
        loads = dealt(self._loads_as_before(row, sweep), configurations, repeats)
        rest = -end % repeats  # of a configuration that was submitted in part
        loads[0] = loads[0]._replace(trials=loads[0].trials + rest)
        number = self._submit(row, loads)
        if sweep.is_closed:
            self.context.reporter.say(f"{row.id} was stopped, and is open again")
        return number

    def _loads_as_before(self, row: SweepRow, sweep: Sweep) -> list[Load]:
        """Describe trials like the first ones of each cluster. The cluster of the last ones comes
        first: it has the configuration that was submitted in part."""
        store, now, found = self.context.open_store(), time.time(), {}
        for part in reversed(sweep.parts):
            common = store.array_spec(part.id)
            if common is not None:
                common = replace(common, created=now)
                found[part.cluster] = (self.context.cluster(part.cluster), common)
        if not found:
            raise Refused(f"the trials of {row.id} have been removed: start another sweep")
        return [Load(self.running, cluster, common) for cluster, common in found.values()]

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
        loads: Sequence[Load],
        freezer: Freezer | None = None,
        notify: bool | None = None,
    ) -> int:
        """Submit further trials, as arrays of which each is as large as its cluster takes; return
        how many were taken, which may be fewer than all."""
        count, done = sum(one.trials for one in loads), 0
        for load, array in arrays_of(row, loads):
            running, cluster = load.running, load.cluster
            config = running.context.config
            settings = private_settings(config, cluster.name, notify, array.size)
            private = private_values(load.common.secrets, settings)
            work = running.submission(cluster, array, private, freezer=freezer)
            try:
                row = self._submit_array(row, array, work)
            except BaseException as error:
                there = len(self.context.open_store().in_array(work.job.id))
                done += there if there < array.size else 0  # all: perhaps, if nobody answers
                if not isinstance(error, DrayError) and (done or there):
                    self.context.reporter.say(left_behind(row, done, count))
                if not isinstance(error, DrayError) or not done:
                    raise
                why = f"only {done} of {count} trials were submitted: {error.message}"
                self.context.reporter.say(why)
                self.context.reporter.say(what_to_do(row, done, count))
                break
            done += array.size
        return done

    def _submit_array(self, row: SweepRow, array: JobArray, work: Submission) -> SweepRow:
        """Submit an array, and return the sweep with it. What is about to be submitted is written
        down before; where nothing came of it, that is forgotten."""
        store = self.context.open_store()
        part = {**array.part, "cluster": work.cluster.name, "place": work.cluster.files.path()}
        longer = row._replace(parts=[*row.parts, part])
        store.save_sweep(longer)
        try:
            work.submit()
        except BaseException:
            there = len(store.in_array(work.job.id))
            part.update(id=work.job.id, count=there)
            store.save_sweep(row._replace(parts=[*row.parts, part]) if there else row)
            raise
        if work.job.id != array.id:  # which was taken
            longer = row._replace(parts=[*row.parts, {**part, "id": work.job.id}])
            store.save_sweep(longer)
        return longer

    # -- looking --------------------------------------------------------------------------------

    def known(self, on: str | None = None) -> list[SweepRow]:
        """Return the sweeps that were submitted from here, the newest first; with ``on``, those
        that have trials on one of these clusters."""
        names, found = self._named(on), self.context.open_store().sweeps()
        return [one for one in found if not names or not names.isdisjoint(places_of(one))]

    def _named(self, on: str | None) -> set[str]:
        """Return the clusters that a user names, each of which has to be there."""
        return {self.context.cluster(name).name for name in (names_in(on) if on else ())}

    def sizes_of(self, sweep_id: str) -> dict[str, int]:
        """Return how many trials of a sweep have been submitted from here, by cluster."""
        row = self._own(sweep_id)
        found = dict.fromkeys(places_of(row), 0)
        for part in row.parts:
            found[part.get("cluster", row.cluster)] += part["count"]
        return found

    def at_once_of(self, sweep_id: str) -> int | None:
        """Return how many trials of a sweep run at once, on all its clusters; None: any number."""
        row = self._own(sweep_id)
        found = {part.get("cluster", row.cluster): part.get("at_once") for part in row.parts}
        return sum(one or 0 for one in found.values()) or None

    def repeats_of(self, sweep_id: str) -> int:
        """Return how many trials each configuration of a sweep has."""
        return int(self._own(sweep_id).study["repeats"])

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
        """Ask the sweep's clusters how it is, and tell each what the others know. ``on``: of a
        sweep that another machine has submitted."""
        named = self._named(on)
        row = next((one for one in self.known() if one.id == sweep_id), None)
        places = places_of(row) if row else dict.fromkeys(names_in(on) if on else (), None)
        if not named <= places.keys():
            raise UsageError(
                f"{sweep_id} is on {','.join(places)}, not on {','.join(sorted(named))}",
                hint="Leave out --on: it is known here where this sweep is.",
            )
        if not places:
            raise NotFound(
                f"there is no sweep '{sweep_id}'", hint="Another machine's: --on CLUSTER"
            )
        try:
            told, problems = self._ask(sweep_id, places)
        except NotFound:
            self._forget_cut_off(row)
            raise
        where = " and ".join(told)
        try:
            first = next((one["study"] for one in told.values() if "study" in one), None)
            study = Study.from_dict(row.study if row else checks.record(first))
            told_parts = parts_of(row, told, places)
        except Malformed as error:
            raise ClusterError(f"{sweep_id} on {where} is damaged: {error}") from error
        own = tuple(one for one in told_parts if self._is_of(sweep_id, one))
        own = tuple(self._seen(one, told) for one in own)
        rows = self._rows(own, told)
        parts = as_submitted(own, rows, told)
        trials = trials_of(study, parts, rows, told)
        closed = all(one.get("closed") is True for one in told.values())
        failures = sum(failures_in(one, name, parts) for name, one in told.items())
        sweep = Sweep(study, tuple(places), parts, trials, closed, failures, problems)
        self._exchange(sweep, told)
        return sweep

    def _ask(
        self, sweep_id: str, places: Mapping[str, str | None]
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        """Return what each cluster tells of a sweep, and why others could not be asked. One must
        answer."""
        told: dict[str, Mapping[str, Any]] = {}
        failed: dict[str, DrayError | OSError] = {}

        def ask(cluster: Cluster) -> Mapping[str, Any]:
            require_place(sweep_id, cluster, places[cluster.name])
            return cluster.files.sweep(sweep_id)

        def take(cluster: Cluster, answer: Answer[Mapping[str, Any]]) -> None:
            try:
                told[cluster.name] = answer()
            except (*UNAVAILABLE, NotFound) as error:
                failed[cluster.name] = error

        ask_each([self.context.cluster(name) for name in places], ask, take)
        if not told:
            raise min(failed.values(), key=lambda error: isinstance(error, NotFound))
        gone = [name for name, error in failed.items() if isinstance(error, NotFound)]
        told.update((name, {}) for name in gone)  # its trials there have been removed
        problems = {name: message_of(one) for name, one in failed.items() if name not in gone}
        return {name: told[name] for name in places if name in told}, problems

    def _forget_cut_off(self, row: SweepRow | None) -> None:
        """Forget a sweep that no cluster has, and no job is known of: its submission was cut off
        before it began. One that is only being submitted is newer."""
        store = self.context.open_store()
        if row is None or store.in_sweep(row.id) or time.time() - row.created < CUT_OFF:
            return
        store.save_sweep(row._replace(parts=[]))
        raise NotFound(
            f"{row.id} was never submitted, as dray was ended before; it is forgotten now",
            hint="Start it anew.",
        )

    def _is_of(self, sweep_id: str, part: Part) -> bool:
        """Return whether an array that a cluster names can be of this sweep. One that is known here
        as something else, or as another cluster's, is not: it would be stopped, resumed, or sent
        to where it does not belong."""
        store = self.context.open_store()
        spec = store.array_spec(part.id)
        if spec is not None and spec.sweep.get("id") != sweep_id:
            return False
        return all(row.cluster == part.cluster for row in store.rows_in(part.id))

    def _seen(self, part: Part, told: Mapping[str, Mapping[str, Any]]) -> Part:
        """Return a large array that only the cluster knows of without the jobs that it does not
        have: any trial could claim a million of them."""
        if part.size <= MOST_UNSEEN or part.cluster not in told:
            return part
        if self.context.open_store().array_spec(part.id) is not None:
            return part
        ends = [f"{part.id}.0", f"{part.id}.{part.size - 1}"]
        seen = self.context.cluster(part.cluster).queue.status(ends).jobs
        return part if any(one in seen for one in ends) else as_told(part, told[part.cluster])

    def _exchange(self, sweep: Sweep, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Tell each cluster how the trials on the others do, where it does not know that yet."""
        for name, one in told.items() if len(sweep.clusters) > 1 else ():
            others = others_of(name, sweep.trials)
            if not one or one.get("others") == others["mark"]:
                continue
            try:
                self.context.cluster(name).files.tell_others(sweep.study.id, others)
            except (*UNAVAILABLE, NotFound) as error:
                why = message_of(error)
                self.context.say_once(f"{name} was not told of the trials on others: {why}")

    def _rows(self, parts: Iterable[Part], told: Iterable[str]) -> dict[str, Row]:
        """Return what is known of the trials' jobs, after a look at those that have not ended, on
        the clusters that have answered."""
        store, parts = self.context.open_store(), list(parts)
        names = {
            cluster: [
                f"{one.id}.{index}"
                for one in parts
                if one.cluster == cluster
                for index in range(one.size)
            ]
            for cluster in told
        }
        self.watching.active_among([name for found in names.values() for name in found])
        rows = {row.id: row for one in parts for row in store.rows_in(one.id)}
        unknown = {
            cluster: missing
            for cluster, found in names.items()
            if (missing := [name for name in found if name not in rows])
        }
        for cluster, missing in unknown.items():  # another machine has submitted them
            seen = self.context.cluster(cluster).queue.status(missing).jobs.values()
            store.save(unclaimed(store, seen))
        if unknown:
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
        if any(one["name"] not in values for one in present(space, values)):
            raise ClusterError(
                f"the parameters of trial {trial.number} of {sweep.study.id} cannot be read: its "
                f"file on {trial.cluster} is missing or damaged",
                hint=f"dray show {trial.job} has the command that it was run with.",
            )
        return tuple(fill(spec.command, space, values, trial.number, repeat, seed))

    # -- changing -------------------------------------------------------------------------------

    def stop(self, sweep_id: str, *, now: bool = False, waiting: bool = False) -> int:
        """Let no further trial start, and stop those that run, after a checkpoint or at once; with
        ``waiting``, only those that have not begun. Returns how many were stopped."""
        sweep = self.look(sweep_id)
        for name in sweep.clusters:
            if name not in sweep.problems:
                self.context.cluster(name).files.close_sweep(sweep_id)
        states = ("queued",) if waiting else ACTIVE
        ids = [
            one.job
            for one in sweep.trials
            if one.state in states and one.cluster not in sweep.problems
        ]
        if len(ids) == 1:  # which may have ended meanwhile
            ids = list(self.watching.active_among(ids))
        number = len(self._housekeeping.stop_all(ids, now=now)) if ids else 0
        for name, why in sweep.problems.items():
            self.context.reporter.say(f"{name} was not reached, its trials go on: {why}")
        return number

    def go_on(self, sweep_id: str, best: int) -> list[str]:
        """Resume the most promising of the trials that were pruned by comparison; return their ids.
        Those that met a condition of the user's are left out: it would not be looked at again."""
        from dray.launcher.resuming import Resuming

        sweep = self.look(sweep_id)
        chosen = most_promising(sweep, best)
        left = sum(1 for one in sweep.trials if one.met_condition)
        ended = f"{show_count(left, 'trial')} that stop_if has ended"
        if not chosen:
            others = f"; {ended} cannot go on" if left else ""
            why = f"no trial of {sweep_id} was pruned by comparison"
            raise Refused(f"{why}: there is nothing to go on with{others}")
        if left:
            self.context.reporter.say(f"left out: {ended}")
        resuming = Resuming(self.context, lambda: self.running.images)
        return [resuming.resume(one.job) for one in chosen]


# -- pure -----------------------------------------------------------------------------------------


def places_of(row: SweepRow) -> dict[str, str]:
    """Return the clusters of a sweep, in the order of its trials, and where each keeps jobs."""
    found = {one.get("cluster", row.cluster): one.get("place", row.place) for one in row.parts}
    return found or {row.cluster: row.place}


def require_place(sweep_id: str, cluster: Cluster, place: str | None) -> None:
    if place is not None and place != cluster.files.path():
        raise ClusterError(
            f"{sweep_id} was submitted to {cluster.name} with other settings: it is in {place}",
            hint="Run dray in the project that it was submitted from.",
        )


def require_answers(sweep: Sweep) -> None:
    for name, why in sweep.problems.items():
        raise ClusterError(f"{name}, which has trials of {sweep.study.id}, was not reached: {why}")


def left_behind(row: SweepRow, done: int, count: int) -> str:
    """Say what there is of a sweep whose submission was cut short."""
    if not done:
        return f"{row.id} may be there: dray sweep status {row.id} tells"
    are = "is" if done == 1 else "are"
    there = f"{done} of {show_count(count, 'trial')} of {row.id} {are} submitted"
    return f"{there}: {what_to_do(row, done, count)}"


def what_to_do(row: SweepRow, done: int, count: int) -> str:
    """Say how to go on with a sweep of which only so many trials were submitted."""
    missing = max((count - done) // row.study["repeats"], 1)
    return (
        f"dray sweep add {row.id} {missing} submits the others, dray sweep stop {row.id} ends "
        "what is there"
    )
