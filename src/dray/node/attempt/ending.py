"""Ending a command before it is done, in three steps, each only as long as needed: ask the trainer
for a checkpoint (if it has a signal for that) and wait until a new one is whole; SIGTERM; SIGKILL
to everything."""

import signal
import time

from ..jobs import policy
from .command import kill_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Union  # noqa: F401

    from ..checkpoints.newest import Checkpoint
    from .checkpoint_watch import CheckpointWatch
    from .command import Command
    from .end_requests import EndRequests
    from .ranks import Ranks

SETTLE = 0.2  # a checkpoint that has not changed for so long is taken for written, if need be
LONGEST_PAUSE = 0.1  # between two looks whether it has saved or ended


class Ending:
    """``wait`` sleeps for so many seconds, or until a signal comes, which it handles; ``beat``
    writes the heartbeat."""

    def __init__(
        self,
        command: "Union[Command, Ranks]",
        requests: "EndRequests",
        checkpoints: "CheckpointWatch",
        wait: "Callable[[float], None]",
        beat: "Callable[[], None]",
    ) -> None:
        self.command = command
        self.requests = requests
        self.checkpoints = checkpoints
        self.wait = wait
        self.beat = beat
        self.command_notified = False  # whether the command has felt anything of the request
        self.took = None  # type: Optional[float]  # seconds from being asked to its end
        self.saved_at_end = None  # type: Optional[bool]
        self.fresh = None  # type: Optional[Checkpoint]  # asked for, maybe unfinished
        self.fresh_since = 0.0

    def end_command(self) -> None:
        """End the command, as the current request demands."""
        request = self.requests.current
        assert request is not None
        self.command_notified = True
        began = time.monotonic()
        previous = self.checkpoints.find_newest()
        if request.graceful:
            self._ask_for_checkpoint(previous)
        if not self.command.ended() and self._is_in_grace():
            self.command.terminate()
            self._wait_until(self.command.ended)
        if request.graceful:
            # One that had to be killed may need longer than it was given.
            grace = self.requests.timing.grace
            if request.cause != policy.STALLED:  # which says nothing of how it ends otherwise
                self.took = time.monotonic() - began if self.command.ended() else grace
            self.checkpoints.rescue_outputs()
            after = self.checkpoints.find_newest()
            self.saved_at_end = after is not None and not after.same(previous)
        if not self.command.ended():
            kill_all(self.command, self.wait)

    def wait_for_own_signal(self) -> None:
        """Wait a moment for a signal to this process. A scheduler that ends a job signals all its
        processes at once, and the command may end before we see ours."""
        seconds = self.command.ahead_of_us()
        until = time.monotonic() + seconds
        while self.requests.current is None and time.monotonic() < until:
            self.wait(until - time.monotonic())
        # We may have been looking at a slow disk meanwhile, and find both at once; whatever the
        # exit code was then, it is that of a trainer that was told to leave.
        was_signalled = self.requests.signalled or seconds > 0
        self.command_notified = self.requests.current is not None and was_signalled

    def let_settle(self, found: "Checkpoint") -> None:
        """Wait until the checkpoint stops changing, while there is time, if its format does not
        show whether it is complete."""
        changing, limit = not self.checkpoints.tells_its_end(found), self.requests.limit
        while changing and not self.command.ended() and limit.seconds_left() > SETTLE:
            self.wait(SETTLE)
            newest = self.checkpoints.find_newest()
            changing = newest is not None and not newest.same(self.checkpoints.latest)
            self.checkpoints.latest = newest or self.checkpoints.latest

    def sweep(self) -> None:
        """End what the command left in the background."""
        if self.command.is_gone():
            return
        self.command.end_leftovers()
        until = time.monotonic() + self.command.patience
        while not self.command.is_gone() and time.monotonic() < until:
            self.wait(0.05)
        kill_all(self.command, self.wait)

    def _ask_for_checkpoint(self, previous: "Optional[Checkpoint]") -> None:
        name = self.checkpoints.rules["signal"]
        if not name:
            return
        number = getattr(signal, "SIG" + name)
        if self.command.signal(number):  # else it would only kill; SIGTERM comes next anyway
            self._wait_until(lambda: self.command.ended() or self._has_saved(previous))

    def _has_saved(self, previous: "Optional[Checkpoint]") -> bool:
        """Return whether there is a whole checkpoint that is newer than ``previous``."""
        self.checkpoints.rescue_outputs()
        found = self.checkpoints.find_newest()
        if found is None or found.same(previous):
            return False
        if not found.same(self.fresh):
            self.fresh, self.fresh_since = found, time.monotonic()
        settled = time.monotonic() - self.fresh_since >= SETTLE
        return settled or self.checkpoints.tells_its_end(found)

    def _is_in_grace(self) -> bool:
        """Return whether the command need not be killed yet. A stop that cannot wait may come
        meanwhile."""
        request = self.requests.current
        return request is not None and request.graceful and time.monotonic() < request.kill_by

    def _wait_until(self, condition: "Callable[[], bool]") -> None:
        """Wait for the condition, at most until the command is to be killed."""
        pause = 0.02
        while self._is_in_grace():
            now = time.monotonic()
            if condition():
                return
            assert self.requests.current is not None
            took = time.monotonic() - now
            kill_by = self.requests.current.kill_by
            self.wait(min(max(pause, took * 4), kill_by - time.monotonic()))
            self.beat()
            pause = min(pause * 1.5, LONGEST_PAUSE)
