"""Runs on the compute node, inside a batch job.

The batch job is the job itself: it makes one attempt, and when another one is due it asks the
scheduler to requeue it, or, where that is not allowed, submits its own successor."""

from ..code import worktree
from ..containers.images import Images
from ..formats import files, locales
from ..formats.messages import print_message
from ..jobs import budget, policy, trouble
from ..jobs.arrays import ArrayDir, is_array
from ..jobs.jobdir import JobDir, described
from ..processes import layout
from ..schedulers import scheduler
from ..schedulers.scheduler import Scheduler, SchedulerError
from .allotment import Allotment
from .attempt_lock import AttemptLock
from .loop import ELSEWHERE, AttemptLoop, Site, supervise
from .succession import Succession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional  # noqa: F401

    from ..formats.records import Description, Row
    from ..jobs.following import Following
    from ..jobs.jobdir import AttemptDir

SETTLING = 3.0  # seconds at the end of an allocation that are left to the scheduler, at most
SOME = 3  # of many jobs, those that are named
HURRY = 5.0  # seconds for which a running attempt waits for an answer


def attempt(path: str) -> int:
    """Make an attempt; return the batch job's exit code. ``path`` is the directory of a job or of
    an array."""
    given = JobDir(path)
    job = trouble.with_retries(lambda: described(given))
    batch = scheduler.of_kind(job["scheduler"]["kind"])
    job_dir = given
    if is_array(job):
        array = ArrayDir(given.root, given.id)
        job_dir = array.job_dir(batch.own_index())
    allocation = Allocation(job_dir, job, batch)
    try:
        if is_array(job):
            trouble.with_retries(lambda: array.make_job(batch.own_index()))
            allocation = Allocation(job_dir, described(job_dir), batch)
        return run_alone(allocation)
    except Exception as error:
        if not allocation.loop.is_due or not trouble.is_of_node(error):
            raise
        return allocation.defer(error)


def run_alone(allocation: "Allocation") -> int:
    job_dir = allocation.job_dir
    attempt_lock = trouble.with_retries(lambda: AttemptLock(job_dir))
    trouble.with_retries(attempt_lock.take)
    # Also where the submitting agent was killed before it could.
    job_dir.remember_number(allocation.number)
    try:
        return allocation.run()
    finally:
        attempt_lock.leave()


