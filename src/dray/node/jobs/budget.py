"""Limits on what a job may use in total, over all of its attempts. Pure.

``total_time`` is the running time in seconds, ``gpu_hours`` the GPUs times the running time.
Attempts before a ``dray resume`` count as well: the limits are the job's, so resuming a job that
has reached one needs a higher one.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..formats.records import AttemptRecord, Description

CAUSE = "budget"  # of an attempt that was ended because a limit of its job was reached
HOUR = 3600.0


class Remaining:
    """How many seconds the job may still run, and which limit says so, in words."""

    def __init__(self, seconds: float, reason: str) -> None:
        self.seconds = seconds
        self.reason = reason


def left(job: "Description", attempts: "List[AttemptRecord]") -> "Optional[Remaining]":
    """Return how long the job may still run; None if it has no limit. ``attempts``: the records of
    all attempts so far."""
    limits = job.get("limits") or {}
    used = spent(attempts)
    found = []
    seconds, gpu_hours = limits.get("total_time"), limits.get("gpu_hours")
    if seconds:
        reason = "its total time of {} is used up".format(in_words(seconds))
        found.append(Remaining(seconds - used, reason))
    if gpu_hours and gpus_of(job):
        reason = "its {:g} GPU hours are used up".format(gpu_hours)
        found.append(Remaining(gpu_hours * HOUR / gpus_of(job) - used, reason))
    return min(found, key=lambda one: one.seconds) if found else None


def used_up(job: "Description", attempts: "List[AttemptRecord]") -> "Optional[Remaining]":
    """Return the limit that ends the job; None if there is time for another attempt."""
    rest = left(job, attempts)
    return rest if rest is not None and rest.seconds <= job["resume"]["grace"] else None


def spent(attempts: "List[AttemptRecord]") -> float:
    """Return how many seconds the attempts have run."""
    return sum(seconds_of(one) for one in attempts)


def seconds_of(attempt: "AttemptRecord") -> float:
    """Return how long one attempt held its resources. Nobody saw when a lost attempt ended, so it
    counts until its last heartbeat."""
    began = attempt.get("started")
    if began is None:
        return 0.0
    ends = [attempt.get("ended"), attempt.get("held")]
    if attempt.get("outcome") == "lost":
        ends = [attempt.get("heartbeat")]
    return float(max([end - began for end in ends if end] + [0.0]))


def gpus_of(job: "Description") -> float:
    """Return the number of GPUs on all nodes together."""
    wanted = job["resources"]
    return float((wanted.get("gpus") or 0.0) * (wanted.get("nodes") or 1))


def in_words(seconds: float) -> str:
    for unit, name in ((HOUR, "h"), (60.0, "min")):
        if seconds >= unit:
            return "{:g} {}".format(round(seconds / unit, 2), name)
    return "{:g} s".format(round(seconds, 2))
