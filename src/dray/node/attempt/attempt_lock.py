"""The lock of a job on a cluster: one attempt is made at a time."""

import fcntl
import os
import time

from ..formats import files, leases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn, Optional  # noqa: F401

    from ..jobs.jobdir import JobDir

LOCK_PATIENCE = 60.0


class AttemptLock:
    """Held by the attempt that is being made, so that there is only one at a time, also when a
    requeue overtakes the attempt before it. Where other nodes do not see locks, it is a lease."""

    def __init__(self, job_dir: "JobDir") -> None:
        self.job_dir = job_dir
        self.alive = files.open_lock(job_dir.alive)
        self.lease = None  # type: Optional[leases.Lease]
        files.Lock.leased = leases.are_needed(job_dir.path)

    def take(self) -> None:
        if not self.take_unless(lambda: False, LOCK_PATIENCE):
            self._give_up()

    def take_unless(self, is_over: "Callable[[], bool]", patience: float) -> bool:
        """Wait for the lock; return False where it has to be given up first."""
        until = time.monotonic() + patience
        while not self._try():
            if time.monotonic() > until or is_over():
                return False
            time.sleep(0.2)
        if files.Lock.leased:
            self.lease = leases.Lease(self.job_dir.alive)
            if not self.lease.wait(patience + leases.AGE):
                return False
            self.lease.keep()
        return True

    def take_if_free(self) -> bool:
        """Take the lock if nobody has it; wait for nothing."""
        if not self._try():
            return False
        if not files.Lock.leased:
            return True
        lease = leases.Lease(self.job_dir.alive)
        if not lease.take():
            self._let_go()
            return False
        self.lease = lease
        lease.keep()
        return True

    def _let_go(self) -> None:
        """Give back the lock of this node alone, which another pod there may be waiting for."""
        try:
            fcntl.flock(self.alive, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno not in files.LOCKS_REFUSED:
                raise

    def _try(self) -> bool:
        try:
            return files.try_lock(self.alive)
        except OSError as error:
            if error.errno not in files.LOCKS_REFUSED:
                raise
            files.Lock.leased = True
            return True

    def _give_up(self) -> "NoReturn":
        raise SystemExit("another attempt of {} is still running".format(self.job_dir.id))

    def leave(self) -> None:
        if self.lease is not None:
            self.lease.release()
        os.close(self.alive)
