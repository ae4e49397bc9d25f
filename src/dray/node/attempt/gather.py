"""Starts the tasks of one node, and carries messages between them and whoever is above: ``ranks``
on the first node, and on the others the first node itself, at the end of a connection.

What comes from above goes to every task and to every other node; whole lines of theirs go up. It
does for the pods of a job what srun does for a batch job's nodes, with the same rule: when the end
of what is above is reached, so is that of all below.
"""

import json
import os
import select
import signal
import time

from ..formats.interpreters import own_words
from ..jobs import trouble
from ..processes import layout, process
from ..processes.process import describe_end
from ..schedulers.gathered import TASK, own_host
from .ranks import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional  # noqa: F401

    from ..formats.records import Description, Part

LONGEST = 1 << 20  # bytes of a line
PIECE = 1 << 16
CLEARING = 90.0  # seconds for tasks to clear away once nobody is above any more
BYE = MARK + b'{"what": "bye"}'  # a node's last line: it ends as it should
IN, OUT = 0, 1


def part_of(job: "Description", node: int, address: str) -> "Part":
    """Describe one node's part: its number, its ranks, and where the first node is."""
    tasks = layout.tasks_per_node(job)
    ranks = list(range(node * tasks, (node + 1) * tasks))
    return {"node": node, "ranks": ranks, "address": address}


def launcher(part: "Part") -> "List[str]":
    """Return the words that start the command behind them in every task. ``part`` is this node's,
    and has the connections to the others in it."""
    return own_words("gather", json.dumps(part))


class Below:
    """A task of this node, or another node: what is written to it, and what it says."""

    def __init__(self, name: str, ranks: "List[int]", source: int, target: int) -> None:
        self.name = name
        self.ranks = ranks
        self.source = source  # what it says comes from here
        self.target = target  # -1 once it is told nothing more
        self.pid = 0  # of a task
        self.unsent = b""
        self.rest = b""
        self.took_leave = False


class Gather:
    def __init__(self, part: "Part", words: "List[str]", host: str) -> None:
        self.part = part
        self.words = words
        self.host = host
        self.is_open = True  # whether somebody is above
        self.below = []  # type: List[Below]
        self.killed = False
        self.until = None  # type: Optional[float]  # when tasks are killed that do not leave

    def run(self) -> int:
        wake, self.woken = os.pipe()
        os.set_blocking(self.woken, False)
        signal.set_wakeup_fd(self.woken)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        for fd, host, ranks in self.part.get("others", ()):
            os.set_blocking(fd, False)
            self.below.append(Below(host, ranks, fd, fd))
        for local, rank in enumerate(self.part["ranks"]):
            self._start(rank, local)
        while self.below:
            self._turn(wake)
        if self.part["node"] and not self.killed:
            self._write_up(BYE + b"\n")
        return 1 if self.killed else 0

    def _start(self, rank: int, local: int) -> None:
        orders, target = os.pipe()
        source, answers = os.pipe()
        os.set_blocking(target, False)
        said = [rank, local, self.part["node"], self.part["address"], self.host]
        env = dict(os.environ)
        env[TASK] = " ".join(str(one) for one in said)
        task = Below("rank {} on {}".format(rank, self.host), [rank], source, target)
        task.pid = process.start(self.words, os.getcwd(), env, answers, orders)
        os.close(orders)
        os.close(answers)
        self.below.append(task)

    # -- one turn ---------------------------------------------------------------------------------

    def _turn(self, wake: int) -> None:
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        if self.is_open:
            poll.register(IN, select.POLLIN)
        readers = {one.source: one for one in self.below}
        writers = {one.target: one for one in self.below if one.unsent and one.target >= 0}
        for fd in set(readers) | set(writers):
            wanted = (select.POLLIN if fd in readers else 0) | (
                select.POLLOUT if fd in writers else 0
            )
            poll.register(fd, wanted)
        for fd, event in poll.poll(1000):
            if fd == wake:
                self._heed(os.read(wake, 64))
            elif fd == IN:
                self._hear_above()
            if fd in writers and event & ~select.POLLIN:
                self._send(writers[fd])
            if fd in readers and event & ~select.POLLOUT:
                self._hear_below(readers[fd])
        if self.until is not None and time.monotonic() > self.until:
            self._kill()

    def _heed(self, numbers: bytes) -> None:
        if signal.SIGUSR1 in numbers:
            self._say("leaving")
        if signal.SIGTERM in numbers:
            self._kill()

    def _hear_above(self) -> None:
        try:
            piece = os.read(IN, PIECE)
        except BlockingIOError:
            return
        except OSError:  # the connection was broken off
            piece = b""
        if not piece:
            self._lose_above()
        for one in self.below:
            one.unsent += piece
            self._send(one)

    def _lose_above(self) -> None:
        self.is_open = False
        self.until = time.monotonic() + CLEARING
        for one in list(self.below):
            if one.pid:
                self._close(one)
            else:
                self._remove(one)

    def _send(self, one: Below) -> None:
        try:
            while one.unsent and one.target >= 0:
                one.unsent = one.unsent[os.write(one.target, one.unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, which is seen when it is heard
            one.unsent = b""

    def _hear_below(self, one: Below) -> None:
        if one not in self.below:
            return
        try:
            piece = os.read(one.source, PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        lines = (one.rest + piece).split(b"\n")
        one.rest = lines.pop()
        for line in lines:
            if not one.pid and line == BYE:
                one.took_leave = True
            else:
                self._write_up(line + b"\n")
        if not piece or len(one.rest) > LONGEST:
            self._end_of(one)

    # -- ends -------------------------------------------------------------------------------------

    def _end_of(self, one: Below) -> None:
        self._remove(one)
        if one.pid:
            status = os.waitpid(one.pid, 0)[1]
            why = describe_end(*process.read_status(status))
            self._tell_lost(one, why and "its task of dray's own ended: " + why, "")
        elif not one.took_leave:
            self._tell_lost(one, "the connection to it ended", trouble.LOST)

    def _tell_lost(self, one: Below, reason: str, cause: str) -> None:
        if reason and not self.killed and self.is_open:
            more = {"exit_code": None, "signal": None, "hopeless": False, "cause": cause}
            for rank in one.ranks:
                self._say("lost", rank=rank, task=one.name, reason=reason, **more)

    def _remove(self, one: Below) -> None:
        self.below.remove(one)
        self._close(one)
        os.close(one.source)

    def _close(self, one: Below) -> None:
        if one.target not in (-1, one.source):
            os.close(one.target)
        one.target, one.unsent = -1, b""

    def _kill(self) -> None:
        """Kill all tasks here; the other nodes see the end of their connections."""
        self.killed = True
        self.until = time.monotonic() + 1.0  # again, for what was started meanwhile
        process.send(process.descendants(os.getpid()), signal.SIGKILL)
        for one in list(self.below):
            if not one.pid:
                self._remove(one)

    # -- upwards ----------------------------------------------------------------------------------

    def _say(self, what: str, **more: "Any") -> None:
        message = dict({"what": what, "node": self.part["node"], "host": self.host}, **more)
        self._write_up(MARK + json.dumps(message).encode("ascii") + b"\n")

    def _write_up(self, line: bytes) -> None:
        """Write a whole line. Whoever is above reads always, or is gone."""
        try:
            while line:
                try:
                    line = line[os.write(OUT, line) :]
                except BlockingIOError:
                    select.select([], [OUT], [], 1.0)
        except OSError:  # the end of what comes from above will tell
            pass


def main(part: str, words: "List[str]") -> int:
    return Gather(json.loads(part), words, own_host()).run()
