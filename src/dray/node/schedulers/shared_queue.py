"""The queue of a machine that several accounts use: one line for all, through a shared folder.

It differs from an account's own queue in what is trusted. There is no lock that one account could
hold against the others: each keeps only its own jobs apart with a lock of its own. A job that is
first in line writes down what it takes, and then looks: if somebody else has taken the same at the
same moment, it gives it back and tries again. Of two that wrote, the later one sees the other, so
nothing is given twice, whatever the order.
"""

import os
import signal
import time
from functools import partial

from ..formats import bootstrap, files
from ..formats.messages import print_message
from ..processes import process
from . import fair_order, sharing
from .queue import Grant, NeverFits, Queue, Unusable, allot, fits_beside, queued_here, shortage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar  # noqa: F401

    from ..formats.records import Granted, QueuedHere, Resources, Wish  # noqa: F401

    T = TypeVar("T")

LOOK = 0.05  # seconds, at least, between two looks at the line
ASIDE = 1.0  # seconds between two looks whether a job fits again that fitted once
FAIR_NAP = 0.2  # seconds between two looks, for each one ahead, where the order may change
LONGEST_FAIR_NAP = 5.0
REPAIR = 2.0  # seconds between two looks at a folder that cannot be used


class SharedQueue(Queue):
    """What the machine has is each account's own to say: it stays below its root. Each job says by
    which rule it would have the line go; one goes by age where they do not agree."""

    def __init__(self, root: str, share: str, order: "Optional[str]" = None) -> None:
        Queue.__init__(self, root)
        self.share = share
        self.order = order

    def make(self) -> None:
        files.make_folder(self.path)
        problem = sharing.problem_of(self.share)
        if problem:
            raise Unusable(problem)
        self._own()

    def _own(self) -> str:
        try:
            with files.Lock(self.lock):
                return sharing.own_folder(self.share)
        except FileNotFoundError:
            raise Unusable(sharing.problem_of(self.share) or self.share)

    def take_ticket(self, job_id: str, wanted: "Resources") -> int:
        own = self._own()
        asked = {
            "order": self.order or "",
            "cpus": wanted.get("cpus") or 0,
            "gpus": wanted.get("gpus") or 0,
            "memory": wanted.get("memory"),
        }  # type: Wish
        name = "{:013d}-{}".format(int(time.time() * 1000), job_id)
        with files.Lock(os.path.join(own, "lock")):
            tidy_tickets(own)
            tidy_grants(own)
            return sharing.publish(os.path.join(own, "tickets"), name, asked)

    def wait_for_grant(self, ticket: int, job_id: str, wanted: "Resources") -> Grant:
        wait = partial(Queue.wait_for_grant, self, ticket, job_id, wanted)
        while True:
            try:
                return self._patiently(wait)
            except NeverFits:  # it did when it was accepted: the others need not wait for that
                self._patiently(partial(self._go_to_the_back, ticket, job_id, wanted))
                time.sleep(ASIDE)

    def take_ticket_again(self, job_id: str, wanted: "Resources") -> int:
        return self._patiently(partial(self.take_ticket, job_id, wanted))

    def _patiently(self, act: "Callable[[], T]") -> "T":
        """Do it as soon as the folder can be used. It may be away, or somebody may have filled its
        disk: a job that waits need not be lost for that."""
        told = ""
        while True:
            try:
                return act()
            except (Unusable, OSError) as error:
                problem = sharing.problem_of(self.share) or str(error)
                if problem != told:
                    print_message(problem)
                told = problem
            time.sleep(REPAIR)

    def _go_to_the_back(self, ticket: int, job_id: str, wanted: "Resources") -> None:
        """Take a new place, in the same open file."""
        new = self.take_ticket(job_id, wanted)
        self.remove_ticket(ticket)
        os.dup2(new, ticket, False)
        os.close(new)

    def _wait_for_turn(self, ticket: int) -> None:
        name = self.ticket_name(ticket)
        while True:
            line, is_fair = self._line()
            mine = (os.fstat(ticket).st_ctime_ns, os.geteuid(), name)
            if is_fair and mine in [one.order for one in line]:
                place = [one.order for one in line].index(mine)
                if place == 0:
                    return
                time.sleep(min(FAIR_NAP * place, LONGEST_FAIR_NAP))
                continue
            ahead = [one for one in line if one.order < mine]
            if not ahead:
                return
            sharing.wait_until_free(ahead[-1], LONGEST_FAIR_NAP)
            time.sleep(LOOK)

    def _line(self) -> "Tuple[List[sharing.Entry], bool]":
        """Return the jobs that wait, the next one first, and whether that is by fair-gpu: its order
        changes with whoever comes and ends, while that by age only loses its first."""
        tickets = sharing.tickets(self.share)
        if not fair_order.is_agreed([one.record.get("order") for one in tickets]):
            return tickets, False
        running = [(str(one.uid), 0.0, gpus_of(one.record)) for one in sharing.grants(self.share)]
        waiting = [(str(one.uid), float(one.order[0]), gpus_of(one.record)) for one in tickets]
        return [tickets[index] for index in fair_order.line(running, waiting)], True

    def _try_grant(self, job_id: str, wanted: "Resources") -> "Optional[Grant]":
        own = self._own()
        with files.Lock(os.path.join(own, "lock")):
            tidy_grants(own)
            capacity = self.read_capacity()
            given = allot(capacity, self._held_beside(""), wanted)
            if given is None:
                return None
            path = os.path.join(own, "grants", job_id)
            fd = sharing.publish(os.path.dirname(path), job_id, given)
            grant = Grant(path, fd, given)
            if fits_beside(capacity, self._held_beside(path), given):
                return grant
            grant.release()
        time.sleep(LOOK * os.urandom(1)[0] / 255)  # not all who took the same come again at once
        return None

    def _held_beside(self, path: str) -> "List[Granted]":
        return [one.record for one in sharing.grants(self.share) if one.path != path]

    def in_line(self) -> "List[str]":
        return [label(one) for one in self._line()[0]]

    def holders(self) -> "Dict[str, Granted]":
        return {label(one): one.record for one in sharing.grants(self.share)}

    def overview(self) -> "List[QueuedHere]":
        waiting = [
            queued_here(one.job, one.uid, "waiting", one.record, one.order[0] / 1e9, rule_of(one))
            for one in self._line()[0]
        ]
        running = sharing.grants(self.share)
        return waiting + [queued_here(one.job, one.uid, "running", one.record) for one in running]

    def waiting(self) -> "Tuple[List[str], str]":
        line = self._line()[0]
        if not line:
            return [], ""
        lacking = shortage(self.read_capacity(), self.holders(), line[0].record)
        return [label(one) for one in line], lacking


