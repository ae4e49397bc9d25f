"""Makes the attempts of one of several jobs that share a batch job (``dray sweep --per-node``).

It is a process of its own, started by the one that the batch job is: see ``task``. A crash is
followed by the next attempt right here, beside the others, which go on; after an interruption, the
next one is made in the batch job that the task then queues for all of them."""

import os
import signal
import time

from ..formats.messages import print_message
from ..jobs import policy, trouble
from ..jobs.jobdir import JobDir, described
from ..processes import process
from ..schedulers import scheduler
from .allocation import Allocation, run_alone
from .command import HANDLED_SIGNALS
from .end_requests import KILLED
from .loop import ELSEWHERE, HERE, Site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..formats.records import Description
    from ..jobs.following import Following
    from ..schedulers.scheduler import Scheduler

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK = 1.0  # seconds between two looks for a request to stop
DEFERRED = 75  # exit code: the node could not even begin the attempt


def run(path: str, cpus: "Sequence[int]", task: int) -> int:
    """Make the attempts of the job in this directory, on these CPUs if any are named. Return
    DEFERRED where another batch job is to try; its files tell all else. ``task`` is the process
    that has started this one."""
    # The task blocks signals before it starts us: none is lost, whenever it comes.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    process.end_with_parent(signal.SIGTERM)
    keep_to(cpus)
    job_dir = JobDir(path)
    job = trouble.with_retries(lambda: described(job_dir))
    member = Member(job_dir, job, scheduler.of_kind(job["scheduler"]["kind"]), task)
    try:
        return run_alone(member)
    except Exception as error:
        if not member.loop.is_due or not trouble.is_of_node(error):
            raise
        print_message("{}: its node could not begin the attempt: {}".format(job_dir.id, error))
        return DEFERRED


def keep_to(cpus: "Sequence[int]") -> None:
    """Run on these CPUs alone, with all that is started from here."""
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
    except OSError as error:
        print_message("the CPUs could not be divided: {}".format(error))


class Member(Allocation):
    def __init__(self, job_dir: JobDir, job: "Description", batch: "Scheduler", task: int) -> None:
        Allocation.__init__(self, job_dir, job, batch)
        self.task = task

    def run(self) -> int:
        """Make attempts, and write the job's end down if it has come to one."""
        if self.job_dir.ended() is not None:
            return 0
        # None: it goes on in another batch job, or was stopped in a pause.
        decision = self.loop.run() or self.loop.decide()
        if decision.again and self.is_gone():
            decision = policy.Decision("lost", KILLED)  # nobody is left to queue another
        if not decision.again:
            self.loop.end(decision)
        return 0

    def is_gone(self) -> bool:
        return os.getppid() != self.task

    def end_leftovers(self) -> None:
        """Kill what is left of an attempt in an earlier batch job: the task has killed what a
        supervisor before this one has left."""
        process.send(process.marked_with(self.job_dir.id), signal.SIGKILL)

    def wait_for_others(self, others: "Following") -> bool:
        """Find out how those before it have ended: the task has waited for them."""
        return Site.wait_for_others(self, others)

    def wait_for_turn(self, decision: policy.Decision) -> bool:
        """Pause before the next attempt; return False where the batch job is about to end, or the
        job is stopped."""
        until = time.monotonic() + decision.delay
        while self.job_dir.stop_request() is None and not self._is_ending():
            left = until - time.monotonic()
            if left <= 0:
                return True
            if signal.sigtimedwait(ENDING, min(left, LOOK)) is not None:
                self.is_signalled = True
        return False

    def arrange_next(self, decision: policy.Decision) -> str:  # noqa: ARG002
        """Leave to the task what an interruption has ended; begin anew here after a crash."""
        records = self.job_dir.records()
        was_interrupted = bool(records) and records[-1]["outcome"] == "interrupted"
        return ELSEWHERE if was_interrupted or self._is_ending() else HERE

    def _is_ending(self) -> bool:
        """Return whether the scheduler is about to end the batch job. A task that was gone before
        the kernel could be asked to tell us sends no signal."""
        while signal.sigtimedwait(ENDING, 0) is not None:
            self.is_signalled = True
        return self.is_signalled or self.is_gone()
