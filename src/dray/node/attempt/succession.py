"""Queues the batch job of a job's next attempt: this one, requeued, or, where that is not allowed,
a successor that it submits itself."""

import time

from ..formats import files
from ..formats.messages import print_message
from ..jobs import policy
from ..schedulers import scheduler
from ..schedulers.scheduler import SchedulerError
from .loop import ELSEWHERE, NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from ..formats.records import AttemptRecord, Description
    from ..jobs.jobdir import JobDir
    from ..schedulers.scheduler import Scheduler

LONGEST_PAUSE = 30.0  # between two tries to queue the next attempt
OUTAGE = 600.0  # seconds for which a controller may be away


class Patience:
    """How long to retry, with growing pauses."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.next = 1.0

    def pause(self, error: Exception) -> None:
        """Sleep before the next try; raise the error once there is no time left."""
        if time.monotonic() + self.next > self.until:
            raise error
        time.sleep(self.next)
        self.next = min(self.next * 2, LONGEST_PAUSE)


class Succession:
    """``job_dirs`` are the jobs that the batch job ``number``, in which this process is, is for:
    one, or several that share it. ``script`` is the batch script, if it is not the job's own, and
    ``words`` are what its submission needs besides."""

    def __init__(
        self,
        job_dirs: "Sequence[JobDir]",
        job: "Description",
        batch: "Scheduler",
        number: str,
        script: str = "",
        words: "Sequence[str]" = (),
    ) -> None:
        self.job_dirs = job_dirs
        self.job = job
        self.scheduler = batch
        self.number = number
        self.script = script or job_dirs[0].script
        self.words = list(words)

    def arrange_next(self, decision: policy.Decision) -> str:
        """Queue the next attempt; return NOBODY where somebody has cancelled the job."""
        batch_state = self._batch_state()
        if batch_state == scheduler.RUNNING and self._was_signalled():
            time.sleep(self.scheduler.kill_delay(self.number))  # the end, if it was cancelled
            batch_state = self._batch_state()
        if batch_state == scheduler.CANCELLED:
            return NOBODY
        number = self.number
        if batch_state == scheduler.REQUEUED:
            self._restore_time(number, decision)
            return ELSEWHERE
        if batch_state != scheduler.RUNNING or not self._requeue():
            # refused, or the scheduler itself has ended this batch job
            number = self.submit_successor(after=self.number)
        self.postpone(number, decision.delay)
        self._restore_time(number, decision)
        return ELSEWHERE

    def submit_successor(self, after: str) -> str:
        """Submit the batch job that takes this one's place, and return its number. Retries for as
        long as a controller may be away, so that an outage does not lose the run."""
        if not files.exists(self.script):  # a job of an array that could not be written
            raise SchedulerError("there is no {}".format(self.script))
        patience = Patience(OUTAGE)
        # One may wait already: the scheduler may have requeued this batch job right after that.
        successor = self._find_successor(patience)
        while successor is None:
            try:
                planned = scheduler.planned_words(self.job)
                planned += self.words
                successor = self.scheduler.submit(self.script, after, planned=planned)
            except SchedulerError as error:
                print_message("the next attempt could not be queued, for now: {}".format(error))
                patience.pause(error)
                successor = self._find_successor(patience)  # an answer may have been lost
        for job_dir in self.job_dirs:
            job_dir.remember_number(successor)
        return successor

    def _find_successor(self, patience: "Patience") -> "Optional[str]":
        """Return the number of a successor that is queued, or None where there certainly is none.
        While the queue is unknown, nothing is submitted a second time."""
        job_id = self.job_dirs[0].id
        while True:
            try:
                row = self.scheduler.queue().get(job_id)
                break
            except SchedulerError as error:
                patience.pause(error)
        number = self.scheduler.number_of(row, job_id) if row else self.number
        return number if number != self.number else None

    def _was_signalled(self) -> bool:
        return any(one.get("cause") == "signal" for one in self._last_records())

    def _last_records(self) -> "List[AttemptRecord]":
        """Return the last attempt of each job."""
        return [records[-1] for records in (one.records() for one in self.job_dirs) if records]

    def _batch_state(self) -> str:
        """Return the state of this batch job. Waits while the controller is being restarted, so
        that an outage does not lose the run."""
        until = time.monotonic() + OUTAGE
        while True:
            batch_state = self.scheduler.batch_state(self.number)
            if batch_state != scheduler.UNKNOWN or time.monotonic() > until:
                return batch_state
            time.sleep(2.0)

    def _requeue(self) -> bool:
        if self.job["scheduler"].get("resume_with") == "chain":
            return False
        try:
            self.scheduler.requeue(self.number)
        except SchedulerError as error:
            print_message("requeue was refused: {}".format(error))
            return False
        return True

    def postpone(self, number: str, delay: float) -> None:
        if delay < 1:
            return
        try:
            self.scheduler.postpone(number, delay)
        except SchedulerError as error:
            print_message("the pause before the retry could not be set: {}".format(error))

    def _restore_time(self, number: str, decision: policy.Decision) -> None:
        """Restore the time limit for the next attempt, where the scheduler has cut it for a short
        slot."""
        if not any(policy.was_short(self.job, one) for one in self._last_records()):
            return
        seconds = self.job["resources"]["time"]
        assert seconds is not None  # else no slot would be short
        try:
            self.scheduler.restore_time(number, seconds, decision.whole)
        except SchedulerError as error:
            print_message("the time limit of the next attempt could not be set: {}".format(error))
