"""What comes after an attempt: another one, or the job's end. Pure, so it can be reasoned about.

- done and stopped end the job.
- An interruption (time limit, preemption, supervisor killed, trouble of the node) is followed by
  another attempt as long as attempts make progress; after trouble of the node, by a growing pause
  before it.
- A crash is followed by another attempt while ``retries`` are left, after a growing pause, and
  given up early once two attempts in a row have crashed without a new checkpoint.
"""

from . import trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Record = Dict[str, Any]

FRUITLESS_LIMIT = 2  # crashes, or time limits, in a row without a new checkpoint
LOST_LIMIT = 3  # interruptions of any sort in a row without progress: not its fault, at first
LONGEST_PAUSE = 300.0
MOST_DOUBLINGS = 30  # by then any pause is the longest; keeps the number within a float


class Decision:
    """Either another attempt after ``delay`` seconds, or the end in ``state``."""

    def __init__(self, state: "Optional[str]" = None, reason: str = "", delay: float = 0.0) -> None:
        self.state = state
        self.reason = reason
        self.delay = delay

    @property
    def again(self) -> bool:
        return self.state is None


def decide(job: "Record", attempts: "List[Record]") -> Decision:
    """``attempts``: the records of those made since the job was submitted or last resumed."""
    if not attempts:
        return Decision()
    last = attempts[-1]
    outcome = last["outcome"]
    if outcome in ("done", "stopped"):
        return Decision(outcome, last.get("reason", ""))
    if outcome == "failed":
        return after_crash(job, attempts)
    return after_interruption(job, attempts)


def after_crash(job: "Record", attempts: "List[Record]") -> Decision:
    reason = attempts[-1].get("reason", "")
    crashes = [one for one in attempts if one["outcome"] == "failed"]
    retries = job["retries"]
    if attempts[-1].get("hopeless") or retries == 0:
        return Decision("failed", reason)
    if len(crashes) > retries:
        used = "1 retry" if retries == 1 else "{} retries".format(retries)
        return Decision("failed", "{}; {} used up".format(reason, used))
    if can_resume(job) and fruitless(attempts, crashed) >= FRUITLESS_LIMIT:
        return Decision("failed", reason + "; given up: two crashes without a new checkpoint")
    return Decision(delay=pause(job, len(crashes)))


def after_interruption(job: "Record", attempts: "List[Record]") -> Decision:
    last = attempts[-1]
    reason = last.get("reason", "")
    if timed_out(last) and not can_resume(job):
        return Decision("failed", reason + "; no checkpoint is set to go on from")
    if timed_out(last) and fruitless(attempts, timed_out) >= FRUITLESS_LIMIT:
        return Decision("failed", reason + " twice without a new checkpoint")
    if fruitless(attempts, interrupted) >= LOST_LIMIT:
        return Decision("failed", reason + "; given up: interrupted three times without progress")
    return Decision(delay=pause(job, fruitless(attempts, hindered)))


def pause(job: "Record", times: int) -> float:
    """Seconds before the next attempt, after something went wrong for so many times."""
    if not times:
        return 0.0
    doubled = job["resume"]["backoff"] * 2 ** min(times - 1, MOST_DOUBLINGS)
    return float(min(doubled, LONGEST_PAUSE))


def can_resume(job: "Record") -> bool:
    return bool(job["resume"].get("checkpoint"))


def crashed(attempt: "Record") -> bool:
    return bool(attempt["outcome"] == "failed")


def timed_out(attempt: "Record") -> bool:
    return attempt["outcome"] == "interrupted" and attempt.get("cause") == "time"


def hindered(attempt: "Record") -> bool:
    """Return whether node trouble kept the attempt from starting."""
    return attempt["outcome"] == "interrupted" and attempt.get("cause") == trouble.CAUSE


def interrupted(attempt: "Record") -> bool:
    return attempt["outcome"] in ("interrupted", "lost")


def fruitless(attempts: "List[Record]", ended_so: "Callable[[Record], bool]") -> int:
    """How many attempts at the end of the list ended so, one after another, without progress."""
    count = 0
    for one in reversed(attempts):
        if not ended_so(one) or one.get("progress"):
            break
        count += 1
    return count
