"""Finds reasons to end a command early: somebody stops its job, the scheduler signals, its time is
up, it uses too much memory, or it hangs."""

import os
import time

from ..jobs import budget, policy, trouble
from ..processes import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional  # noqa: F401

    from ..checkpoints.timing import Timing
    from ..jobs.jobdir import AttemptDir, JobDir
    from .allotment import Limit
    from .checkpoint_watch import CheckpointWatch

KILLED = "the process that cares for its batch job was killed"
SILENT_GRACES = 10  # how many graces a command that has done all may say nothing


class EndRequest:
    """Why the command is to end, what the attempt's outcome is then, and when it is killed."""

    def __init__(self, outcome: str, reason: str, kill_by: float, **more: "Any") -> None:
        self.outcome = outcome
        self.reason = reason
        self.kill_by = kill_by
        self.cause = more.get("cause", "")
        self.graceful = more.get("graceful", True)


class EndRequests:
    """Looks for reasons to end the command. The first one counts; only a stop that cannot wait
    replaces it."""

    def __init__(
        self,
        job_dir: "JobDir",
        attempt: "AttemptDir",
        timing: "Timing",
        limit: "Limit",
        checkpoints: "CheckpointWatch",
    ) -> None:
        self.job_dir = job_dir
        self.log = attempt.log
        self.timing = timing
        self.limit = limit
        self.checkpoints = checkpoints
        self.current = None  # type: Optional[EndRequest]
        self.signalled = False  # whether the scheduler has signalled us, and so maybe all of it
        self.log_size = -1

    def look(self) -> None:
        """Check whether the command has to end now."""
        now = time.monotonic()
        self._look_for_stop(now)
        if self.current is None and now >= self.limit.next_look:
            self.limit.look_again()
        if self.current is None and self._hangs_at_its_end(now):
            reason = "all was done, but it did not end by itself"
            self.current = EndRequest("done", reason, self.in_grace())
        if self.current is None and self.limit.at and self.limit.is_reached(now):
            self.current = self._at_limit("time limit reached", self.limit.at)

    def _look_for_stop(self, now: float) -> None:
        stop = self.job_dir.stop_request()
        if stop is None:
            return
        if self.current is None or (self.current.graceful and stop["now"]):
            kill_by = now if stop["now"] else self.in_grace()
            reason, graceful = "stopped on request", not stop["now"]
            self.current = EndRequest("stopped", reason, kill_by, graceful=graceful)

    def by_signal(self, number: int) -> None:
        """Register that this process was signalled, as a scheduler does that ends the job."""
        self.signalled = True
        if self.job_dir.stop_request() is None and self._may_go_on():
            reason, cause = "interrupted by {}".format(process.signal_name(number)), "signal"
            is_gone = self.limit.allotment.is_gone
            if is_gone is not None and is_gone():
                reason, cause = KILLED, trouble.LOST  # not the scheduler has sent it
            self.current = EndRequest("interrupted", reason, self.in_grace(), cause=cause)

    def _may_go_on(self) -> bool:
        """Return whether nothing is known yet that keeps this process from making the next
        attempt."""
        return self.current is None or self.current.cause in (trouble.LOST, policy.EXCHANGED)

    def by_departure(self, host: str) -> None:
        """Request the end because a node of several is about to be taken away."""
        if self.job_dir.stop_request() is None and self.current is None:
            reason = "{} is being taken away".format(host)
            self.current = EndRequest("interrupted", reason, self.in_grace(), cause=trouble.LOST)

    def after_last_checkpoint(self) -> None:
        """Request the end after the checkpoint that the command has just written."""
        assert self.limit.at is not None
        reason = "time limit: ended after the last checkpoint that fits"
        kill_by = min(self.in_grace(), self.limit.at)
        self.current = self.current or self._at_limit(reason, kill_by)

    def by_rule(self, reason: str) -> None:
        """Request the end because a rule of the job's sweep says so."""
        if self.current is None:
            self.current = EndRequest("stopped", reason, self.in_grace(), cause=policy.PRUNED)

    def by_exchange(self, reason: str) -> None:
        """Request the end because the trial goes on from another one's checkpoint."""
        if self.current is None:
            kill_by, cause = self.in_grace(), policy.EXCHANGED
            self.current = EndRequest("interrupted", reason, kill_by, cause=cause)

    def by_stall(self, seconds: "Optional[float]") -> None:
        """Request the end because the command has shown nothing for so long."""
        told = budget.in_words(seconds or 0.0)
        reason = "hung: no output, no metric and no checkpoint for {} (stall)".format(told)
        self.current = EndRequest("failed", reason, self.in_grace(), cause=policy.STALLED)

    def by_memory(self, used: int, most: int) -> None:
        """Request the end at once: the command uses more memory than was asked for."""
        scale, unit = (2.0**30, "GB") if most >= 2**30 else (2.0**20, "MB")
        reason = "out of memory: {:.1f} {unit} used of {:.1f} {unit} asked for".format(
            used / scale, most / scale, unit=unit
        )
        self.current = EndRequest("failed", reason, time.monotonic(), graceful=False)

    def in_grace(self) -> float:
        return time.monotonic() + self.timing.grace

    def _at_limit(self, reason: str, kill_by: float) -> EndRequest:
        """Request the end at the attempt's time limit, or at one of the whole job."""
        allowance = self.limit.allotment.allowance
        if allowance is not None and self.limit.is_of_job():
            return EndRequest("stopped", allowance.reason, kill_by, cause=budget.CAUSE)
        return EndRequest("interrupted", reason, kill_by, cause="time")

    def _hangs_at_its_end(self, now: float) -> bool:
        """Return whether all is done, and the command has printed nothing for long. A trainer that
        has reached its last iteration may still evaluate, and write its final model."""
        if self.checkpoints.finished is None:
            return False
        try:
            size = os.path.getsize(self.log)
        except OSError:
            size = self.log_size
        if size != self.log_size:
            self.log_size, self.checkpoints.finished = size, now
        return now >= self.checkpoints.finished + self.timing.grace * SILENT_GRACES
