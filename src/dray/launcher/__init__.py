"""The verbs: what the command line and the Python API both call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dray import background
from dray.clusters import registry
from dray.clusters.protocol import Cluster, Selection
from dray.config import loading as configuration
from dray.config.loading import Config
from dray.config.secrets import resolve as secret_values
from dray.description.describing import describe, fill_in, new_id, renewed_limits
from dray.errors import (
    ClusterError,
    DrayError,
    ImageMissing,
    NotFound,
    Refused,
    SnapshotError,
    StorageError,
    TimedOut,
    UsageError,
    from_os_error,
    nearest,
)
from dray.job.model import (
    Finding,
    JobArray,
    JobSpec,
    JobState,
    JobView,
    Plan,
    Private,
    Series,
    Snapshot,
)
from dray.job.options import env_name
from dray.job.quantities import show_duration
from dray.launcher.notifying import ASKED, QUIET, Notifier, private_settings
from dray.launcher.notifying import notes as notify_notes
from dray.launcher.tail import line_start, tail_offsets
from dray.node.formats import faults, files
from dray.node.jobs import budget
from dray.node.jobs.arrays import split
from dray.node.processes.layout import tasks_of
from dray.project import PROJECT_FILE
from dray.records import NamedTuple, asdict, replace
from dray.reporter import Reporter
from dray.store import Damaged, Last, Row, Store, rebuilding, set_aside

if TYPE_CHECKING:
    import re

    from dray.images.verbs import ImageVerbs
    from dray.launcher import log_lines
    from dray.launcher.given import Giver
    from dray.launcher.receipts import Pulled
    from dray.snapshot import Scanner

ABANDONED = 60.0  # a submission that nobody works on any more has not succeeded after so long
# A cluster cannot be asked: it does not answer, has trouble with its disk, or its root cannot be
# trusted. That is no reason to say nothing of the others.
UNAVAILABLE = (ClusterError, StorageError, Refused, OSError)
CERTAIN = (UsageError, NotFound, Refused, SnapshotError)  # nothing was submitted
DAY = 86400.0
GONE = "is gone"
LAST_WORDS = 8192  # bytes at the end of a log
ALL_OUTPUTS = Selection()
SOME = 10  # of many jobs, those that are named
UNDER_WAY = "submitting"  # the folder of locks

Act = Callable[[JobSpec, Snapshot | None], None]


class Listing(NamedTuple):
    """Jobs, newest first; and how many others there are, which are older."""

    rows: list[Row]
    hidden: int


class Sieve(NamedTuple):
    """Which jobs are listed: those in one of these states, of this project, with this text."""

    states: Sequence[str] = ()
    here: bool = False
    text: str = ""

    def passes(self, row: Row, here: set[str] | None) -> bool:
        """``here``: the ids of the project's jobs, where only those are asked for."""
        if self.states and row.state not in self.states:
            return False
        if here is not None and row.id not in here:
            return False
        words = " ".join(json.loads(row.command))
        told = "\n".join((row.id, row.name, words, row.reason))
        return self.text.casefold() in told.casefold()


