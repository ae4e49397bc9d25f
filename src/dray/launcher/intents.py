"""Records what is about to be submitted, before it is sent, and forgets it if nothing came of
it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from dray.clusters.protocol import Cluster
from dray.errors import NotFound, Refused, SnapshotError, UsageError
from dray.launcher.context import UNAVAILABLE, Context
from dray.node.formats import files

ABANDONED = 60.0  # a submission that nobody works on any more has not succeeded after so long
CERTAIN = (UsageError, NotFound, Refused, SnapshotError)  # nothing was submitted
UNDER_WAY = "submitting"  # the folder of locks


class Intents:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.folder = context.config.home.data / UNDER_WAY

    @contextmanager
    def under_way(self, ids: Sequence[str], cluster: Cluster) -> Iterator[None]:
        """Hold a lock that tells other processes that these are being submitted; forget them if
        that fails."""
        with self.settled(ids, cluster), self.held(ids[0]):
            yield

    @contextmanager
    def held(self, job_id: str) -> Iterator[None]:
        """Hold the lock of a submission."""
        files.make_folder(str(self.folder))
        self._sweep()
        with files.Lock(self._lock_of(job_id)) as lock:
            try:
                yield
            finally:
                files.remove(lock.path)

    @contextmanager
    def settled(self, ids: Sequence[str], cluster: Cluster) -> Iterator[None]:
        """Forget what was to be submitted if that fails."""
        try:
            yield
        except CERTAIN:
            self.context.open_store().remove(*ids)
            raise
        except BaseException:
            self._forget_unless_submitted(ids, cluster)
            raise

    def is_abandoned(self, job_id: str) -> bool:
        """Return whether it was about to be submitted, and no process works on that any more."""
        age = self.context.open_store().intent_age(job_id)
        return age is not None and age > ABANDONED and not files.is_locked(self._lock_of(job_id))

    def forget(self, job_id: str) -> None:
        self.context.open_store().remove(job_id)
        files.remove(self._lock_of(job_id))

    def _sweep(self) -> None:
        """Remove the locks of submissions that were killed."""
        for name in files.names_in(str(self.folder)):
            with suppress(OSError):
                age = time.time() - (self.folder / name).stat().st_mtime
                if age > ABANDONED and not files.is_locked(str(self.folder / name)):
                    (self.folder / name).unlink()

    def _lock_of(self, job_id: str) -> str:
        """Return the path of the submission's lock; the jobs of an array, which are submitted
        together, share one."""
        from dray.node.jobs.arrays import split  # not for a listing

        place = split(job_id)
        return str(self.folder / (place[0] if place else job_id))

    def _forget_unless_submitted(self, ids: Sequence[str], cluster: Cluster) -> None:
        store = self.context.open_store()
        if not cluster.queue.may_have_got:
            store.remove(*ids)
            return
        try:
            store.remove(*(set(ids) - set(cluster.queue.status(ids).jobs)))
        except UNAVAILABLE:
            self.context.reporter.say(
                f"{ids[0]} may have been submitted: dray ps tells once {cluster.name} answers"
            )