class Allocation(Site):
    """``succession`` queues the next batch job, where that is not for this job alone."""

    def __init__(
        self,
        job_dir: JobDir,
        job: "Description",
        batch: Scheduler,
        succession: "Optional[Succession]" = None,
    ) -> None:
        self.job_dir = job_dir
        self.job = job
        self.scheduler = batch
        self.number = batch.own_number()
        self.name = batch.name
        self.lost = "ended by {} or with its node".format(batch.name)
        self.limit = TimeLimit(batch, self.number)
        self.has_asked = False  # what is queued
        self.queued = None  # type: Optional[Dict[str, Row]]
        self.succession = succession or Succession([job_dir], job, batch, self.number)
        self.is_signalled = False  # whether the scheduler is about to end the batch job
        self.loop = AttemptLoop(job_dir, job, self)

    def run(self) -> int:
        """Make an attempt, and return the batch job's exit code."""
        if self.job_dir.ended() is not None:
            return 0  # ended before, and requeued by somebody else
        try:
            end = self.loop.run()
        except SchedulerError as error:
            reason = "its next attempt could not be queued: {}".format(error)
            end = policy.Decision("failed", reason)
        if end is None:
            return 0
        self.loop.end(end)
        return self._exit_code(end)

    def defer(self, error: Exception) -> int:
        """Leave the attempt to a later batch job. Not even its beginning could be written down, so
        these are not counted: the pause is the longest."""
        print_message("its node could not begin the attempt: {}".format(error))
        later = policy.Decision(delay=policy.LONGEST_PAUSE)
        return 0 if self.arrange_next(later) == ELSEWHERE else 1

    def is_cared_for(self, job_id: str) -> bool:
        return self._queue() is None or job_id in (self._queue() or {})

    def _queue(self) -> "Optional[Dict[str, Row]]":
        """Return the queue as it was when it was first needed; None if it is not known."""
        if not self.has_asked:
            self.has_asked = True
            try:
                self.queued = self.scheduler.queue()
            except SchedulerError as error:
                print_message("what is queued is unknown: {}".format(error))
        return self.queued

    def wait_for_others(self, others: "Following") -> bool:
        """Leave the waiting to the scheduler: a job before this one has gone on as another batch
        job than the one that this one was queued behind."""
        if not others.has_to_wait():
            return True
        rows = self._queue() or {}
        numbers = [self.scheduler.number_of(rows[one], one) for one in others.left if one in rows]
        print_message("it still comes after {}".format(", ".join(list(others.left)[:SOME])))
        after = self.scheduler.awaiting([self.number] + numbers)
        successor = self.succession.submit_successor(after=after)
        if not numbers:
            self.succession.postpone(successor, policy.LONGEST_PAUSE)
        return False

    def wait_for_turn(self, decision: policy.Decision) -> bool:  # noqa: ARG002
        """Return whether the attempt can begin: the scheduler has done the waiting. Only the image
        may be missing, as the job that converts it may have been interrupted, and go on as another
        batch job than the one that this one was queued behind."""
        container = self.job.get("container")
        image = container.get("image", "") if container else ""
        images = Images(self.job_dir.root)
        if not images.lacks(image):
            return True
        try:
            maker = images.maker(image, self.scheduler.queue)
        except SchedulerError as error:
            print_message("whether the image is being made is unknown: {}".format(error))
            return True
        if maker is None:
            return True
        print_message("the image is still being made ready by {}".format(maker.job))
        self.succession.submit_successor(after=maker.number)
        return False

    def command_environment(self) -> "Dict[str, str]":
        return locales.original_environment()

    def supervise(self, attempt: "AttemptDir") -> None:
        self.job_dir.work = worktree.place_of(self.job_dir, attempt.number)
        allowance = budget.left(self.job, self.job_dir.records())
        env = self.command_environment()
        seconds = self.limit.seconds(self.job["resources"]["time"])
        allotment = Allotment(None, env, seconds, self.limit.time_left, allowance)
        if layout.is_spread(self.job):
            allotment.launcher = self.scheduler.launcher(self.job)
            allotment.batch_id = self.number
        allotment.is_gone = self.is_gone
        self.is_signalled = supervise(self.job_dir, self.job, attempt, allotment)

    def is_gone(self) -> bool:
        """Return whether the process that cares for the batch job is gone: not where that is this
        one."""
        return False

    def arrange_next(self, decision: policy.Decision) -> str:
        return self.succession.arrange_next(decision)

    def after_end(self) -> None:
        files.discard(self.job_dir.alive)  # one file less on a file system that counts them

    def _exit_code(self, end: policy.Decision) -> int:
        """Return an exit code that makes the scheduler's own records tell the truth too."""
        if end.state == "done":
            return 0
        records = self.job_dir.records()
        code = records[-1].get("exit_code") if records else None
        return int(code) if code else 1


class TimeLimit:
    """How long the batch job lasts, by the scheduler's clock."""

    def __init__(self, batch: Scheduler, number: str) -> None:
        self.scheduler = batch
        self.number = number
        self.reserve = SETTLING  # what the attempt does not use of the scheduler's time

    def seconds(self, asked: "Optional[float]") -> "Optional[float]":
        """Return how long the attempt may last: the time asked for, or less if the scheduler's
        clock leaves less (Slurm counts in whole minutes)."""
        try:
            left = self.scheduler.time_left(self.number)
        except SchedulerError as error:
            print_message("time left unknown: {}".format(error))
            return float(asked) if asked else None
        limits = [float(asked)] if asked else []
        if left is not None:
            limits.append(left - min(SETTLING, left / 40))
            self.reserve = left - min(limits)
        return min(limits) if limits else None

    def time_left(self) -> "Optional[float]":
        """Ask the scheduler again: somebody may have changed the limit."""
        try:
            left = self.scheduler.time_left(self.number, patience=HURRY)
        except SchedulerError:
            return None
        return None if left is None else left - self.reserve
