"""What an attempt is given, and when its time is up."""

import time

from ..jobs import budget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from ..checkpoints.timing import Timing
    from ..processes.cgroup import Meter  # noqa: F401

TICK = 1.0
LIMIT_LOOK = 600.0  # how often the scheduler is asked whether the time limit was changed
LAST_LOOK = 10.0  # and once more so long before the command would be asked to end


class Allotment:
    """What an attempt is given: its GPUs (None: the scheduler has set them in the environment), the
    environment it starts from, how many seconds it has, and how to ask for that again; what its job
    may still use as a whole. A command that is spread also has a launcher, the number of its batch
    job, and the address at which other nodes find this one, if not by its name. One whose container
    is its own has a meter of its memory. One that shares a batch job can tell whether the process
    that cares for that ``is_gone``."""

    def __init__(
        self,
        gpus: "Optional[List[int]]",
        env: "Dict[str, str]",
        seconds: "Optional[float]",
        time_left: "Optional[Callable[[], Optional[float]]]" = None,
        allowance: "Optional[budget.Remaining]" = None,
    ) -> None:
        self.gpus = gpus
        self.env = env
        self.time_left = time_left
        self.allowance = allowance
        limits = [seconds] if seconds else []
        limits += [allowance.seconds] if allowance else []
        self.seconds = min(limits) if limits else None
        self.launcher = []  # type: List[str]
        self.batch_id = ""
        self.address = ""
        self.meter = None  # type: Optional[Meter]
        self.is_gone = None  # type: Optional[Callable[[], bool]]


class Limit:
    """The moment by which the command has to have ended, by the monotonic clock. It may move:
    somebody may extend or shorten it in the scheduler."""

    def __init__(self, allotment: Allotment, timing: "Timing", began: float) -> None:
        self.allotment = allotment
        self.timing = timing
        seconds, allowance = allotment.seconds, allotment.allowance
        self.at = began + seconds if seconds else None
        self.of_job = began + allowance.seconds if allowance else None
        self.next_look = next_limit_look(time.monotonic(), self.at, timing.lead())

    def seconds_left(self) -> float:
        """Return the seconds until the command has to be asked to end; one tick where it has no
        limit."""
        if self.at is None:
            return TICK
        return max(self.at - self.timing.lead() - time.monotonic(), 0.0)

    def is_reached(self, now: float) -> bool:
        """Return whether the command has to be asked to end now."""
        return self.at is not None and now >= self.at - self.timing.lead()

    def is_of_job(self) -> bool:
        """Return whether it is the limit of the whole job, and not that of this attempt."""
        return self.allotment.allowance is not None and self.at == self.of_job

    def time_of_day(self) -> "Optional[float]":
        """Return the limit as a time of day. It may have changed since the command was told."""
        return time.time() + self.at - time.monotonic() if self.at else None

    def look_again(self) -> None:
        """Ask the scheduler whether the limit was changed."""
        seconds = self.allotment.time_left() if self.allotment.time_left else None
        now = time.monotonic()
        if seconds is not None:
            self.at = min([now + seconds] + ([self.of_job] if self.of_job else []))
        self.next_look = next_limit_look(now, self.at, self.timing.lead())


def next_limit_look(now: float, limit: "Optional[float]", lead: float) -> float:
    """Return when to ask for the limit again: rarely, and once more before it is too late to
    continue."""
    last = limit - lead - LAST_LOOK if limit else 0.0
    return min(now + LIMIT_LOOK, last) if last > now else now + LIMIT_LOOK
