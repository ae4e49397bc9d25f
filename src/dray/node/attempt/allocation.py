"""What a batch job runs on the compute node.

The batch job is the job itself: it makes one attempt, and when another one is due it asks the
scheduler to requeue it, or, where that is not allowed, submits its own successor.
"""

import os
import time
import traceback

from ..code import worktree
from ..containers.images import Images
from ..formats import files, leases, locales
from ..formats.notes import note
from ..jobs import budget, policy, trouble
from ..jobs.arrays import ArrayDir
from ..jobs.jobdir import JobDir, decide, described, too_late
from ..notifications import notices
from ..processes import layout
from ..schedulers import scheduler
from ..schedulers.scheduler import Scheduler, SchedulerError
from .outcomes import begin_attempt, end_job, record_lost, record_own_failure
from .supervisor import Place, Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, NoReturn, Optional

    Record = Dict[str, Any]

SETTLING = 3.0  # seconds at the end of an allocation that are left to the scheduler, at most
LOCK_PATIENCE = 60.0
HURRY = 5.0  # seconds for which a running attempt waits for an answer
LONGEST_PAUSE = 30.0  # between two tries to queue the next attempt
OUTAGE = 600.0  # seconds for which a controller may be away


def attempt(path: str) -> int:
    """Its exit code is the batch job's. ``path`` is a job's directory, or an array's."""
    given = JobDir(path)
    job = trouble.stubbornly(lambda: described(given))
    batch = scheduler.of_kind(job["scheduler"]["kind"])
    job_dir = given
    if "commands" in job:
        array = ArrayDir(given.root, given.id)
        job_dir = array.job_dir(batch.own_index())
    allocation = Allocation(job_dir, job, batch)
    try:
        if "commands" in job:
            trouble.stubbornly(lambda: array.make_job(batch.own_index()))
            allocation.job = described(job_dir)
        return run_alone(allocation)
    except Exception as error:
        if not allocation.is_due or not trouble.is_of_node(error):
            raise
        return allocation.put_off(error)


def run_alone(allocation: "Allocation") -> int:
    job_dir = allocation.job_dir
    charge = trouble.stubbornly(lambda: Charge(job_dir))
    trouble.stubbornly(charge.take)
    # Also where the submitting agent was killed before it could.
    job_dir.remember_number(allocation.number)
    try:
        return allocation.run()
    finally:
        charge.leave()


class Charge:
    """Held by the one attempt that is made at a time, also when a requeue overtakes the attempt
    before it. Where other nodes do not see locks, that takes a lease."""

    def __init__(self, job_dir: JobDir) -> None:
        self.job_dir = job_dir
        self.alive = files.open_lock(job_dir.alive)
        self.lease = None  # type: Optional[leases.Lease]
        files.Lock.leased = leases.are_needed(job_dir.path)

    def take(self) -> None:
        until = time.monotonic() + LOCK_PATIENCE
        while not self._try():
            if time.monotonic() > until:
                self._give_up()
            time.sleep(0.2)
        if files.Lock.leased:
            self.lease = leases.Lease(self.job_dir.alive)
            if not self.lease.wait(LOCK_PATIENCE + leases.AGE):
                self._give_up()
            self.lease.keep()

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