class Launcher:
    def __init__(
        self, config: Config, reporter: Reporter | None = None, again: JobSpec | None = None
    ) -> None:
        """``again``: the job whose command is run where there is none."""
        self.config = config
        self.again = again
        self.reporter = reporter or Reporter()
        self._clusters: dict[str, Cluster] = {}
        self._complaints: set[str] = set()

    @cached_property
    def store(self) -> Store:
        path = self.config.home.store
        try:
            store = Store(path)
        except Damaged as error:
            return self._rebuild(path, error)
        background.at_end(store.close)
        if store.is_new:  # the first one here, or the last one was lost or moved away
            self._fill(store)
        return store

    def _fill(self, store: Store) -> None:
        """From the jobs' own directories on every cluster."""
        for name in self.config.clusters:
            try:
                store.save(self._unclaimed(store, self._jobs_on(self.cluster(name))))
            except UNAVAILABLE as error:
                self.reporter.say(
                    f"jobs on {name} are not listed: {_said(error)}. "
                    f"dray ps --on {name} --all finds them once it answers."
                )

    def _jobs_on(self, cluster: Cluster) -> list[JobView]:
        return list(cluster.status(list(cluster.ids())).values())

    def _unclaimed(self, store: Store, views: Iterable[JobView]) -> list[JobView]:
        """Those that are not known as another cluster's, with what we know of them ourselves."""
        return [seen for view in views if (seen := store.as_seen(view)) is not None]

    def _rebuild(self, path: Path, error: Damaged) -> Store:
        with rebuilding(path):
            try:
                return Store(path)  # another dray has rebuilt it meanwhile
            except Damaged:
                aside = set_aside(path)
            store = Store(path)
            self._fill(store)
        self.reporter.say(
            f"{error.message}. It was moved to {aside} and rebuilt from the jobs' own directories: "
            f"{store.count()} found."
        )
        return store

    @cached_property
    def _notifier(self) -> Notifier:
        return Notifier(self.config, self.store, self.reporter)

    @cached_property
    def images(self) -> ImageVerbs:
        from dray.images.verbs import ImageVerbs  # not for a listing

        return ImageVerbs(self.config.home.cache, self.reporter, self.submit, self._wait_on)

    def cluster(self, name: str) -> Cluster:
        if name not in self._clusters:
            chosen = self.config.cluster(name)
            home = self.config.home
            self._clusters[name] = registry.make(
                chosen.kind, name, chosen.settings, home.data, home.cache
            )
        return self._clusters[name]

    # -- submitting ---------------------------------------------------------------------------

    def plan(
        self,
        command: Sequence[str],
        *,
        snapshot: bool = True,
        start_from: str = "",
        like: str = "",
        notify: bool | None = None,
    ) -> tuple[Plan, Snapshot | None]:
        """Exactly what ``run`` would submit; touches nothing."""
        if like:
            again = self._like(like, command)
            return again.plan(command, snapshot=snapshot, start_from=start_from, notify=notify)
        cluster = self._target()
        job = self._describe(command)
        cluster.check(job)
        if start_from:
            job = self._giver().planned(job, start_from)
        frozen = self._scanner(job.outputs).take(remember=False) if snapshot else None
        notes = (*job.notes, *missing_words(job, frozen))
        job = replace(job, snapshot=frozen.id if frozen else None, notes=notes)
        plan = cluster.plan(job)
        return plan._replace(notes=plan.notes + notify_notes(self.config, notify)), frozen

    def run(
        self,
        command: Sequence[str],
        *,
        snapshot: bool = True,
        start_from: str = "",
        like: str = "",
        notify: bool | None = None,
    ) -> str:
        """Freeze the code, submit the job, return its id. Its first attempt begins from the
        checkpoint that ``start_from`` names: JOB, JOB:CHECKPOINT or a path. ``like``: a job whose
        description it takes, and its command where there is none. ``notify``: whether somebody is
        told of it; None leaves that to the settings."""
        if like:
            again = self._like(like, command)
            return again.run(command, snapshot=snapshot, start_from=start_from, notify=notify)
        cluster = self._target()
        job = self._describe(command)
        cluster.check(job)
        values = self._private(job.secrets, private_settings(self.config, cluster.name, notify))
        project = self.config.project if snapshot else None
        with self._given(job, start_from, cluster) as (job, given):
            for note in job.notes:
                self.reporter.say(note)
            job_id = self.submit(job, cluster, values, project, given)
        if notify is not None:
            self.store.note(ASKED if notify else QUIET, job_id)
        return job_id

    def _like(self, reference: str, command: Sequence[str]) -> Launcher:
        """For a job like this one, from the folder that it was submitted from. Its description is
        the one that is written down here: no cluster has a say in it."""
        from dray.description.like import config_like  # only here

        job_id, cluster = self._find(reference)
        spec = self._last_seen(job_id).spec
        if not self.store.is_own(job_id) or not spec.command:
            raise Refused(
                f"{job_id} is not known to have been submitted from here",
                hint="Describe the job yourself: dray run … -- COMMAND",
            )
        project = Path(spec.project)
        if not (project / spec.folder).is_dir():
            raise Refused(f"the folder {project / spec.folder} of {job_id} is not there any more")
        config = config_like(self.config, spec, cluster.name, anew=bool(command))
        config = config._replace(project=project, folder=spec.folder)
        if spec.origin:
            told = spec.origin.get("told", "")
            self.reporter.say(f"{job_id} began from {told}; the new one does so with --from only")
        return Launcher(config, self.reporter, spec)

    def _giver(self) -> Giver:
        from dray.launcher.given import Giver  # only for a job that begins from a checkpoint

        return Giver(self._find_here, self.reporter, self.config.home.cache)

    def _find_here(self, reference: str) -> tuple[str, Cluster]:
        job_id, cluster = self._find(reference)
        self._require_here(job_id, cluster)
        return job_id, cluster

    def _given(
        self, job: JobSpec, start_from: str, cluster: Cluster
    ) -> AbstractContextManager[tuple[JobSpec, Snapshot | None]]:
        if not start_from:
            return nullcontext((job, None))
        background.require_foreground()  # what is fetched, and told, is so once
        return self._giver().given(job, start_from, cluster)

    def submit(
        self,
        job: JobSpec,
        cluster: Cluster,
        values: Private = Private(),  # noqa: B008 - it cannot be changed
        project: Path | None = None,
        given: Snapshot | None = None,
    ) -> str:
        """``given``: files that the job begins from, brought there before it."""
        progress = self.reporter.progress("sending code")

        def submit(job: JobSpec, code: Snapshot | None) -> None:
            self._say_once(missing_words(job, code))
            cluster.submit(cluster.plan(job), values, code, progress)

        with cluster.prepared():
            job = self._register(job, cluster)
            background.go_ahead()
            faults.reach("run:intent-stored")
            with self._intended([job.id], cluster):
                if given is not None:
                    cluster.bring(given, self.reporter.progress("sending checkpoint"))
                job = self._with_code(job, project, self._with_image(cluster, submit))
        self.store.save_own(JobView(spec=job, cluster=cluster.name, state=JobState.QUEUED))
        return job.id

    def _say_once(self, notes: Sequence[str]) -> None:
        for note in notes:
            if note not in self._complaints:
                self.reporter.say(note)
            self._complaints.add(note)

    def _private(self, secrets: Sequence[str], notify: Mapping[str, Any]) -> Private:
        return Private(secret_values(secrets, configuration.environment()), notify)

    def _with_image(self, cluster: Cluster, act: Act) -> Act:
        """Bring the job's image where the cluster turns out not to have it, and act once more."""

        def act_with_image(job: JobSpec, code: Snapshot | None) -> None:
            for _ in range(2):  # another one may remove it, or end its job, in between
                try:
                    act(job, code)
                    return
                except ImageMissing:
                    assert job.container is not None
                    self.images.bring(job.container, cluster)
            act(job, code)

        return act_with_image

    def run_many(self, commands: Sequence[Sequence[str]], *, snapshot: bool = True) -> list[str]:
        """The same for many commands that share all settings; on a batch system as one array.
        Returns the jobs' ids, in order."""
        cluster = self._target()
        ids: list[str] = []
        most = cluster.array_size
        for start in range(0, len(commands), most):
            ids += self._run_array(cluster, commands[start : start + most], snapshot)
        return ids

    def _run_array(
        self, cluster: Cluster, commands: Sequence[Sequence[str]], snapshot: bool
    ) -> list[str]:
        common = self._describe(commands[0])
        cluster.check(common)
        for note in common.notes:
            self.reporter.say(note)
        notify = private_settings(self.config, cluster.name, None, len(commands))
        values = self._private(common.secrets, notify)
        filled = tuple(fill_in(command, self.config).command for command in commands)
        array = JobArray(common, filled)
        progress = self.reporter.progress("sending code")

        def submit(job: JobSpec, code: Snapshot | None) -> None:
            self._say_once(missing_words(replace(job, command=filled[0]), code))
            cluster.submit_array(array._replace(common=job), values, code, progress)

        with cluster.prepared():
            letters = count(4)
            while not self.store.add_intents(array, cluster.name, cluster.place("")):
                renamed = replace(common, id=new_id(common.name, next(letters)))
                array = array._replace(common=renamed)
            background.go_ahead()
            with self._intended(array.ids, cluster):
                project = self.config.project if snapshot else None
                act = self._with_image(cluster, submit)
                job = self._with_code(array.common, project, act)
        self.store.save_submitted(array._replace(common=job))
        return array.ids

    @contextmanager
    def _intended(self, ids: Sequence[str], cluster: Cluster) -> Iterator[None]:
        """What was written down as about to be submitted is forgotten where it was not. Until
        then a lock tells other processes that it is under way."""
        try:
            files.make_folder(str(self.config.home.data / UNDER_WAY))
            self._sweep_locks()
            with files.Lock(self._lock_of(ids[0])) as lock:
                try:
                    yield
                finally:
                    files.remove(lock.path)
        except CERTAIN:
            self.store.remove(*ids)
            raise
        except BaseException:
            self._forget_unless_submitted(ids, cluster)
            raise

    def _sweep_locks(self) -> None:
        """Those of submissions that were killed."""
        folder = self.config.home.data / UNDER_WAY
        for name in files.names_in(str(folder)):
            with suppress(OSError):
                age = time.time() - (folder / name).stat().st_mtime
                if age > ABANDONED and not files.is_locked(str(folder / name)):
                    (folder / name).unlink()

    def _lock_of(self, job_id: str) -> str:
        """Jobs of an array are submitted together."""
        place = split(job_id)
        return str(self.config.home.data / UNDER_WAY / (place[0] if place else job_id))

    def _is_abandoned(self, job_id: str, age: float) -> bool:
        return age > ABANDONED and not files.is_locked(self._lock_of(job_id))

    def _forget_unless_submitted(self, ids: Sequence[str], cluster: Cluster) -> None:
        if not cluster.may_have_got:
            self.store.remove(*ids)
            return
        try:
            self.store.remove(*(set(ids) - set(cluster.status(ids))))
        except UNAVAILABLE:
            self.reporter.say(
                f"{ids[0]} may have been submitted: dray ps tells once {cluster.name} answers"
            )

    def _target(self) -> Cluster:
        self.config.require_trust()
        return self.cluster(self.config.on)

    def _describe(self, command: Sequence[str]) -> JobSpec:
        base, filled = self._target().environment(), None
        if self.again is not None and not command:
            from dray.description.like import as_before  # only for a job like another one

            filled = as_before(self.again, self.config)
        job = describe(command, self.config, base, time.time(), filled)
        if job.container is None:
            return job
        return replace(job, container=self.images.resolve(job.container))

    def _scanner(self, outputs: tuple[str, ...], project: Path | None = None) -> Scanner:
        from dray.snapshot import Scanner  # with OpenSSL's hashes: not for a listing

        home, most = self.config.home, self.config.snapshot_max
        project = project or self.config.project
        left_out = (*outputs, *self.config.own_folders(project))
        return Scanner(project, left_out, home.cache, most)

    def _with_code(
        self,
        job: JobSpec,
        project: Path | None,
        act: Act,
    ) -> JobSpec:
        """Freeze the code and act with it; once more where the tree changed in between. The job
        as it was acted on is returned."""
        if project is None:
            act(job, None)
            return job
        from dray.snapshot import ChangedSince

        scanner = self._scanner(job.outputs, project)
        for last in (False, False, True):
            code = scanner.take(self.reporter.progress("reading code"))
            job = replace(job, snapshot=code.id)
            try:
                act(job, code)
            except ChangedSince:
                if last:
                    raise
                continue
            break
        for warning in code.warnings:
            self.reporter.say(warning)
        return job

    def _register(self, job: JobSpec, cluster: Cluster) -> JobSpec:
        """Give the job an id that is its own, and write the intent down before acting on it."""
        letters = count(4)  # a longer one each time: a cluster may claim to have all the short ones
        while not self.store.add_intent(job, cluster.name, cluster.place("")):
            job = replace(job, id=new_id(job.name, next(letters)))
        return job

    # -- looking ------------------------------------------------------------------------------

    def refresh(self, on: str | None = None) -> None:
        """Bring the store up to date: one query per cluster with active jobs. One that does not
        answer is told of; its jobs stay as they were last seen."""
        for name, last in self.store.active().items():
            if name not in self.config.clusters or on not in (None, name):
                continue
            try:
                self._refresh_on(self.cluster(name), last)
            except UNAVAILABLE as error:
                self.reporter.say(f"{_said(error)}; jobs on {name} are shown as last seen")

    def _refresh_on(self, cluster: Cluster, last: Mapping[str, Last]) -> None:
        last = self._found_there(cluster, last)
        told, waiting = cluster.glance(sorted(last, key=len))  # sweep.9 comes before sweep.10
        seen = {view.id: view for view in self._unclaimed(self.store, told.values())}
        changed = [view for view in seen.values() if self._news(view)]
        new_reasons = {
            job_id: reason
            for job_id, reason in waiting.items()
            if last[job_id] != (JobState.QUEUED, reason, 1)
        }
        if new_reasons:
            self._keep(lambda: self.store.save_waiting(new_reasons))
        for job_id in last.keys() - seen.keys() - waiting.keys():
            age = self.store.intent_age(job_id)
            if age is None:
                with suppress(NotFound):  # another dray has removed it meanwhile
                    changed.append(self._gone(job_id, cluster))
            elif self._is_abandoned(job_id, age):
                self.store.remove(job_id)
                files.remove(self._lock_of(job_id))
        if changed:
            self._keep(lambda: self._notifier.save(changed))
        self._notifier.send_left(cluster)

    def _found_there(self, cluster: Cluster, last: Mapping[str, Last]) -> Mapping[str, Last]:
        """Those that were submitted to the cluster as it is set now."""
        if self.store.active_places(cluster.name) == {cluster.place("")}:
            return last
        here = {job_id: one for job_id, one in last.items() if self._is_here(job_id, cluster)}
        if len(here) < len(last):
            self.reporter.say(
                f"{len(last) - len(here)} jobs were submitted to {cluster.name} with other "
                "settings, and are shown as last seen"
            )
        return here

    def _is_here(self, job_id: str, cluster: Cluster) -> bool:
        """The settings of another folder, or without those that are not trusted, may lead to
        another root, where nothing is known of the job."""
        known = self.store.place(job_id)
        if known:
            return known == cluster.place("")
        return not self.config.distrusts(cluster.name)

    def _require_here(self, job_id: str, cluster: Cluster) -> None:
        if not self._is_here(job_id, cluster):
            known = self.store.place(job_id)
            raise ClusterError(
                f"{job_id} was submitted to {cluster.name} with other settings"
                + (f": it is in {known}, and this leads to {cluster.place('')}" if known else ""),
                hint="Run dray in the project the job was submitted from, or restore the cluster's "
                f"host and root. If its files are there now: dray ps --on {cluster.name} --all",
            )

    def _require_all_here(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            self._require_here(*self._find(job_id))

    def _news(self, view: JobView) -> bool:
        return self.store.view(view.id) != view or self.store.intent_age(view.id) is not None

    def _gone(self, job_id: str, cluster: Cluster) -> JobView:
        reason = f"its directory on {cluster.name} {GONE}"
        view = self._last_seen(job_id)
        return replace(view, state=JobState.LOST, reason=reason, ended=time.time())

    def _last_seen(self, job_id: str) -> JobView:
        view = self.store.view(job_id)
        if view is None:
            raise NotFound(f"there is no job '{job_id}'")
        return view

    def _require_files(self, reference: str) -> JobView:
        """The job, whose directory is there."""
        view, is_there = self._look_at(reference)
        if not is_there or view.reason.endswith(GONE):
            gone = f"its directory on {view.cluster} {GONE}"
            raise NotFound(f"{view.id}: {gone}", hint=f"dray rm {view.id} forgets the job.")
        return view

    def listing(
        self,
        *,
        everything: bool = False,
        most: int = 50,
        on: str | None = None,
        sieve: Sieve | None = None,
    ) -> Listing:
        """Active jobs and those of the last day; or all. With ``on``, only that cluster's, and
        with ``everything`` also those that another machine submitted to it."""
        if on is not None and everything:
            cluster = self.cluster(on)
            found = self._jobs_on(cluster)
            self.store.move(found, cluster.place(""))
            self.store.save(self._unclaimed(self.store, found))
        elif on is not None:
            self.config.cluster(on)
        self.refresh(on)
        since = 0.0 if everything else time.time() - DAY
        most = -1 if everything else most
        if sieve is None:
            rows = self.store.listing(since, most, on)
            return Listing(rows, self.store.others(len(rows), on))
        here = self.store.ids_of_project(str(self.config.project)) if sieve.here else None
        return Listing(*self.store.fitting(since, most, on, lambda row: sieve.passes(row, here)))

    def find(self, reference: str) -> str:
        """The id that this id, or unique beginning of one, means."""
        return self._find(reference)[0]

    def latest(self) -> str:
        """The job that was submitted last, from here or as far as is known here."""
        found = self.store.latest()
        if found is None:
            raise NotFound("no job is known here", hint="Submit one: dray run -- python train.py")
        return found

    def find_all(self, references: Iterable[str]) -> list[str]:
        """The ids that these mean; an array's id means all its jobs."""
        found: dict[str, None] = {}
        for reference in references:
            found.update(dict.fromkeys(self.store.in_array(reference) or [self.find(reference)]))
        return list(found)

    def _find(self, reference: str) -> tuple[str, Cluster]:
        found = self.store.matching(reference) if reference else []
        if not found:
            known = [job_id for job_id, _ in self.store.recent_ids()]
            raise NotFound(
                f"there is no job '{reference}'.{nearest(reference, known)}",
                hint="dray ps --all lists the jobs.",
            )
        if len(found) > 1:
            raise UsageError(f"'{reference}' is not unique: {self._told(found)}")
        job_id, name = found[0]
        return job_id, self.cluster(name)

    def _told(self, found: Sequence[tuple[str, str]]) -> str:
        """Jobs to choose from, with state and age."""
        views = [self.store.view(job_id) for job_id, _ in found[:SOME]]
        now = time.time()
        told = [
            f"{one.id} ({one.state}, {show_duration(now - one.spec.created)} ago)"
            for one in views
            if one is not None
        ]
        return ", ".join(told) + (" …" if len(found) > SOME else "")

    def show(self, reference: str) -> JobView:
        return self._look_at(reference)[0]

    def _look_at(self, reference: str) -> tuple[JobView, bool]:
        """The job, and whether its cluster has it; one that was done there may have been removed
        by somebody else."""
        job_id, cluster = self._find(reference)
        self._require_here(job_id, cluster)
        told = cluster.status([job_id]).get(job_id)
        view = self.store.as_seen(told) if told is not None else None
        if view is None:
            last, age = self.store.view(job_id), self.store.intent_age(job_id)
            if last is not None and last.state in (JobState.LOST, JobState.DONE):
                return last, False
            if last is not None and age is not None and not self._is_abandoned(job_id, age):
                return replace(last, reason="being submitted"), True
            view = self._gone(job_id, cluster)
        if self._news(view):
            self._keep(lambda: self._notifier.save([view]))
        self._notifier.send_left(cluster)
        return view, told is not None

    def _keep(self, write: Callable[[], None]) -> None:
        """What was seen is shown also where there is no room to write it down."""
        try:
            write()
        except StorageError as error:
            self._complain(error.message)

    def _complain(self, message: str) -> None:
        """Say it once."""
        if message not in self._complaints:
            self.reporter.say(message)
        self._complaints.add(message)

    def active_numbers(self) -> dict[str, dict[str, int]]:
        """How many jobs are queued and running on each cluster, as last seen. No cluster is asked,
        so no store is made where there is none: that would be filled from all of them."""
        return self.store.numbers() if self.config.home.store.exists() else {}

    def reach(self, names: Sequence[str], seconds: float) -> dict[str, str]:
        """Ask these clusters side by side whether they answer: why not, or '', by name."""
        from concurrent.futures import ThreadPoolExecutor  # only here

        if not names:
            return {}
        there = [self.cluster(name) for name in names]
        with ThreadPoolExecutor(len(there)) as threads:
            return dict(zip(names, threads.map(lambda one: one.reach(seconds), there), strict=True))

    def forget(self, name: str) -> int:
        """Drop what is known of this cluster's jobs, whose files stay there; how many they are."""
        ids = self.store.ids_on(name) if self.config.home.store.exists() else []
        if ids:
            self.store.remove(*ids)
        return len(ids)

    def metrics(self, view: JobView) -> Series:
        """The curve of its main metric; asked for only where there is one."""
        if view.metric is None or view.reason.endswith(GONE):
            return Series()
        return self.cluster(view.cluster).metrics(view.id)

    def place(self, view: JobView) -> str:
        return self.cluster(view.cluster).place(view.id)

    def events(self, job_id: str) -> list[tuple[float, str]]:
        return self.store.events(job_id)

    def wait(self, reference: str, timeout: float | None = None) -> JobView:
        """Return once the job has ended."""
        until = time.monotonic() + timeout if timeout is not None else None
        pause = 0.02
        while (view := self.show(reference)).state.active:
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"{view.id} is still {view.state} after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.3, 1.0)
        return view

    def _wait_on(self, job_id: str, cluster: Cluster) -> JobView:
        """Also for a job that another machine has submitted."""
        if self.store.view(job_id) is None:
            self.store.save(self._unclaimed(self.store, cluster.status([job_id]).values()))
        return self.wait(job_id)

    def wait_all(self, ids: Sequence[str], timeout: float | None = None) -> list[JobView]:
        """Return once all have ended: one question per cluster at a time, for any number."""
        if len(ids) == 1:
            return [self.wait(ids[0], timeout)]
        self._require_all_here(ids)
        until = time.monotonic() + timeout if timeout is not None else None
        pause = 0.05
        waiting = {job_id: self._last_seen(job_id) for job_id in ids}
        ended: dict[str, JobView] = {}
        while True:
            active = self._active_among(waiting)
            for job_id in waiting.keys() - active.keys():
                ended[job_id] = self._end_of(waiting.pop(job_id))
            if not waiting:
                return [ended[job_id] for job_id in ids]
            if until is not None and time.monotonic() >= until:
                first = next(iter(waiting))
                raise TimedOut(
                    f"{len(waiting)} jobs are still active after {timeout:g} s: {first} …"
                )
            time.sleep(pause)
            pause = min(pause * 1.3, 2.0)

    def _end_of(self, view: JobView) -> JobView:
        """How a job has ended; another dray may have removed it before that was seen."""
        removed = f"it was removed meanwhile, its record {GONE}"
        lost = replace(view, state=JobState.LOST, reason=removed, ended=time.time())
        return self.store.view(view.id) or lost

    def _active_among(self, ids: Iterable[str]) -> dict[str, str]:
        """Those that had not ended when last seen, and have not yet, with their cluster. Only
        their clusters are asked: another one may not answer."""
        wanted = set(ids)
        for name, last in self.store.active().items():
            if not wanted.isdisjoint(last):
                self.refresh(name)
        return {
            job_id: name
            for name, last in self.store.active().items()
            for job_id in last
            if job_id in wanted
        }

    def logs(
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
        """Pieces of one rank's raw output with the attempt they are of, in order; only the lines in
        which ``grep`` is found, and each with a time, where that is asked for."""
        from dray.launcher import log_lines  # not for a listing

        view = self._require_files(reference)
        numbers = [one.number for one in view.attempts]
        if attempt is not None and attempt not in numbers and not follow:
            made = f"its attempts are {numbers}" if numbers else "it has made none yet"
            raise NotFound(f"{view.id} has no attempt {attempt}: {made}")
        ranks = tasks_of(view.spec.to_dict())
        if not 0 <= rank < ranks:
            raise NotFound(f"{view.id} has no rank {rank}: its last one is {ranks - 1}")
        cluster = self.cluster(view.cluster)
        counts = log_lines.search(grep) if grep is not None else None
        of = [attempt] if attempt else numbers
        offsets: dict[int, int] = {}
        if since is not None:
            offsets = self._offsets_since(view, of, since, rank)
        if tail is not None:
            last = tail_offsets(cluster, view.id, of, tail, rank, counts)
            offsets = max(offsets, last, key=lambda one: min(one.items(), default=(0, 0)))
        pieces = self._log_pieces(view.id, cluster, attempt, rank, offsets, follow)
        if counts is None and not stamps:
            return ((number, piece) for number, _, piece in pieces)
        lines = log_lines.lines_of(pieces)
        if counts is not None:
            lines = (line for line in lines if counts(line[2]))
        if stamps:
            lines = log_lines.stamped(lines, lambda number: self._log_times(view, number, rank))
        return ((number, line) for number, _, line in lines)

    def _log_times(self, view: JobView, attempt: int, rank: int) -> log_lines.Times | None:
        """When the output was how long; None where that was not written down."""
        times = self.cluster(view.cluster).log_times(view.id, attempt) if rank == 0 else []
        of = next((one for one in view.attempts if one.number == attempt), None)
        if times or of is None or of.outcome is None:
            return times
        why = "only rank 0's times are kept" if rank else "it wrote none, or an older dray made it"
        self._complain(f"when the lines of attempt {attempt} were written is not known: {why}")
        return None

    def _offsets_since(
        self, view: JobView, numbers: Sequence[int], since: float, rank: int
    ) -> dict[int, int]:
        """Where the first attempt that was not over by then begins, and how much of it to skip."""
        from dray.launcher import log_lines

        cluster = self.cluster(view.cluster)
        for one in view.attempts:
            if one.number not in numbers or (one.ended is not None and one.ended < since):
                continue
            if one.started is not None and one.started >= since:
                return {one.number: 0}
            times = self._log_times(view, one.number, rank)
            size = log_lines.size_at(times, since) if times else 0
            return {one.number: line_start(cluster, view.id, one.number, size, rank)}
        last = max(numbers, default=0)
        return {last: cluster.log_size(view.id, last, rank)} if last else {}

    def last_lines(self, view: JobView, most: int = 10) -> list[str]:
        """The end of what the last attempt wrote; nothing where that cannot be had."""
        if not view.attempts:
            return []
        cluster, attempt = self.cluster(view.cluster), view.attempts[-1].number
        try:
            begin = max(cluster.log_size(view.id, attempt) - LAST_WORDS, 0)
            text = cluster.log(view.id, attempt, begin)[-LAST_WORDS:]
        except UNAVAILABLE:
            return []
        lines = text.decode("utf-8", "replace").splitlines()
        return [line.rstrip() for line in lines if line.strip()][-most:]

    def _log_pieces(
        self,
        job_id: str,
        cluster: Cluster,
        only: int | None,
        rank: int,
        offsets: Mapping[int, int],
        follow: bool,
    ) -> Iterator[log_lines.Piece]:
        place = min(offsets, default=only or 1)
        offset = offsets.get(place, 0)
        pause = 0.05
        while True:
            view = self.show(job_id)  # before reading: what ended by now has written all it will
            while piece := cluster.log(job_id, place, offset, rank):
                pause = 0.05
                yield place, offset, piece
                offset += len(piece)
            newest = view.attempts[-1].number if view.attempts else 0
            if place < newest and only is None:
                place, offset = place + 1, 0
            elif not follow or not view.state.active or (only and place < newest):
                return
            else:
                time.sleep(pause)
                pause = min(pause * 1.3, 1.0)

    # -- changing -----------------------------------------------------------------------------

    def stop(self, reference: str, *, now: bool = False) -> JobView:
        """Ask for a checkpoint and the end, or with ``now`` for the end at once; wait for it."""
        view = self.show(reference)
        if not view.state.active:
            raise Refused(f"{view.id} is {view.state}: there is nothing to stop")
        self._ask_to_stop(view.cluster, [view.id], now)
        return self.wait(view.id)

    def stop_all(self, ids: Sequence[str], *, now: bool = False) -> list[JobView]:
        """Those of them that have not ended; one call per cluster."""
        if len(ids) == 1:
            return [self.stop(ids[0], now=now)]
        self._require_all_here(ids)
        active = self._active_among(ids)
        for name in set(active.values()):
            there = sorted((one for one in active if active[one] == name), key=len)
            self._ask_to_stop(name, there, now)
        return self.wait_all(list(active)) if active else []

    def _ask_to_stop(self, cluster: str, ids: Sequence[str], now: bool) -> None:
        self.cluster(cluster).stop(ids, now=now)
        self.store.note("stop requested", *ids)

    def resume(
        self,
        reference: str,
        *,
        update_code: bool = False,
        start_from: str = "",
        secrets: Sequence[str] = (),
        limits: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Start another attempt of an ended job from its newest valid checkpoint, or from the one
        that ``start_from`` names; "scratch" is none. ``secrets`` are given to it in addition to
        those that it was submitted with from here. ``limits`` are settings of [job.limits], by
        key, that take the place of its own."""
        self.config.require_trust()
        view = self.show(reference)
        if view.state.active:
            raise Refused(f"{view.id} is {view.state}: it goes on by itself")
        if view.state is JobState.DONE:
            raise Refused(f"{view.id} is done", hint="To run it anew, submit it with dray run.")
        cluster = self.cluster(view.cluster)
        last = view.attempts[-1].number if view.attempts else 0
        job = replace(self._ours(view, secrets), resumed_after=last, start_from=start_from)
        job = replace(job, limits=renewed_limits(job, limits, time.time()))
        require_allowance(job, view)
        project = Path(job.project) if update_code else None
        if project is not None and not project.is_dir():
            raise Refused(f"the project's folder {project} is not there any more")
        values = self._private(job.secrets, private_settings(self.config, cluster.name, None))
        progress = self.reporter.progress("sending code")

        def resume(job: JobSpec, code: Snapshot | None) -> None:
            cluster.resume(cluster.plan(job), values, code, progress)

        job = self._with_code(job, project, self._with_image(cluster, resume))
        self.store.note("resumed", view.id)
        queued = replace(view, spec=job, state=JobState.QUEUED, reason="", ended=None)
        self.store.save_own(queued)
        return view.id

    def _ours(self, view: JobView, secrets: Sequence[str]) -> JobSpec:
        """The job's description, in which no cluster has a say over what leaves this machine: of
        a job that another one has submitted, the secrets are named anew, and the code is that of
        the folder that the user stands in."""
        spec = view.spec
        for name in secrets:
            try:
                env_name(name)
            except ValueError as error:
                raise UsageError(f"--secret {name}: {error}") from error
        if not spec.command:
            raise Refused(f"{view.id} cannot be resumed: {view.reason}")
        if self.store.is_own(view.id):
            return replace(spec, secrets=tuple(dict.fromkeys([*spec.secrets, *secrets])))
        if spec.secrets and not secrets:
            flags = " ".join(f"--secret {name}" for name in spec.secrets)
            raise Refused(
                f"{view.id} is not known to have been submitted from here, and {view.cluster} says "
                f"that it needs secrets: {', '.join(spec.secrets)}",
                hint=f"Name those that it may have: dray resume {view.id} {flags}",
            )
        return replace(spec, secrets=tuple(secrets), project=str(self.config.project))

    def remove(self, reference: str) -> str:
        return self.remove_all([self.find(reference)])[0]

    def remove_all(self, ids: Sequence[str]) -> list[str]:
        """All or, where one has not ended, none. What the store knows of them is not enough:
        another machine may have resumed one."""
        places: dict[str, list[str]] = {}
        out_of_reach: list[str] = []
        for job_id in sorted(ids, key=len):
            cluster = self._find(job_id)[1]
            if self._can_only_be_forgotten(job_id, cluster):
                out_of_reach.append(job_id)
                continue
            self._require_here(job_id, cluster)
            places.setdefault(cluster.name, []).append(job_id)
        for name, there in places.items():
            views, waiting = self.cluster(name).glance(there)
            for view in views.values():
                if view.is_unreadable:
                    raise ClusterError(f"{view.id}: {view.reason}", hint="Try again later.")
            for job_id in [*waiting, *(one.id for one in views.values() if one.state.active)]:
                raise Refused(f"{job_id} has not ended", hint=f"Stop it first: dray stop {job_id}")
        for name, there in places.items():
            self.cluster(name).remove(there)
            self.store.remove(*there)
        for job_id in out_of_reach:
            self.reporter.say(
                f"{job_id} is forgotten, its files stay in {self.store.place(job_id)}"
            )
        self.store.remove(*out_of_reach)
        return list(ids)

    def _can_only_be_forgotten(self, job_id: str, cluster: Cluster) -> bool:
        """Whether its files are elsewhere, and it had ended when it was last seen: one that may
        still run is not forgotten."""
        is_elsewhere = bool(self.store.place(job_id)) and not self._is_here(job_id, cluster)
        return is_elsewhere and not self._last_seen(job_id).state.active

    def pull(
        self, reference: str, target: Path | None = None, wanted: Selection = ALL_OUTPUTS
    ) -> Pulled:
        """Bring the outputs home. Can be repeated."""
        from dray.landing import OUTPUTS_MARK, Landing, complain
        from dray.launcher.receipts import Pulled, Receipts, mark_outputs  # with OpenSSL's hashes

        view = self._require_files(reference)
        cluster, target = self.cluster(view.cluster), target or Path(view.id)
        if wanted.latest_checkpoint:
            wanted = wanted._replace(checkpoint_globs=checkpoint_globs(view.spec))
        is_new = not target.exists()
        target.mkdir(parents=True, exist_ok=True)
        receipts = Receipts(self.config.home.data, target)
        progress = self.reporter.progress("pulling")
        with Landing(target, receipts.owns) as landing:
            marked = mark_outputs(landing, view.id)
            receipts.all_is_ours = marked
            try:
                copied, count = cluster.pull(view.id, landing, progress, wanted)
            finally:  # what came before the link broke may be replaced by the next pull, too
                if not marked:
                    receipts.add(landing.placed)
                if is_new and [one.name for one in target.iterdir()] == [OUTPUTS_MARK]:
                    (target / OUTPUTS_MARK).unlink()
                    target.rmdir()
        complain(landing)
        if not count and wanted != ALL_OUTPUTS:
            raise NotFound(nothing_fits(view.id, wanted), hint=f"dray pull {view.id} brings all.")
        return Pulled(target.absolute(), copied, count, landing.size, tuple(landing.unwanted))

    def doctor(self, name: str) -> list[Finding]:
        from dray.images.findings import image_findings  # only here

        return [*self._own_findings(), *image_findings(), *self.cluster(name).doctor()]

    def _own_findings(self) -> list[Finding]:
        home = self.config.home
        project = self.config.project / PROJECT_FILE
        read = [str(path) for path in (home.config_file, project) if path.exists()]
        detail = " and ".join(read) + " read" if read else f"none ({home.config_file}, dray.toml)"
        findings = [Finding(ok=True, what="config", detail=detail)]
        try:
            count = self.store.count()
        except Exception as error:
            findings.append(Finding(ok=False, what="store", detail=str(error)))
        else:
            findings.append(Finding(ok=True, what="store", detail=f"{home.store}, {count} jobs"))
        private = not home.data.exists() or home.data.stat().st_mode & 0o077 == 0
        findings.append(
            Finding(
                ok=private,
                what="privacy",
                detail=f"{home.data} is {'private to you' if private else 'open to others'}",
                advice="" if private else f"chmod 700 {home.data}",
            )
        )
        return findings


def require_allowance(job: JobSpec, view: JobView) -> None:
    """Refuse to go on with a job that has used up what it may use as a whole."""
    spent = budget.used_up(job.to_dict(), [asdict(one) for one in view.attempts])
    if spent is not None:
        flag = "--gpu-hours" if job.limits.gpu_hours else "--total-time"
        raise Refused(
            f"{view.id} cannot go on: {spent.reason}",
            hint=f"Give it more, in all: dray resume {view.id} {flag} …",
        )


def missing_words(job: JobSpec, code: Snapshot | None) -> tuple[str, ...]:
    """Notes on words of the command that name files which are not in its code."""
    from dray.launcher import missing  # not for a listing

    return missing.look(job, code.manifest) if code is not None and job.command else ()


def checkpoint_globs(job: JobSpec) -> tuple[str, ...]:
    """What the files of a job's checkpoints are called, and their partners."""
    partner = (job.resume.partner or "").replace("{number}", "*")
    return tuple(filter(None, (job.resume.checkpoint, partner)))


def nothing_fits(job_id: str, wanted: Selection) -> str:
    globs = " or ".join(wanted.globs)
    if not wanted.latest_checkpoint:
        return f"{job_id} has no output that fits {globs}"
    no_checkpoint = f"{job_id} has no whole checkpoint (yet)"
    return f"{no_checkpoint}, and no output that fits {globs}" if globs else no_checkpoint


def _said(error: DrayError | OSError) -> str:
    return (error if isinstance(error, DrayError) else from_os_error(error)).message
