"""Trying one point: a life with the fault in it, and what is wrong afterwards."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.invariants import complaints, shape
from tests.faults.kinds import Kind
from tests.faults.lives import LIVES
from tests.faults.points import HOWS, Point, Series, by_role
from tests.faults.shim import Call, name_of
from tests.faults.site import Site

REPRODUCE = "make faults POINT="
# What was seen of jobs, and of the queue, and when: written where it is new, or old enough.
BY_THE_CLOCK = ("/store.db", "/queue.json", "/heartbeat.json", "/clock.")
# So many files as there are, in the order in which the disk lists them.
REMOVED = "/.gone-"
# What the agent does once it has answered, maybe while it is asked the next thing.
AFTERWARDS = ("/facts.json", "/python/", "-probe-")


@dataclass(frozen=True)
class Undisturbed:
    """A life without a fault: the calls of each role, and what it leaves when it is removed."""

    kind: str
    life: str
    calls: dict[str, tuple[Call, ...]]
    tree: frozenset[str]

    def series(self, role: str, how: str) -> Series:
        return Series(self.kind, self.life, role, how, self.calls.get(role, ()))

    def all_series(self) -> list[Series]:
        return [self.series(role, how) for role in sorted(self.calls) for how in HOWS]


@dataclass(frozen=True)
class Verdict:
    point: Point
    hit: tuple[str, str] | None  # the call and the kind of file
    expected: tuple[str, str]  # by the life without a fault
    wrong: tuple[str, ...]

    @property
    def is_bad(self) -> bool:
        return bool(self.wrong) or (self.hit is None and not self.may_be_missed)

    @property
    def may_be_missed(self) -> bool:
        """Where it depends on the clock, or on what lies there, how many calls there are."""
        varying = (*BY_THE_CLOCK, *AFTERWARDS, REMOVED)
        return any(name in self.expected[1] for name in varying)

    @property
    def is_elsewhere(self) -> bool:
        """Another call was struck than at this number before: the order varies there."""
        return self.hit is not None and self.hit != self.expected

    def __str__(self) -> str:
        where = " ".join(self.hit or ("not reached:", *self.expected))
        return f"{REPRODUCE}{self.point}  # {where}: {'; '.join(self.wrong)}"


@contextmanager
def surroundings(kind: Kind, *, messages: bool = True) -> Iterator[Site]:
    """A site that is gone afterwards, with all that runs in it. Its path is short, for sockets.
    ``messages``: whether the ends of its jobs are told."""
    with tempfile.TemporaryDirectory(
        prefix="fault-", dir="/tmp", ignore_cleanup_errors=True
    ) as top:
        site = Site(Path(top) / "s")
        kind.offer(site)
        if messages:
            site.ask_for_messages()
        try:
            yield site
        finally:
            site.inbox.close()
            for close in site.at_end:
                close()
            site.dray.close_connections()
            for pid in site.dray.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def undisturbed(kind: Kind, life: str) -> Undisturbed:
    with surroundings(kind) as site:
        site.shim.plan(log="calls")
        seen = LIVES[life](site, kind)
        wrong = complaints(site, seen, None)
        assert not wrong, wrong
        calls = by_role(told_from(site.home, call) for call in site.shim.calls())
        return Undisturbed(kind.name, life, calls, frozenset(map(shape, site.tree())))


def trial(kind: Kind, point: Point, usual: Undisturbed) -> Verdict:
    with surroundings(kind) as site:
        site.shim.plan(point.fault)
        site.is_deadly = point.is_deadly
        seen = LIVES[point.life](site, kind)
        wrong = complaints(site, seen, usual.tree)
        struck = site.shim.hit()
        expected = usual.series(point.role, point.how).what(point)
        return Verdict(point, struck and kind_of_call(site.home, *struck), expected, tuple(wrong))


def told_from(home: Path, call: Call) -> Call:
    """The same in every life: without the place that it is led in."""
    return replace(call, path=call.path.removeprefix(str(home)))


def kind_of_call(home: Path, what: str, path: str) -> tuple[str, str]:
    return name_of(what), shape(path.removeprefix(str(home)))
