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
    from typing import Optional

    from ..formats.records import Description
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
    def __init__(
        self, job_dir: "JobDir", job: "Description", batch: "Scheduler", number: str
    ) -> None:
        self.job_dir = job_dir
        self.job = job
        self.scheduler = batch
        self.number = number  # of the batch job that this process is in

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
        if not files.exists(self.job_dir.script):  # a job of an array that could not be written
            raise SchedulerError("there is no {}".format(self.job_dir.script))
        patience = Patience(OUTAGE)
        # One may wait already: the scheduler may have requeued this batch job right after that.
        successor = self._find_successor(patience)
        while successor is None:
            try:
                planned = scheduler.planned_words(self.job)
                successor = self.scheduler.submit(self.job_dir.script, after, planned=planned)
            except SchedulerError as error:
                print_message("the next attempt could not be queued, for now: {}".format(error))
                patience.pause(error)
                successor = self._find_successor(patience)  # an answer may have been lost
        self.job_dir.remember_number(successor)
        return successor

    def _find_successor(self, patience: "Patience") -> "Optional[str]":
        """Return the number of a successor that is queued, or None where there certainly is none.
        While the queue is unknown, nothing is submitted a second time."""
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
        records = self.job_dir.records()
        if not records or not policy.was_short(self.job, records[-1]):
            return
        seconds = self.job["resources"]["time"]
        assert seconds is not None  # else no slot would be short
        try:
            self.scheduler.restore_time(number, seconds, decision.whole)
        except SchedulerError as error:
            print_message("the time limit of the next attempt could not be set: {}".format(error))
