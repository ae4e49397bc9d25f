"""The local machine's queue: first in, first out, with no daemon.

    <root>/queue/lock              held for moments, while tickets or grants change
    <root>/queue/capacity.json     what the machine has: {"cpus", "gpus", "memory"}
    <root>/queue/tickets/<n>-<id>  a job that waits; locked by its keeper
    <root>/queue/grants/<id>       what a running job was given; locked by its keeper and supervisor

A lock ends with the processes that hold it, so a killed job frees its place by itself. Those who
wait sleep on the lock of the one before them; only the first in line looks for free resources.
"""

import errno
import fcntl
import os
import re
import signal
import stat
import time

from ..formats import bootstrap, files, shapes
from ..jobs.jobdir import JobDir
from ..processes import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Sequence, Tuple, Union

    from ..formats.records import Capacity, Granted, QueuedHere, Resources

EPSILON = 1e-6
MOST_NAMED = 3  # of the jobs that another one waits for
LAST_NUMBER = 999999999999  # of a ticket: its name has twelve digits, so that it can be sorted
CAPACITY = {"cpus": shapes.is_number, "memory": shapes.is_number, "gpus": shapes.is_count}
GRANT = {
    "cpus": shapes.is_number,
    "memory": shapes.is_number,
    "share": shapes.is_number,
    "gpus": shapes.is_counts,
}


class NeverFits(Exception):
    """The machine does not have what the job asks for."""


class Unusable(Exception):
    """The folder that the queue is in cannot be used. Says why, and what to do."""


def queue_of(root: str, share: "Optional[str]", order: "Optional[str]" = None) -> "Queue":
    """Return the queue of the jobs in this root: the account's own, or that of all accounts.
    ``order`` is the rule by which jobs that take a place in it would have the line go."""
    if not share:
        return Queue(root)
    from .shared_queue import SharedQueue  # only where there is one

    return SharedQueue(root, share, order)


class Queue:
    def __init__(self, root: str) -> None:
        self.root = root
        self.path = os.path.join(root, "queue")
        self.lock = os.path.join(self.path, "lock")
        self.counter = os.path.join(self.path, "counter")
        self.capacity = os.path.join(self.path, "capacity.json")
        self.tickets = os.path.join(self.path, "tickets")
        self.grants = os.path.join(self.path, "grants")

    def make(self) -> None:
        files.make_folder(self.tickets)
        files.make_folder(self.grants)

    def take_ticket(self, job_id: str, wanted: "Resources") -> int:  # noqa: ARG002
        """Take a place at the end of the line; return it as an open, locked file. ``wanted`` is
        for a queue that other accounts read: here it is in the job's description."""
        with files.Lock(self.lock):
            # The tickets themselves count too: the counter may have been lost to a power cut.
            taken = [number_of(name) for name in os.listdir(self.tickets)]
            known = files.read_json(self.counter)
            counted = int(known) if known and shapes.is_count(known) else 0
            number = max([counted] + taken) % LAST_NUMBER + 1
            files.write_json(self.counter, number, durable=False)
            path = os.path.join(self.tickets, "{:012d}-{}".format(number, job_id))
            return open_held(path)

    def take_ticket_again(self, job_id: str, wanted: "Resources") -> int:
        """Take a place for a job that has been accepted before."""
        return self.take_ticket(job_id, wanted)

    def ticket_name(self, fd: int) -> str:
        return os.path.basename(path_of(fd))

    def wait_for_grant(self, ticket: int, job_id: str, wanted: "Resources") -> "Grant":
        """Sleep until it is this job's turn and its resources are free."""
        pause = 0.05
        while True:
            self._wait_for_turn(ticket)  # again: somebody may have come before it meanwhile
            grant = self._try_grant(job_id, wanted)
            if grant is not None:
                self.leave(ticket)
                return grant
            time.sleep(pause)
            pause = min(pause * 1.1, 0.5)

    def leave(self, ticket: int) -> None:
        self.remove_ticket(ticket)
        os.close(ticket)

    def remove_ticket(self, ticket: int) -> None:
        files.remove(path_of(ticket))

    def _wait_for_turn(self, ticket: int) -> None:
        name = self.ticket_name(ticket)
        while True:
            ahead = [one for one in sorted(os.listdir(self.tickets)) if one < name]
            if not ahead:
                return
            path = os.path.join(self.tickets, ahead[-1])
            try:
                fd = open_or_discard(path)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)  # sleeps while the one ahead waits in line
                files.remove(path)  # it left, or its keeper was killed
            finally:
                os.close(fd)

    def _try_grant(self, job_id: str, wanted: "Resources") -> "Optional[Grant]":
        with files.Lock(self.lock):
            try:
                given = allot(self.read_capacity(), self.granted(), wanted)
            except NeverFits:  # it did when it was accepted: the settings have changed since
                return None
            if given is None:
                return None
            path = os.path.join(self.grants, job_id)
            return Grant(path, open_held(path, files.encode(given)), given)

    def granted(self) -> "List[Granted]":
        """Return what living jobs hold; remove the grants of dead ones. Called under the lock."""
        living = []  # type: List[Granted]
        for name in os.listdir(self.grants):
            path = os.path.join(self.grants, name)
            try:
                fd = open_or_discard(path)
            except FileNotFoundError:  # released this moment
                continue
            try:
                if files.try_lock(fd):
                    # What a lost job has left running must not share with the next one.
                    process.send(process.marked_with(name), signal.SIGKILL)
                    files.remove(path)
                else:
                    living.append(shapes.fitting(files.read_record(path), GRANT))
            finally:
                os.close(fd)
        return living

    def in_line(self) -> "List[str]":
        """Return the jobs that wait, the next one first. Changes nothing, like ``holders``."""
        tickets = sorted(files.names_in(self.tickets))
        while tickets and not files.is_locked(os.path.join(self.tickets, tickets[0])):
            del tickets[0]  # its keeper was killed
        return [ticket.partition("-")[2] for ticket in tickets]

    def holders(self) -> "Dict[str, Granted]":
        """Return what each living job holds."""
        found = {}  # type: Dict[str, Granted]
        for name in files.names_in(self.grants):
            path = os.path.join(self.grants, name)
            if files.is_locked(path):
                found[name] = shapes.fitting(files.read_record(path), GRANT)
        return found

    def waiting(self) -> "Tuple[List[str], str]":
        """Return the jobs in line, and what the first of them waits for. Changes nothing."""
        line = self.in_line()
        if not line or not shapes.is_id(line[0]):
            return line, ""
        first = JobDir(os.path.join(self.root, "jobs", line[0])).description()
        wanted = first["resources"] if first else None
        return line, shortage(self.read_capacity(), self.holders(), wanted) if wanted else ""

    def overview(self) -> "List[QueuedHere]":
        """Return who waits, in order, and who runs, with what they ask for or hold. Changes
        nothing."""
        found = []  # type: List[QueuedHere]
        for name in filter(shapes.is_id, self.in_line()):
            job = JobDir(os.path.join(self.root, "jobs", name)).description()
            found.append(queued_here(name, os.getuid(), "waiting", job["resources"] if job else {}))
        for name, held in self.holders().items():
            found.append(queued_here(name, os.getuid(), "running", held))
        return found

    def read_capacity(self) -> "Capacity":
        capacity = shapes.fitting(files.read_record(self.capacity), CAPACITY)  # type: Capacity
        return capacity  # noqa: RET504 (this names its type)


