"""Submits one job, or one array, in named steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray import background
from dray.clusters import registry
from dray.clusters.protocol import Cluster
from dray.description.describing import new_id
from dray.errors import ImageMissing
from dray.job.model import JobArray, JobSpec, JobState, JobView, Plan, Private, Snapshot
from dray.launcher.context import Context
from dray.launcher.intents import Intents
from dray.node.formats import faults
from dray.records import replace

if TYPE_CHECKING:
    from dray.images.verbs import ImageVerbs
    from dray.snapshot import Scanner

NOTHING_PRIVATE = Private()


class Submission:
    """``submit`` and ``resume`` take all steps: claim the id, freeze the code, plan, send; push the
    image and send again if the cluster lacks it; freeze and send again if the code has changed in
    between.

    ``project`` is the folder whose code is frozen; without one, the work is sent as it is
    described. ``given`` are files that the job begins from, sent before it."""

    def __init__(
        self,
        context: Context,
        images: Callable[[], ImageVerbs],
        cluster: Cluster,
        work: JobSpec | JobArray,
        private: Private = NOTHING_PRIVATE,
        project: Path | None = None,
        given: Snapshot | None = None,
    ) -> None:
        self.context = context
        self.cluster = cluster
        self.work = work
        self.project = project
        self.code: Snapshot | None = None
        self._images = images
        self._private = private
        self._given = given
        self._resumes = False
        self._progress = context.reporter.progress("sending code")

    @property
    def job(self) -> JobSpec:
        """The job; for an array, what its jobs share."""
        return self.work.common if isinstance(self.work, JobArray) else self.work

    @property
    def ids(self) -> list[str]:
        return self.work.ids if isinstance(self.work, JobArray) else [self.work.id]

    def _change(self, **values: Any) -> None:
        job = replace(self.job, **values)
        self.work = self.work._replace(common=job) if isinstance(self.work, JobArray) else job

    # -- all steps

    def submit(self) -> list[str]:
        """Submit the work, and return the ids of the jobs, which are queued by then."""
        with self.cluster.queue.prepared():
            self.claim()
            background.commit()
            faults.reach("run:intent-stored")
            with Intents(self.context).under_way(self.ids, self.cluster):
                self.bring()
                self.send()
        self.record()
        return self.ids

    def resume(self) -> None:
        """Start another attempt of an ended job."""
        self._resumes = True
        self.send()

    # -- the steps

    def claim(self) -> None:
        """Give the work an id that is its own, and write the intent down before acting on it."""
        letters = count(4)  # a longer one each time: a cluster may claim to have all the short ones
        while not self._add_intent():
            self._change(id=new_id(self.job.name, next(letters)))

    def _add_intent(self) -> bool:
        store, place = self.context.open_store(), self.cluster.files.path()
        if isinstance(self.work, JobArray):
            return store.add_intents(self.work, self.cluster.name, place)
        return store.add_intent(self.work, self.cluster.name, place)

    def bring(self) -> None:
        """Send the checkpoint that the job begins from."""
        if self._given is not None:
            progress = self.context.reporter.progress("sending checkpoint")
            self.cluster.files.bring(self._given, progress)

    def freeze(self, *, only_look: bool = False) -> None:
        """Read the project's code. With ``only_look``, nothing is kept."""
        if self.project is None:
            return
        reading = self.context.reporter.progress("reading code")
        self.code = self._scanner.take(remember=False) if only_look else self._scanner.take(reading)
        self._change(snapshot=self.code.id)

    @cached_property
    def _scanner(self) -> Scanner:
        assert self.project is not None
        return code_scanner(self.context, self.project, self.job.outputs)

    def plan(self) -> Plan:
        """Return what is sent, without sending it."""
        return self.cluster.plan(self.work)

    def missing_words(self) -> tuple[str, ...]:
        """Return notes on words of the command that name files which are not in the code."""
        from dray.launcher import missing

        command = self.work.command_of(0) if isinstance(self.work, JobArray) else self.job.command
        if self.code is None or not command:
            return ()
        return missing.look(replace(self.job, command=command), self.code.manifest)

    def send(self) -> None:
        """Freeze the code and send the work; repeat once if the tree changed in between."""
        if self.project is None:
            self._send_with_image()
            return
        from dray.snapshot import ChangedSince

        for last in (False, False, True):
            self.freeze()
            try:
                self._send_with_image()
            except ChangedSince:
                if last:
                    raise
                continue
            break
        assert self.code is not None
        for warning in self.code.warnings:
            self.context.reporter.say(warning)

    def _send_with_image(self) -> None:
        """Send the work. If the cluster turns out to lack the job's image, push it and send
        again."""
        for _ in range(2):  # another one may remove it, or end its job, in between
            try:
                self._send_once()
                return
            except ImageMissing:
                assert self.job.container is not None
                self._images().bring(self.job.container, self.cluster)
        self._send_once()

    def _send_once(self) -> None:
        private, code, progress = self._private, self.code, self._progress
        if self._resumes:
            self.cluster.queue.resume(self.plan(), private, code, progress)
            return
        self.context.say_once(*self.missing_words())
        self.cluster.queue.submit(self.plan(), private, code, progress)

    def record(self) -> None:
        """Save what was sent to the store."""
        store = self.context.open_store()
        if isinstance(self.work, JobArray):
            store.save_submitted(self.work)
            return
        queued = JobView(spec=self.work, cluster=self.cluster.name, state=JobState.QUEUED)
        store.save_own(queued)


def code_scanner(context: Context, project: Path, outputs: Sequence[str]) -> Scanner:
    """Return what reads the code of a job with these outputs."""
    from dray.snapshot import Scanner  # with OpenSSL's hashes: only where code is frozen

    config = context.config
    roots = registry.roots_here(config.clusters.values(), config.home.data)
    left_out = (*outputs, *config.own_folders(project, roots))
    return Scanner(project, left_out, config.home.cache, config.snapshot_max)
