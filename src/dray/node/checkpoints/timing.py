"""When a command has to be asked to end, so that as little as possible of its work is lost. Pure.

A trainer that saves when it is asked is asked as late as it can be: how long it takes is learned
from the attempts before. One that only saves now and then is ended right after the last checkpoint
that fits: what it did after that would be lost. Which sort it is is told by the job, or learned.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Record = Dict[str, Any]

REMEMBERED = 3  # the last of each measure; the longest of them counts
SLACK = 1.5  # how much longer an ending may take than those before
MARGIN = 1.0  # seconds on top of that
DRIFT = 1.1  # how much later than expected a checkpoint may come
NOTHING = 200


class Timing:
    """Moments are seconds of one clock; those of checkpoints, of the file system's."""

    def __init__(self, resume: "Record", earlier_attempts: "List[Record]") -> None:
        self.grace = float(resume["grace"])
        self.endings = last(earlier_attempts, "ending")
        self.intervals = last(earlier_attempts, "interval")
        self.saves_when_asked = saves_when_asked(resume, earlier_attempts)
        self.last_checkpoint = None  # type: Optional[float]

    def lead(self) -> float:
        """Seconds before the limit at which the command is asked to end."""
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
        """Whether the checkpoint of this moment is the last one that fits."""
        interval = self.interval()
        if limit is None or interval is None or self.saves_when_asked:
            return False
        return now + interval * DRIFT + self.lead() > limit

    def is_near(self, limit: "Optional[float]", now: float) -> bool:
        """Whether the next checkpoint may be the last one that fits: then it has to be noticed
        when it comes."""
        interval = self.interval()
        if limit is None or interval is None or self.saves_when_asked:
            return False
        return now + 2 * interval * DRIFT + self.lead() > limit

    def patience(self) -> float:
        """How late it may be noticed: that much of an interval is nothing."""
        return (self.interval() or 0.0) / NOTHING


def saves_when_asked(resume: "Record", earlier_attempts: "List[Record]") -> bool:
    """Until it is known, a trainer is believed to."""
    if resume.get("saves"):
        return bool(resume["saves"] == "on-request")
    return bool(resume["signal"]) or last(earlier_attempts, "saved_at_end", 1) != [False]


def last(records: "List[Record]", key: str, most: int = REMEMBERED) -> "List[Any]":
    """The last that were measured."""
    return [one[key] for one in records if one.get(key) is not None][-most:]
