"""Judges whether a session is in use. Pure.

An open tab of a notebook server is no use: it asks for news all the time. What counts is what
kernels and terminals did last, and whether their processes compute.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

BUSY_SHARE = 0.02  # of a core: what kernels without work take is well below
NOTICE = 600.0  # seconds before the end


class Idleness:
    """``limit``: the seconds without use after which it ends; None for never. ``is_told``: whether
    somebody is there to whom its end is announced."""

    def __init__(self, limit: "Optional[float]", now: float, is_told: bool = True) -> None:
        self.limit = limit
        self.is_told = is_told
        self.used_at = now
        self._looked_at = now
        self._cpu = None  # type: Optional[float]
        self._noticed_at = None  # type: Optional[float]

    def look(self, now: float, newest_activity: float, cpu: float) -> None:
        """Take in when a kernel or terminal was last active, and how many seconds of CPU time their
        processes have used so far."""
        self.used_at = max(self.used_at, min(newest_activity, now))
        if self._cpu is not None and now > self._looked_at:
            # Processes that have ended take their time with them.
            share = (cpu - self._cpu) / (now - self._looked_at)
            if share >= BUSY_SHARE:
                self.used_at = now
        self._cpu, self._looked_at = cpu, now

    def seconds_left(self, now: float) -> "Optional[float]":
        return None if self.limit is None else self.used_at + self.limit - now

    def is_over(self, now: float) -> bool:
        left = self.seconds_left(now)
        return left is not None and left <= 0

    def is_to_be_noticed(self, now: float) -> bool:
        """Return True once before each end that comes near."""
        left = self.seconds_left(now)
        if left is None or self.limit is None or not self.is_told:
            return False
        if left > min(NOTICE, self.limit / 2):
            return False
        is_new = self._noticed_at != self.used_at
        self._noticed_at = self.used_at
        return is_new
