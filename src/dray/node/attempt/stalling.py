"""Measures for how long a command has shown no progress: no output, no metric, no checkpoint.

Time counts only while this process looks: a node that was suspended, a job that its scheduler has
stopped for a while, or a disk that does not answer keeps us from looking as it keeps the command
from working. No clock is asked that somebody could set."""

import os
import time

from ..formats.messages import print_message
from ..formats.pace import HEARTBEAT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple  # noqa: F401

    from ..jobs.jobdir import AttemptDir
    from ..metrics.sources import Watch
    from .checkpoint_watch import CheckpointWatch

LONGEST_GAP = 2 * HEARTBEAT  # between two looks; what is beyond it does not count
LOOKS = 4  # within the time that is allowed, at least


class Stall:
    """Finds out whether a command hangs. ``seconds``: how long it may show nothing; None: for ever.
    ``look_closely`` looks for metrics and checkpoints at once, however much there is to search."""

    def __init__(
        self,
        seconds: "Optional[float]",
        attempt: "AttemptDir",
        metrics: "Watch",
        checkpoints: "CheckpointWatch",
        look_closely: "Callable[[], None]",
    ) -> None:
        self.seconds = seconds
        self.attempt = attempt
        self.metrics = metrics
        self.checkpoints = checkpoints
        self.look_closely = look_closely
        self.silent = 0.0  # seconds without a sign of progress
        self.looked = None  # type: Optional[float]
        self.signs = None  # type: Optional[Tuple[Any, ...]]

    def is_reached(self) -> bool:
        """Return whether the command has shown nothing for so long. A disk that does not answer
        says nothing of the command."""
        if not self.seconds or not self._is_due(time.monotonic(), self.seconds):
            return False
        try:
            self._count()
            if self.silent < self.seconds:
                return False
            self.look_closely()
            return not self._has_moved()
        except OSError as error:
            print_message("whether the command hangs is not known: {}".format(error))
            return False

    def _is_due(self, now: float, seconds: float) -> bool:
        return self.looked is None or now - self.looked >= min(HEARTBEAT, seconds / LOOKS)

    def _count(self) -> None:
        now = time.monotonic()
        passed = 0.0 if self.looked is None else min(now - self.looked, LONGEST_GAP)
        self.looked = now
        if not self._has_moved():
            self.silent += passed

    def _has_moved(self) -> bool:
        """Return whether there is more than at the last look; if so, count from here."""
        signs = (self._printed(), self.metrics.points, self.checkpoints.changes)
        has_moved, self.signs = signs != self.signs, signs
        self.silent = 0.0 if has_moved else self.silent
        return has_moved

    def _printed(self) -> int:
        """Return how much the command has printed, in all its ranks."""
        ranks = os.path.join(self.attempt.path, "ranks")
        names = os.listdir(ranks) if os.path.isdir(ranks) else []
        logs = [os.path.join(ranks, name) for name in names if name.endswith(".log")]
        return sum(os.path.getsize(path) for path in logs + [self.attempt.log])
