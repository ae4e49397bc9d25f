"""The points at which a fault can strike: found by a life without one, named so that each can be
tried again, and chosen where there is no time for all."""

from __future__ import annotations

import errno
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.faults.invariants import shape
from tests.faults.shim import Call, Fault

SEED = "dray"
STAY = 3  # calls for which an error stays that a retry is to meet again
# An error may strike once, or stay for some calls: ENOSPC+.
ERRORS = ("ENOSPC", "ENOSPC+", "EIO", "EIO+", "EDQUOT", "ESTALE")
HOWS = ("kill", "after", *ERRORS)
FREES_ROOM = ("unlink", "rmdir", "chmod", "fchmod", "utimens", "futimens")  # as in shim.c
BIRTHS = ("fork", "posix_spawn", "posix_spawnp")


@dataclass(frozen=True)
class Point:
    kind: str
    life: str
    role: str
    how: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.life}:{self.role}:{self.how}:{self.number}"

    @classmethod
    def read(cls, text: str) -> Point:
        kind, life, role, how, number = text.split(":")
        return cls(kind, life, role, how, int(number))

    @property
    def is_deadly(self) -> bool:
        return self.how in ("kill", "after")

    @property
    def fault(self) -> Fault:
        if self.is_deadly:
            return Fault(self.role, self.how, self.number)
        code = getattr(errno, self.how.removesuffix("+"))
        return Fault(self.role, str(code), self.number, STAY if self.how.endswith("+") else 1)


@dataclass(frozen=True)
class Series:
    """The calls of one role in one life, in order, and one way to disturb them."""

    kind: str
    life: str
    role: str
    how: str
    calls: tuple[Call, ...]

    def point(self, number: int) -> Point:
        return Point(self.kind, self.life, self.role, self.how, number)

    def points(self) -> list[Point]:
        return [
            self.point(number)
            for number, call in enumerate(self.calls, 1)
            if can_meet(call.name, self.how)
        ]

    def what(self, point: Point) -> tuple[str, str]:
        """The call at a point, and the kind of file."""
        call = self.calls[point.number - 1]
        return call.name, shape(call.path)

    def sample(self, size: int) -> list[Point]:
        """Spread over the kinds of calls and files first; always the same ones."""
        chance = random.Random(f"{SEED} {self.kind} {self.life} {self.role} {self.how}")
        groups = defaultdict(list)
        for point in self.points():
            groups[self.what(point)].append(point)
        chosen = [chance.choice(group) for group in groups.values()]
        chance.shuffle(chosen)
        rest = sorted(set(self.points()) - set(chosen), key=lambda point: point.number)
        chance.shuffle(rest)
        return (chosen + rest)[:size]


def can_meet(call: str, how: str) -> bool:
    """Whether that can happen to such a call."""
    if how in ("kill", "after"):
        return True
    lacks_room = how.startswith(("ENOSPC", "EDQUOT"))
    return call not in BIRTHS and not (lacks_room and call in FREES_ROOM)


def by_role(calls: Iterable[Call]) -> dict[str, tuple[Call, ...]]:
    found = defaultdict(list)
    for call in calls:
        found[call.role].append(call)
    return {role: tuple(calls) for role, calls in found.items()}


def summary(points: Sequence[Point]) -> str:
    """How many were tried, of which kinds."""
    roles = Counter(f"{point.kind}:{point.life}:{point.role}" for point in points)
    hows = Counter(point.how for point in points)
    told = [f"{len(points)} points", *(f"{how} {count}" for how, count in hows.items())]
    return ", ".join(told) + "; " + ", ".join(f"{role} {count}" for role, count in roles.items())
