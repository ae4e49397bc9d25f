"""Limits on what a job may use in total, over all of its attempts. Pure.

``total_time`` is the running time in seconds, ``gpu_hours`` the GPUs times the running time.
Attempts before a ``dray resume`` count as well: the limits are the job's, so resuming a job that
has reached one needs a higher one.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Record = Dict[str, Any]

CAUSE = "budget"  # of an attempt that was ended because a limit of its job was reached
HOUR = 3600.0


class Remaining:
    """How many seconds the job may still run, and which limit says so, in words."""

    def __init__(self, seconds: float, reason: str) -> None:
        self.seconds = seconds
        self.reason = reason


def left(job: "Record", attempts: "List[Record]") -> "Optional[Remaining]":
    """Return how long the job may still run; None if it has no limit. ``attempts``: the records of
    all attempts so far."""
    limits = job.get("limits") or {}
    used = spent(attempts)
    found = []
    if limits.get("total_time"):
        reason = "its total time of {} is used up".format(in_words(limits["total_time"]))
        found.append(Remaining(limits["total_time"] - used, reason))
    if limits.get("gpu_hours") and gpus_of(job):
        reason = "its {:g} GPU hours are used up".format(limits["gpu_hours"])
        found.append(Remaining(limits["gpu_hours"] * HOUR / gpus_of(job) - used, reason))
    return min(found, key=lambda one: one.seconds) if found else None


def used_up(job: "Record", attempts: "List[Record]") -> "Optional[Remaining]":
    """Return the limit that ends the job; None if there is time for another attempt."""
    rest = left(job, attempts)
    return rest if rest is not None and rest.seconds <= job["resume"]["grace"] else None


def spent(attempts: "List[Record]") -> float:
    """Return how many seconds the attempts have run."""
    return sum(seconds_of(one) for one in attempts)


def seconds_of(attempt: "Record") -> float:
    """Return how long one attempt held its resources. Nobody saw when a lost attempt ended, so it
    counts until its last heartbeat."""
    began = attempt.get("started")
    if began is None:
        return 0.0
    ends = ("heartbeat",) if attempt.get("outcome") == "lost" else ("ended", "held")
    return float(max([attempt[key] - began for key in ends if attempt.get(key)] + [0.0]))


def gpus_of(job: "Record") -> float:
    """Return the number of GPUs on all nodes together."""
    wanted = job["resources"]
    return float((wanted.get("gpus") or 0.0) * (wanted.get("nodes") or 1))


def in_words(seconds: float) -> str:
    for unit, name in ((HOUR, "h"), (60.0, "min")):
        if seconds >= unit:
            return "{:g} {}".format(round(seconds / unit, 2), name)
    return "{:g} s".format(round(seconds, 2))
