"""Decides when to ask a command to end, so that as little of its work as possible is lost. Pure.

A trainer that saves when asked is asked as late as possible: how long it takes is learned from
earlier attempts. One that only saves now and then is ended right after the last checkpoint that
fits: what it did after that would be lost. The job says which kind it is, or it is learned.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Optional, TypeVar

    from ..formats.records import AttemptRecord, Resume

    T = TypeVar("T")

REMEMBERED = 3  # the last of each measure; the longest of them counts
SLACK = 1.5  # how much longer an ending may take than those before
MARGIN = 1.0  # seconds on top of that
DRIFT = 1.1  # how much later than expected a checkpoint may come
NOTHING = 200


class Timing:
    """What is known about a command's checkpoints and endings. Times are seconds of one clock;
    those of checkpoints are the file system's."""

    def __init__(self, resume: "Resume", earlier_attempts: "List[AttemptRecord]") -> None:
        self.grace = float(resume["grace"])
        self.endings = last(one.get("ending") for one in earlier_attempts)
        self.intervals = last(one.get("interval") for one in earlier_attempts)
        self.saves_when_asked = saves_when_asked(resume, earlier_attempts)
        self.last_checkpoint = None  # type: Optional[float]

    def lead(self) -> float:
        """Return how many seconds before the limit the command is asked to end."""
        if not self.saves_when_asked and self.interval():
            return min(self.grace, MARGIN)  # nothing is lost if it has to be killed
        if not self.endings:
            return self.grace
        return float(min(self.grace, max(self.endings) * SLACK + MARGIN))

    def saw_checkpoint(self, written: float) -> None:
        if self.last_checkpoint is not None and written > self.last_checkpoint:
            self.intervals = (self.intervals + [written - self.last_checkpoint])[-REMEMBERED:]
        self.last_checkpoint = written

    def interval(self) -> "Optional[float]":
        return max(self.intervals) if self.intervals else None

    def is_last(self, limit: "Optional[float]", now: float) -> bool:
        """Return whether the checkpoint of this moment is the last one that fits."""
        interval = self.interval()
        if limit is None or interval is None or self.saves_when_asked:
            return False
        return now + interval * DRIFT + self.lead() > limit

    def is_near(self, limit: "Optional[float]", now: float) -> bool:
        """Return whether the next checkpoint may be the last one that fits, so that it has to be
        noticed when it comes."""
        interval = self.interval()
        if limit is None or interval is None or self.saves_when_asked:
            return False
        return now + 2 * interval * DRIFT + self.lead() > limit

    def patience(self) -> float:
        """Return how late a checkpoint may be noticed: a share of the interval that does not
        matter."""
        return (self.interval() or 0.0) / NOTHING


def saves_when_asked(resume: "Resume", earlier_attempts: "List[AttemptRecord]") -> bool:
    """Until it is known, a trainer is believed to."""
    if resume.get("saves"):
        return bool(resume["saves"] == "on-request")
    saved = last((one.get("saved_at_end") for one in earlier_attempts), most=1)
    return bool(resume["signal"]) or saved != [False]


def last(values: "Iterable[Optional[T]]", most: int = REMEMBERED) -> "List[T]":
    """Return the last values that were measured."""
    return [one for one in values if one is not None][-most:]
