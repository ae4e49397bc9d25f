"""A session: a job whose command only waits, while people work beside it.

When it is over is judged by the server beside the command, which sees what is typed and what
computes: when the last shell has ended, when nobody has come in, or when nothing was done for long.
It then writes a file, for which the command waits.
"""

import os
import time

from ..formats import files
from ..jobs.budget import in_words
from ..processes import process
from .commands import OVER, idle_of, is_held
from .idleness import Idleness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Sequence  # noqa: F401

    from ..jobs.jobdir import AttemptDir

UNVISITED = 900.0  # seconds for somebody to come in: the laptop that wanted it may be gone
LOOK = 30.0  # seconds between two looks at what is done


def describe(words: "Sequence[str]", attempt: "AttemptDir", run: str) -> "Dict[str, Any]":
    """Return what the server has to know of a session. ``run`` is the folder that its container
    shares with the node, if it is in one."""
    return {
        "is_held": is_held(words),
        "idle": idle_of(words) if is_held(words) else None,
        "over": os.path.join(run or attempt.path, OVER),
        "heartbeat": attempt.heartbeat,
        "edits": attempt.edits,
    }


class Holding:
    """Judges when a session is over, and ends it."""

    def __init__(self, described: "Dict[str, Any]") -> None:
        self.over = described["over"]
        self._heartbeat = described["heartbeat"]
        self._idle = described["idle"]  # type: Optional[float]
        self._typed_at = 0.0
        self._next_look = 0.0
        self._why = ""
        self._idleness = Idleness(
            min(UNVISITED, self._idle or UNVISITED), time.monotonic(), is_told=False
        )

    @property
    def pause(self) -> float:
        """Return the seconds between two looks."""
        limit = self._idleness.limit
        return LOOK if limit is None else max(min(LOOK, limit / 4), 0.5)

    def is_entered(self) -> None:
        """Know that somebody has opened a shell. From now on its own limit counts."""
        if not self._idleness.is_told:
            self._idleness = Idleness(self._idle, time.monotonic())

    def is_used(self, at: float) -> None:
        self._typed_at = max(self._typed_at, at)

    def end(self, why: str) -> None:
        """End the session. Where the disk has no room for that, it is tried again."""
        self._why = self._why or why
        try:
            text = "dray: {}\n".format(self._why).encode("utf-8")
            files.write_bytes(self.over, text, durable=False)
        except OSError:
            self._next_look = 0.0

    def look(self) -> str:
        """See what is done, and end a session that is idle; return what those in it are to know."""
        now = time.monotonic()
        if now < self._next_look:
            return ""
        self._next_look = now + self.pause
        if self._why:
            if not files.exists(self.over):
                self.end(self._why)
            return ""
        idleness = self._idleness
        used = now if self._gpu_is_busy() else self._typed_at
        idleness.look(now, used, process.cpu_below(os.getpid()))
        if idleness.is_over(now):
            limit = in_words(idleness.limit or 0.0)
            what = "it was idle for {}" if idleness.is_told else "nobody came in for {}"
            self.end(what.format(limit) + ": it is ended")
        elif idleness.is_to_be_noticed(now):
            left = in_words(idleness.seconds_left(now) or 0.0)
            return "nothing was run or typed for a while: the session ends in {}".format(left)
        return ""

    def _gpu_is_busy(self) -> bool:
        """Return whether the supervisor has seen the GPUs at work."""
        beat = files.read_record(self._heartbeat) or {}
        use = beat.get("gpu_use")
        return isinstance(use, (int, float)) and use > 0
