"""Submits one job, or one array, in named steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from dray import background
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
    from dray.launcher.freezing import Freezer

NOTHING_PRIVATE = Private()


class Submission:
    """``submit`` and ``resume`` take all steps: claim the id, freeze the code, plan, send; push the
    image and send again if the cluster lacks it; freeze and send again if the code has changed in
    between.

    ``freezer`` freezes the code; without one, the work is sent as it is described. ``given`` are
    files that the job begins from, or reads, sent before it."""

    def __init__(
        self,
        context: Context,
        images: Callable[[], ImageVerbs],
        cluster: Cluster,
        work: JobSpec | JobArray,
        private: Private = NOTHING_PRIVATE,
        freezer: Freezer | None = None,
        given: Sequence[Snapshot] = (),
    ) -> None:
        self.context = context
        self.cluster = cluster
        self.work = work
        self.freezer = freezer
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
                self.hand_over()
        self.record()
        return self.ids

    def hand_over(self) -> None:
        """Send the work with all that it needs; its id is claimed."""
        self.bring()
        self.send()

    def resume(self) -> None:
        """Start another attempt of an ended job."""
        self._resumes = True
        self.send()

    # -- the steps

    def claim(self) -> None:
        """Give the work an id that is its own, and write the intent down before acting on it."""
        letters = count(4)  # a longer one each time: a cluster may claim to have all the short ones
        while not self.add_intent():
            self._change(id=new_id(self.job.name, next(letters)))

    def add_intent(self, *, goes_on: bool = False) -> bool:
        """Write down that the work is about to be sent; return False where its id is taken.
        ``goes_on``: some jobs of the array may have been sent before."""
        store, place = self.context.open_store(), self.cluster.files.path()
        if isinstance(self.work, JobArray):
            return store.add_intents(self.work, self.cluster.name, place, goes_on=goes_on)
        return store.add_intent(self.work, self.cluster.name, place)

    def bring(self) -> None:
        """Send the checkpoint that the job begins from, and inputs from elsewhere."""
        for one in self._given:
            progress = self.context.reporter.progress("sending files")
            self.cluster.files.bring(one, progress)

    def freeze(self, *, only_look: bool = False) -> None:
        """Read the project's code. With ``only_look``, nothing is kept."""
        if self.freezer is None:
            return
        self.code = self.freezer.take(only_look=only_look)
        self._change(snapshot=self.code.id)

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
        if self.freezer is None:
            self._send_with_image()
            return
        from dray.snapshot import ChangedSince

        for last in (False, False, True):
            self.freeze()
            if isinstance(self.work, JobArray):  # before: if this is cut off, some jobs are there
                self.context.open_store().save_array(self.work)
            try:
                self._send_with_image()
            except ChangedSince:
                if last:
                    raise
                self.freezer.thaw()
                continue
            break
        assert self.code is not None
        self.context.say_once(*self.code.warnings)

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
