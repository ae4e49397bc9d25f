"""What goes wrong, and when. ``Luck`` decides by a seed; ``Calm`` lets nothing go wrong."""

from __future__ import annotations

import errno
from random import Random
from typing import NamedTuple

from tests.simulation.kernel import FOREVER, Fault

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)

# How a command of the scheduler's ends.
ANSWERED = "answered"
SILENT = "nothing done, no answer"
DONE_SILENTLY = "done, no answer"
REFUSED = "refused"
DONE_AND_REFUSED = "done, and an error for an answer"

# How a link breaks.
WHOLE = "whole"
NOT_MADE = "not made"
CUT = "cut after the request"
CUT_AND_KILLED = "cut, and the agent killed"


class NodeLoss(NamedTuple):
    """What becomes of a node that is cut off: what runs there dies at some time, or goes on; and
    the node comes back, or not."""

    dies_after: float = 0.0
    returns_after: float = FOREVER


class CommandPlan(NamedTuple):
    """What a user's command does: saves so often, then ends; and how it takes SIGTERM."""

    steps: int = 2
    pause: float = 5.0
    code: int = 0
    deaf: bool = False  # ends by SIGKILL only
    saves_at_end: bool = True


class Calm:
    """A world in which all goes well."""

    def starts(self) -> bool:
        return True

    def fault(self, role: str) -> Fault | None:  # noqa: ARG002
        return None

    def skew(self) -> float:
        return 0.0

    def meets_full_disk(self) -> bool:
        return True

    def answer(self, submits: bool) -> str:  # noqa: ARG002
        return ANSWERED

    def delay(self) -> float:
        return 0.05

    def link(self) -> str:
        return WHOLE

    def stands(self) -> bool:
        """Whether the link stays open for the next request."""
        return False

    def node_loss(self) -> NodeLoss:
        return NodeLoss()

    def command(self) -> CommandPlan:
        return CommandPlan()


class Luck(Calm):
    """By a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trouble = self.random.choice((0.0, 0.3, 1.0, 1.0, 2.0))  # of this schedule

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance * self.trouble

    def starts(self) -> bool:
        return self.random.random() < 0.6

    def fault(self, role: str) -> Fault | None:
        if not self.happens(0.05 if role == "laptop" else 0.3):
            return None
        most = {"agent": 70, "rival": 70, "laptop": 12}.get(role, 250)
        at = self.random.randrange(most)
        if role in ("laptop", "rival"):
            return Fault(at)  # it dies
        return Fault(at, self.random.choice((0, 0, *ERRORS)))

    def skew(self) -> float:
        return self.random.choice((0.0, 0.0, -45.0, 3.0, 300.0))

    def answer(self, submits: bool) -> str:
        if not self.happens(0.12):
            return ANSWERED
        ways = (SILENT, REFUSED)
        return self.random.choice((*ways, DONE_SILENTLY, DONE_AND_REFUSED) if submits else ways)

    def delay(self) -> float:
        return self.random.choice((0.01, 0.05, 0.2, 3.0)) if self.happens(0.5) else 0.02

    def link(self) -> str:
        if not self.happens(0.1):
            return WHOLE
        return self.random.choice((NOT_MADE, CUT, CUT, CUT_AND_KILLED))

    def stands(self) -> bool:
        return self.random.random() < 0.3

    def node_loss(self) -> NodeLoss:
        return NodeLoss(
            self.random.choice((0.0, 0.0, 20.0, 90.0, 400.0, FOREVER)),
            self.random.choice((30.0, 100.0, 300.0, FOREVER)),
        )

    def command(self) -> CommandPlan:
        random = self.random
        return CommandPlan(
            steps=random.choice((0, 1, 2, 3)),
            pause=random.choice((0.5, 3.0, 8.0, 25.0)),
            code=random.choice((0, 0, 0, 3, 7)),
            deaf=random.random() < 0.2,
            saves_at_end=random.random() < 0.5,
        )