def queued_here(
    name: str,
    uid: int,
    state: str,
    amount: "Union[Granted, Resources]",
    since: float = 0.0,
    order: str = "",
) -> "QueuedHere":
    gpus = amount.get("gpus") or 0
    share = amount.get("share")
    if isinstance(gpus, list):
        gpus = len(gpus) * (share if isinstance(share, (int, float)) else 1.0)
    return {
        "job": name,
        "owner": bootstrap.name_of(uid),
        "state": state,
        "gpus": gpus,
        "cpus": amount.get("cpus") or 0,
        "since": since,
        "order": order,
        "held": "",
    }


def path_of(fd: int) -> str:
    return os.readlink("/proc/self/fd/{}".format(fd))


def number_of(ticket: str) -> int:
    found = re.match("[0-9]{1,15}", ticket)
    return int(found.group()) if found else 0


def open_held(path: str, content: bytes = b"") -> int:
    """Open a ticket or a grant of one's own, and lock it."""
    fd = files.open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_or_discard(path: str) -> int:
    """Open a ticket or a grant. Anything else in its place is removed, and FileNotFoundError
    raised."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in files.NO_FILE:
            raise
        files.remove_tree(path)
        raise FileNotFoundError(errno.ENOENT, "not a file", path)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    files.remove_tree(path)
    raise FileNotFoundError(errno.ENOENT, "not a file", path)


class Grant:
    """Resources held as long as the file is open here or in a child."""

    def __init__(self, path: str, fd: int, given: "Granted") -> None:
        self.path = path
        self.fd = fd
        self.given = given

    def release(self) -> None:
        files.remove(self.path)
        os.close(self.fd)


def allot(
    capacity: "Capacity", granted: "List[Granted]", wanted: "Resources"
) -> "Optional[Granted]":
    """Return what the job gets, or None while too little is free."""
    have, asked = amounts(capacity), amounts(wanted)
    for what in ("cpus", "memory"):
        if capacity.get(what) is None or not asked[what]:
            continue
        if asked[what] > have[what]:
            raise NeverFits("more {} asked for than this machine has".format(what))
        if held_of(what, granted) + asked[what] > have[what] + EPSILON:
            return None
    gpus = pick_gpus(int(capacity.get("gpus") or 0), granted, wanted["gpus"])
    if gpus is None:
        return None
    share = wanted["gpus"] if wanted["gpus"] < 1 else 1.0
    return {"cpus": wanted["cpus"], "memory": wanted["memory"], "gpus": gpus, "share": share}


def fits_beside(capacity: "Capacity", others: "List[Granted]", given: "Granted") -> bool:
    """Return whether what the job was given is free beside what others hold."""
    have, mine = amounts(capacity), amounts(given)
    for what in ("cpus", "memory"):
        if capacity.get(what) is None or not mine[what]:
            continue
        if held_of(what, others) + mine[what] > have[what] + EPSILON:
            return False
    for index in given["gpus"]:
        used = sum(one.get("share") or 1.0 for one in others if index in (one.get("gpus") or ()))
        if used + given["share"] > 1 + EPSILON:
            return False
    return True


def held_of(what: str, granted: "Iterable[Granted]") -> float:
    return sum(amounts(one)[what] for one in granted)


def amounts(of: "Union[Capacity, Granted, Resources]") -> "Dict[str, float]":
    """Return how much of a machine it is, without GPUs."""
    return {"cpus": of.get("cpus") or 0, "memory": of.get("memory") or 0}


def pick_gpus(count: int, granted: "List[Granted]", wanted: float) -> "Optional[List[int]]":
    """Choose whole GPUs, or, for a fraction, the fullest GPU that still has room for it."""
    if wanted > count:
        raise NeverFits("{:g} GPUs asked for, this machine has {}".format(wanted, count))
    used = [0.0] * count
    for one in granted:
        for index in one.get("gpus") or ():
            if 0 <= index < count:
                used[index] += one.get("share") or 1.0
    if wanted < 1:
        room = [(used[i], i) for i in range(count) if used[i] + wanted <= 1 + EPSILON]
        return (
            [max(room, key=fullest_first)[1]] if wanted and room else ([] if not wanted else None)
        )
    free = [i for i in range(count) if used[i] < EPSILON]
    return free[: int(wanted)] if len(free) >= wanted else None


def place_in(line: "Sequence[str]", place: int, lacking: str) -> str:
    """Say why the job at this place of the queue does not run yet, as far as that is known."""
    if place == 0:
        return "next in the queue, {}".format(lacking) if lacking else ""
    behind = "place {} in the queue, behind {}".format(place + 1, line[place - 1])
    return "{}; {} is next, {}".format(behind, line[0], lacking) if lacking else behind


def shortage(capacity: "Capacity", held: "Dict[str, Granted]", wanted: "Resources") -> str:
    """Say what the next job in line waits for, and which jobs hold it; '' where all is free."""
    units = (("gpus", "GPU"), ("cpus", "CPU"), ("memory", "byte of memory"))
    asked = dict(amounts(wanted), gpus=wanted.get("gpus") or 0)
    for what, unit in units:
        only = {"cpus": 0, "memory": 0, "gpus": 0}  # type: Resources
        if what == "gpus":
            only["gpus"] = wanted.get("gpus") or 0
        elif what == "cpus":
            only["cpus"] = wanted.get("cpus") or 0
        else:
            only["memory"] = wanted.get("memory")
        try:
            if allot(capacity, list(held.values()), only) is not None:
                continue
        except NeverFits as error:
            return str(error)
        return "waiting for {}: {} taken by {}".format(
            amount(asked[what], unit),
            taken(capacity, held, what),
            named([name for name in sorted(held) if held[name].get(what)]),
        )
    return ""


def amount(number: float, unit: str) -> str:
    if unit.startswith("byte"):
        return "{:.1f} GB of memory".format(number / 2.0**30)
    return "{:g} {}{}".format(number, unit, "" if number == 1 else "s")


def taken(capacity: "Capacity", held: "Dict[str, Granted]", what: str) -> str:
    have = dict(amounts(capacity), gpus=capacity.get("gpus") or 0)
    if what == "gpus":
        used = sum(len(one.get("gpus") or ()) * (one.get("share") or 1.0) for one in held.values())
    else:
        used = held_of(what, held.values())
    scale = 2.0**30 if what == "memory" else 1
    return "{:.3g} of {:.3g}".format(used / scale, have[what] / scale)


def named(jobs: "List[str]") -> str:
    more = ", and {} more".format(len(jobs) - MOST_NAMED) if len(jobs) > MOST_NAMED else ""
    return ", ".join(jobs[:MOST_NAMED]) + more


def fullest_first(candidate: "Tuple[float, int]") -> "Tuple[float, int]":
    return candidate[0], -candidate[1]
