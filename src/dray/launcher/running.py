"""Starts jobs: turns a command and the settings into what is submitted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from dray import background
from dray.clusters.protocol import Cluster
from dray.description.describing import describe, fill_in
from dray.errors import Refused, UsageError
from dray.job.model import JobArray, JobSpec, Plan, Private, Snapshot
from dray.launcher.context import Context
from dray.launcher.notifying import ASKED, QUIET, private_settings, private_values
from dray.launcher.notifying import notes as notify_notes
from dray.launcher.submission import NOTHING_PRIVATE, Submission
from dray.launcher.watching import Watching
from dray.node.sessions.commands import is_session
from dray.records import replace

if TYPE_CHECKING:
    from dray.images.verbs import ImageVerbs
    from dray.launcher.freezing import Freezer
    from dray.launcher.given import GivenCheckpoints
    from dray.launcher.pipelines import Before, Pipelines


class How(TypedDict, total=False):
    """How a command is started, apart from its settings."""

    snapshot: bool  # with the project's code
    start_from: str  # JOB, JOB:CHECKPOINT or a path: the checkpoint that the first attempt has
    like: str  # a job whose description it takes, and its command where there is none
    notify: bool | None  # whether somebody is told of it; None leaves that to the settings
    before: Before | None  # the jobs that it comes after, and whose outputs it reads


class Running:
    """``again`` is the job whose command is run where none is given."""

    def __init__(self, context: Context, again: JobSpec | None = None) -> None:
        self.context = context
        self.again = again
        self.watching = Watching(context)
        self.jobs = self.watching.jobs

    @cached_property
    def images(self) -> ImageVerbs:
        from dray.images.verbs import ImageVerbs  # only for jobs with an image

        home, reporter = self.context.config.home, self.context.reporter
        return ImageVerbs(home.cache, reporter, self.submit, self.watching.wait_on)

    def plan(
        self,
        command: Sequence[str],
        *,
        snapshot: bool = True,
        start_from: str = "",
        like: str = "",
        notify: bool | None = None,
        before: Before | None = None,
    ) -> tuple[Plan, Snapshot | None]:
        """Return exactly what ``run`` would submit, without submitting it."""
        if like:
            again = self._like(like, command)
            return again.plan(
                command, snapshot=snapshot, start_from=start_from, notify=notify, before=before
            )
        cluster = self.target()
        job = self.describe(command)
        cluster.check(job)
        if start_from:
            job = self._given_checkpoints().planned(job, start_from)
        if before is not None:
            job = self._pipelines().planned(job, before, cluster)
        submission = self.submission(cluster, job, snapshot=snapshot)
        submission.freeze(only_look=True)
        notes = (*job.notes, *submission.missing_words())
        submission.work = replace(submission.job, notes=notes)
        plan = submission.plan()
        noted = plan.notes + notify_notes(self.context.config, notify)
        return plan._replace(notes=noted), submission.code

    def run(
        self,
        command: Sequence[str],
        *,
        snapshot: bool = True,
        start_from: str = "",
        like: str = "",
        notify: bool | None = None,
        before: Before | None = None,
    ) -> str:
        """Freeze the code, submit the job, return its id."""
        if like:
            again = self._like(like, command)
            return again.run(
                command, snapshot=snapshot, start_from=start_from, notify=notify, before=before
            )
        cluster = self.target()
        job = self.describe(command)
        cluster.check(job)
        settings = private_settings(self.context.config, cluster.name, notify)
        private = private_values(job.secrets, settings)
        with ExitStack() as stack:
            job, given = stack.enter_context(self._given(job, start_from, cluster))
            if before is not None:
                job, inputs = stack.enter_context(self._bound(job, before, cluster))
                given = (*given, *inputs)
            self.tell(job)
            work = self.submission(cluster, job, private, snapshot=snapshot, given=given)
            (job_id,) = work.submit()
        if notify is not None:
            self.context.open_store().add_event(ASKED if notify else QUIET, job_id)
        return job_id

    def plan_many(self, commands: Sequence[Sequence[str]], *, snapshot: bool = True) -> list[Plan]:
        """Return exactly what ``run_many`` would submit, without submitting it."""
        plans = []
        for array in self._arrays(commands):
            submission = self.submission(self.target(), array, snapshot=snapshot)
            submission.freeze(only_look=True)
            plans.append(submission.plan())
        return plans

    def run_many(self, commands: Sequence[Sequence[str]], *, snapshot: bool = True) -> list[str]:
        """Submit many commands that share all settings; on a batch system as one array. Returns the
        jobs' ids, in order."""
        cluster = self.target()
        ids: list[str] = []
        for array in self._arrays(commands):
            self.tell(array.common)
            number = array.size
            settings = private_settings(self.context.config, cluster.name, None, number)
            private = private_values(array.common.secrets, settings)
            ids += self.submission(cluster, array, private, snapshot=snapshot).submit()
        return ids

    def submit(self, job: JobSpec, cluster: Cluster) -> str:
        """Submit a job of dray's own, without code."""
        return Submission(self.context, lambda: self.images, cluster, job).submit()[0]

    def submission(
        self,
        cluster: Cluster,
        work: JobSpec | JobArray,
        private: Private = NOTHING_PRIVATE,
        *,
        snapshot: bool = False,
        given: Sequence[Snapshot] = (),
        freezer: Freezer | None = None,
    ) -> Submission:
        freezer = self.freezer(work) if snapshot else freezer
        return Submission(self.context, lambda: self.images, cluster, work, private, freezer, given)

    def freezer(self, work: JobSpec | JobArray) -> Freezer:
        from dray.launcher.freezing import Freezer  # only where code is frozen

        job = work.common if isinstance(work, JobArray) else work
        return Freezer(self.context, self.context.config.project, job.outputs)

    def tell(self, job: JobSpec) -> None:
        for note in job.notes:
            self.context.reporter.say(note)

    def target(self) -> Cluster:
        self.context.config.require_trust()
        return self.context.cluster(self.context.config.on)

    def describe(self, command: Sequence[str], now: float | None = None) -> JobSpec:
        """Make a job of a command and the settings, as of ``now``."""
        config = self.context.config
        base, filled = self.target().environment(), None
        if self.again is not None and not command:
            from dray.description.like import as_before  # only for a job like another one

            filled = as_before(self.again, config)
        job = describe(command, config, base, time.time() if now is None else now, filled)
        can = self.target().capabilities
        if job.container is None or can.registry_images or not can.own_images:
            return job
        return replace(job, container=self.images.resolve(job.container))

    def _arrays(self, commands: Sequence[Sequence[str]]) -> Iterator[JobArray]:
        """Divide many commands into arrays, each as large as the cluster accepts."""
        cluster, config = self.target(), self.context.config
        most = cluster.queue.array_size
        for start in range(0, len(commands), most):
            some = commands[start : start + most]
            common = self.describe(some[0])
            cluster.check(common)
            yield JobArray(common, tuple(fill_in(one, config).command for one in some))

    def _like(self, reference: str, command: Sequence[str]) -> Running:
        """Return what starts a job like this one, from the folder that it was submitted from. Its
        description is the one that is stored here: no cluster has a say in it."""
        from dray.description.like import config_like  # only here

        job_id, cluster = self.jobs.find(reference)
        spec = self.jobs.last_seen(job_id).spec
        if not self.context.open_store().is_own(job_id) or not spec.command:
            raise Refused(
                f"{job_id} is not known to have been submitted from here",
                hint="Describe the job yourself: dray run … -- COMMAND",
            )
        if is_session(spec.command) and not command:
            raise UsageError(
                f"{job_id} is a session: which command is to run with its settings?",
                hint=f"Write it behind --: dray run --like {job_id} -- COMMAND",
            )
        if spec.sweep and spec.sweep.get("values") is None:
            raise Refused(f"{job_id} is a trial that has no parameters yet")
        project = Path(spec.project)
        if not (project / spec.folder).is_dir():
            raise Refused(f"the folder {project / spec.folder} of {job_id} is not there any more")
        config = config_like(self.context.config, spec, cluster.name, anew=bool(command))
        config = config._replace(project=project, folder=spec.folder)
        if spec.origin:
            told = spec.origin.get("told", "")
            self.context.reporter.say(
                f"{job_id} began from {told}; the new one does so with --from only"
            )
        return Running(self.context.for_config(config), spec)

    def _given_checkpoints(self) -> GivenCheckpoints:
        from dray.launcher.given import GivenCheckpoints  # only for a job that has one

        home = self.context.config.home
        return GivenCheckpoints(self.jobs.find_here, self.context.reporter, home.cache)

    def _given(
        self, job: JobSpec, start_from: str, cluster: Cluster
    ) -> AbstractContextManager[tuple[JobSpec, Sequence[Snapshot]]]:
        if not start_from:
            return nullcontext((job, ()))
        background.require_foreground()  # what is fetched, and told, is so once
        return self._given_checkpoints().given(job, start_from, cluster)

    def _pipelines(self) -> Pipelines:
        from dray.launcher.pipelines import Pipelines  # only for a job that comes after others

        return Pipelines(self.context)

    def _bound(
        self, job: JobSpec, before: Before, cluster: Cluster
    ) -> AbstractContextManager[tuple[JobSpec, Sequence[Snapshot]]]:
        if before.inputs:
            background.require_foreground()  # what is fetched is so once
        return self._pipelines().bound(job, before, cluster)
