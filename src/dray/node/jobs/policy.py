"""Decides what follows an attempt: another one, or the job's end. Pure, so it can be reasoned
about.

- done and stopped end the job.
- An interruption (time limit, preemption, supervisor killed, trouble of the node) is followed by
  another attempt as long as attempts make progress; after trouble of the node, a growing pause
  comes before it.
- A crash is followed by another attempt while ``retries`` are left, after a growing pause, and
  given up early once two attempts in a row have crashed without a new checkpoint.
- A command that was ended as it seemed to hang (``stall``) has crashed, whatever its exit code.
- An exit code in ``fail_on`` ends the job. One in ``retry_on`` is an interruption with a pause: it
  uses up no retry.
- If a time limit was reached in a slot shorter than asked for (``time_min``), without a new
  checkpoint, the next attempt needs the whole time.
"""

from . import trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..formats.records import AttemptRecord, Description

FRUITLESS_LIMIT = 2  # crashes, or time limits, in a row without a new checkpoint
LOST_LIMIT = 3  # interruptions of any kind in a row without progress
LONGEST_PAUSE = 300.0
SHORT = 0.9  # of the time asked for: a slot no longer than that was shortened by the scheduler
PRUNED = "pruned"  # the cause of an attempt that was ended by a rule of its sweep
EXCHANGED = "exchange"  # of one that goes on from another trial's checkpoint, in the same place
STALLED = "stall"  # and of one whose command was ended as it seemed to hang
MOST_DOUBLINGS = 30  # by then any pause is the longest; keeps the number within a float


class Decision:
    """Either another attempt after ``delay`` seconds, or the job's end in ``state``. ``whole``: the
    next attempt needs all the time that was asked for."""

    def __init__(
        self,
        state: "Optional[str]" = None,
        reason: str = "",
        delay: float = 0.0,
        whole: bool = False,
    ) -> None:
        self.state = state
        self.reason = reason
        self.delay = delay
        self.whole = whole

    @property
    def again(self) -> bool:
        return self.state is None


def decide(job: "Description", attempts: "List[AttemptRecord]") -> Decision:
    """Decide what follows these attempts: the records of those made since the job was submitted or
    last resumed."""
    if not attempts:
        return Decision()
    last = attempts[-1]
    outcome = last["outcome"]
    if outcome in ("done", "stopped"):
        return Decision(outcome, last.get("reason", ""))
    if crashed(job, last):
        return after_crash(job, attempts)
    return after_interruption(job, attempts)


def after_crash(job: "Description", attempts: "List[AttemptRecord]") -> Decision:
    reason = attempts[-1].get("reason", "")
    crashes = [one for one in attempts if crashed(job, one)]
    retries = job["retries"]
    if exit_code(attempts[-1]) in (job.get("fail_on") or ()):
        return Decision("failed", reason + " (fail_on: not retried)")
    if attempts[-1].get("hopeless") or retries == 0:
        return Decision("failed", reason)
    if len(crashes) > retries:
        used = "1 retry" if retries == 1 else "{} retries".format(retries)
        return Decision("failed", "{}; {} used up".format(reason, used))
    if can_resume(job) and streak(attempts, lambda one: crashed(job, one)) >= FRUITLESS_LIMIT:
        return Decision("failed", reason + "; given up: two crashes without a new checkpoint")
    return Decision(delay=pause(job, len(crashes)))


def after_interruption(job: "Description", attempts: "List[AttemptRecord]") -> Decision:
    last = attempts[-1]
    reason = last.get("reason", "")
    if timed_out(last) and not can_resume(job):
        return Decision("failed", reason + "; no checkpoint is set to go on from")
    is_short = timed_out(last) and not last.get("progress") and was_short(job, last)
    if streak(attempts, lambda one: timed_out(one) and not was_short(job, one)) >= (
        FRUITLESS_LIMIT
    ):
        return Decision("failed", reason + " twice without a new checkpoint")
    if streak(attempts, lambda one: interrupted(one) or may_retry(job, one)) >= LOST_LIMIT:
        return Decision("failed", reason + "; given up: interrupted three times without progress")
    if may_retry(job, last):
        times = streak(attempts, lambda one: may_retry(job, one))
        return Decision(delay=pause(job, max(times, 1)))
    return Decision(delay=pause(job, streak(attempts, was_hindered)), whole=is_short)


def pause(job: "Description", times: int) -> float:
    """Return the seconds to wait before the next attempt, after this many failures in a row."""
    if not times:
        return 0.0
    doubled = job["resume"]["backoff"] * 2 ** min(times - 1, MOST_DOUBLINGS)
    return float(min(doubled, LONGEST_PAUSE))


def can_resume(job: "Description") -> bool:
    return bool(job["resume"].get("checkpoint"))


def may_retry(job: "Description", attempt: "AttemptRecord") -> bool:
    """Return whether the attempt crashed with an exit code that means "try again"
    (``retry_on``)."""
    if attempt["outcome"] != "failed" or attempt.get("hopeless"):
        return False
    return exit_code(attempt) in (job.get("retry_on") or ())


def exit_code(attempt: "AttemptRecord") -> "Optional[int]":
    """Return the exit code as a shell reports it: 128 plus the number for a signal. That of a
    command that was taken for hung tells how we have ended it."""
    if attempt.get("cause") == STALLED:
        return None
    import signal  # takes longer than all that a listing needs of this module

    killer = getattr(signal, str(attempt.get("signal")), None)
    if attempt.get("exit_code") is None and isinstance(killer, signal.Signals):
        return 128 + int(killer)
    code = attempt.get("exit_code")
    return None if code is None else int(code)


def was_short(job: "Description", attempt: "AttemptRecord") -> bool:
    """Return whether the scheduler gave less time than asked for, as ``time_min`` allows."""
    wanted = job.get("resources") or {}
    deadline, started = attempt.get("deadline"), attempt.get("started")
    if not wanted.get("time_min") or not deadline or not started:
        return False
    return deadline - started < (wanted.get("time") or 0.0) * SHORT


def crashed(job: "Description", attempt: "AttemptRecord") -> bool:
    return attempt["outcome"] == "failed" and not may_retry(job, attempt)


def timed_out(attempt: "AttemptRecord") -> bool:
    return attempt["outcome"] == "interrupted" and attempt.get("cause") == "time"


def was_hindered(attempt: "AttemptRecord") -> bool:
    """Return whether trouble of the node kept the attempt from starting."""
    return attempt["outcome"] == "interrupted" and attempt.get("cause") == trouble.CAUSE


def interrupted(attempt: "AttemptRecord") -> bool:
    return attempt["outcome"] in ("interrupted", "lost") and attempt.get("cause") != EXCHANGED


def streak(attempts: "List[AttemptRecord]", ended_so: "Callable[[AttemptRecord], bool]") -> int:
    """Count the attempts at the end of the list that ended this way, in a row, without progress."""
    count = 0
    for one in reversed(attempts):
        if not ended_so(one) or one.get("progress"):
            break
        count += 1
    return count