class Patience:
    """How long something is tried again, after growing pauses."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.next = 1.0

    def pause(self, error: Exception) -> None:
        """Raises the error once there is no time left."""
        if time.monotonic() + self.next > self.until:
            raise error
        time.sleep(self.next)
        self.next = min(self.next * 2, LONGEST_PAUSE)


class Allocation:
    def __init__(self, job_dir: JobDir, job: "Record", batch: Scheduler) -> None:
        self.job_dir = job_dir
        self.job = job
        self.scheduler = batch
        self.number = batch.own_number()
        self.reserve = SETTLING  # what the attempt does not use of the scheduler's time
        self.is_due = True  # whether an attempt is to be made, and could not begin so far

    def run(self) -> int:
        if self.job_dir.ended() is not None:
            return 0  # ended before, and requeued by somebody else
        self._account_for_lost_attempt()
        try:
            end = self._run()
        except SchedulerError as error:
            reason = "its next attempt could not be queued: {}".format(error)
            end = policy.Decision("failed", reason)
        if end is None:
            return 0
        end_job(self.job_dir, end)
        files.discard(self.job_dir.alive)  # one file less on a file system that counts them
        notices.at_end(self.job_dir)
        return self._exit_code(end)

    def _run(self) -> "Optional[policy.Decision]":
        """The attempt, if one is to be made, and the job's end; None where it goes on."""
        decision = self._decide()
        self.is_due = decision.again
        if decision.again:
            if self._waits_for_image():
                return None
            self._one_attempt()
            decision = self._decide()
        if not decision.again:
            return decision
        if self._go_on(decision):
            return None
        return policy.Decision("stopped", "cancelled in " + self.scheduler.name)

    def put_off(self, error: Exception) -> int:
        """Leave the attempt to a later batch job. It could not even be written down that one was
        to begin, so nobody counts these: the pause is the longest."""
        note("its node could not begin the attempt: {}".format(error))
        return 0 if self._go_on(policy.Decision(delay=policy.LONGEST_PAUSE)) else 1

    def _waits_for_image(self) -> bool:
        """The job that makes it may have been interrupted, and go on as another batch job than
        the one that this one was queued behind."""
        image = (self.job.get("container") or {}).get("image", "")
        images = Images(self.job_dir.root)
        if not images.lacks(image):
            return False
        try:
            maker = images.maker(image, self.scheduler.queue)
        except SchedulerError as error:
            note("whether the image is being made is unknown: {}".format(error))
            return False
        if maker is None:
            return False
        note("the image is still being made ready by {}".format(maker.job))
        self._succeed(after=maker.number)
        return True

    def _decide(self) -> policy.Decision:
        records = self.job_dir.records()
        decision = too_late(self.job, records, time.time()) or decide(self.job, records)
        if decision.again and self.job_dir.stop_request() is not None:
            return policy.Decision("stopped", "stopped on request")
        return decision

    def _one_attempt(self) -> None:
        number = self.job_dir.next_number()
        record = begin_attempt(self.job_dir, number)
        self.is_due = False
        if number == 1:
            notices.at_start(self.job_dir, self.job)
        self.job_dir.work = worktree.place_of(self.job_dir, number)
        allowance = budget.left(self.job, self.job_dir.records())
        env = locales.original_environment()
        place = Place(None, env, self._seconds(), self._time_left, allowance)
        if layout.is_spread(self.job):
            place.launcher = self.scheduler.launcher(self.job)
            place.number = self.number
        try:
            Supervisor(self.job_dir, record, self.job, place).run()
        except Exception as error:
            note(traceback.format_exc())
            record_own_failure(self.job_dir, number, error)

    def _seconds(self) -> "Optional[float]":
        """How long the attempt may last: what was asked for, and what the scheduler's clock
        leaves of it (Slurm counts in whole minutes)."""
        asked = self.job["resources"]["time"]
        try:
            left = self.scheduler.time_left(self.number)
        except SchedulerError as error:
            note("time left unknown: {}".format(error))
            return float(asked) if asked else None
        limits = [float(asked)] if asked else []
        if left is not None:
            limits.append(left - min(SETTLING, left / 40))
            self.reserve = left - min(limits)
        return min(limits) if limits else None

    def _time_left(self) -> "Optional[float]":
        """Asked again later: somebody may have changed the limit."""
        try:
            left = self.scheduler.time_left(self.number, patience=HURRY)
        except SchedulerError:
            return None
        return None if left is None else left - self.reserve

    def _account_for_lost_attempt(self) -> None:
        unfinished = self.job_dir.unfinished()
        if unfinished is not None:
            reason = "ended by {} or with its node".format(self.scheduler.name)
            record_lost(self.job_dir, self.job, unfinished.number, reason)

    def _go_on(self, decision: policy.Decision) -> bool:
        """See to the next attempt; False where somebody has cancelled the job."""
        fate = self._fate()
        if fate == scheduler.RUNNING and self._was_signalled():
            time.sleep(self.scheduler.kill_delay(self.number))  # the end, if it was cancelled
            fate = self._fate()
        if fate == scheduler.CANCELLED:
            return False
        number = self.number
        if fate == scheduler.AGAIN:
            self._restore_time(number, decision)
            return True
        if fate != scheduler.RUNNING or not self._requeue():
            # refused, or the scheduler itself has ended this batch job
            number = self._succeed(after=self.number)
        self._postpone(number, decision.delay)
        self._restore_time(number, decision)
        return True

    def _succeed(self, after: str) -> str:
        """The number of the batch job that takes this one's place. Tried for as long as a
        controller may be away: a run is not lost for that."""
        if not files.exists(self.job_dir.script):  # a job of an array that could not be written
            raise SchedulerError("there is no {}".format(self.job_dir.script))
        patience = Patience(OUTAGE)
        # One may wait already: the scheduler may have requeued this batch job right after that.
        successor = self._find_successor(patience)
        while successor is None:
            try:
                words = scheduler.planned_words(self.job)
                successor = self.scheduler.submit(self.job_dir.script, after, planned=words)
            except SchedulerError as error:
                note("the next attempt could not be queued, for now: {}".format(error))
                patience.pause(error)
                successor = self._find_successor(patience)  # an answer may have been lost
        self.job_dir.remember_number(successor)
        return successor

    def _find_successor(self, patience: "Patience") -> "Optional[str]":
        """None where there certainly is none. While the queue does not tell, nothing is submitted
        a second time."""
        while True:
            try:
                row = self.scheduler.queue().get(self.job_dir.id)
                break
            except SchedulerError as error:
                patience.pause(error)
        number = self.scheduler.number_of(row, self.job_dir.id) if row else self.number
        return number if number != self.number else None

    def _was_signalled(self) -> bool:
        records = self.job_dir.records()
        return bool(records) and records[-1].get("cause") == "signal"

    def _fate(self) -> str:
        """Waits for a controller that is being restarted: a run is not lost for that."""
        until = time.monotonic() + OUTAGE
        while True:
            fate = self.scheduler.fate(self.number)
            if fate != scheduler.UNKNOWN or time.monotonic() > until:
                return fate
            time.sleep(2.0)

    def _requeue(self) -> bool:
        if self.job["scheduler"].get("resume_with") == "chain":
            return False
        try:
            self.scheduler.requeue(self.number)
        except SchedulerError as error:
            note("requeue was refused: {}".format(error))
            return False
        return True

    def _postpone(self, number: str, delay: float) -> None:
        if delay < 1:
            return
        try:
            self.scheduler.postpone(number, delay)
        except SchedulerError as error:
            note("the pause before the retry could not be set: {}".format(error))

    def _restore_time(self, number: str, decision: policy.Decision) -> None:
        """A scheduler that has cut the time limit for a short slot leaves it so."""
        records = self.job_dir.records()
        if not records or not policy.was_short(self.job, records[-1]):
            return
        try:
            self.scheduler.restore_time(number, self.job["resources"]["time"], decision.whole)
        except SchedulerError as error:
            note("the time limit of the next attempt could not be set: {}".format(error))

    def _exit_code(self, end: policy.Decision) -> int:
        """So that the scheduler's own records tell the truth too."""
        if end.state == "done":
            return 0
        records = self.job_dir.records()
        code = records[-1].get("exit_code") if records else None
        return int(code) if code else 1