def tidy_tickets(own: str) -> None:
    """Remove those of this account that killed keepers have left. Called under its lock."""
    tickets = os.path.join(own, "tickets")
    for name in sharing.dead_in(tickets):
        files.discard(os.path.join(tickets, name))


def tidy_grants(own: str) -> None:
    """Remove those of this account's lost jobs. Called under its lock."""
    grants = os.path.join(own, "grants")
    for name in sharing.dead_in(grants):
        if not name.startswith("."):  # not one that was never put in place
            # What a lost job has left running must not share with the next one.
            process.send(process.marked_with(name), signal.SIGKILL)
        files.discard(os.path.join(grants, name))


def gpus_of(record: "Dict[str, Any]") -> float:
    """Return how many GPUs a job asks for, or was given."""
    gpus = record.get("gpus") or 0
    return len(gpus) * float(record.get("share") or 1.0) if isinstance(gpus, list) else float(gpus)


def rule_of(entry: sharing.Entry) -> str:
    found = entry.record.get("order")
    return found if found == fair_order.NAME else ""


def label(entry: sharing.Entry) -> str:
    """Name a job: one of another account's with the account, which is known from its files."""
    if entry.uid == os.geteuid():
        return str(entry.job)
    return "{}'s {}".format(bootstrap.name_of(entry.uid), entry.job)
