"""A command that is spread over tasks, on one node or many: the supervisor's end of it.

The scheduler's own launcher (srun) starts ``dray-node rank`` in every task. What is written to its
input reaches every task, and what a task writes comes back, as lines of JSON: so nothing here needs
a port of its own, a file to watch, or a signal that would hit more than the trainer.

    to the tasks                        from a task
    order   what to run                 ready    the node's work tree is there
    go      every tree is ready         asked    whether its trainer takes the signal
    signal  for the trainer             ended    its command's end
    end     SIGTERM or SIGKILL          memory   of its node
    clear   put away, and leave         left     files kept of its node's work tree

A launcher of dray's own says more: ``leaving``, a node is about to be taken away; ``lost``, a rank
is gone.
"""

import fcntl
import json
import os
import re
import select
import signal
import socket
import time

from ..formats.interpreters import own_words
from ..formats.messages import print_message
from ..jobs import trouble
from ..processes import layout, process
from ..processes.process import describe_end
from ..schedulers.gathered import STAND_IN
from .command import LEFTOVER_GRACE, NOT_TO_BE_KILLED, SAME_NODE, SIGNALLED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional  # noqa: F401

    from ..formats.records import CommandEnd, Description, News, Order
    from ..jobs.jobdir import AttemptDir, JobDir

MARK = b"dray "  # of a line from a task; anything else is the launcher's own
OTHER_NODE = 15.0  # seconds between the same signal to one node and to another, at most
ANSWER = 5.0  # seconds in which a task answers
KILL = 5.0  # then the launcher is asked to kill its tasks
KILL_HARD = 12.0  # then the launcher is killed, and the rest left to the scheduler


class Lines:
    """Reads whole lines from a pipe, each as soon as it is there: SIGIO announces it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.rest = b""
        self.is_open = True
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_ASYNC)

    def read(self) -> "List[bytes]":
        while self.is_open:
            try:
                piece = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                break
            self.is_open = bool(piece)
            self.rest += piece
        lines = self.rest.split(b"\n")
        self.rest = lines.pop()
        return lines


def free_port(first: int) -> int:
    """Find a free port of this machine, from ``first`` on."""
    for port in range(first, first + 1000):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return first


class Ranks:
    container = []  # type: List[str]  # each task has its own
    patience = LEFTOVER_GRACE + 60.0  # to end what is left on each node, and clear it away

    def __init__(
        self,
        job_dir: "JobDir",
        job: "Description",
        base: "Dict[str, str]",
        attempt: "AttemptDir",
        launcher: "List[str]",
        number: str,
        address: str = "",
    ) -> None:
        self.job_dir = job_dir
        self.job = job
        self.base = base
        self.attempt = attempt
        self.launcher = launcher
        self.number = number
        self.address = address or socket.gethostname()
        self.departing = ""  # the host that is about to be taken away
        self.pid = 0
        self.status = None  # type: Optional[int]  # the launcher's wait status
        self.trees = {}  # type: Dict[str, str]  # work trees, by the node's number
        self.answers = {}  # type: Dict[int, bool]
        self.ends = {}  # type: Dict[int, News]
        self.bad = None  # type: Optional[News]  # the first that went wrong
        self.asked = False  # whether all were asked to end
        self.kill_rest_at = 0.0  # not before somebody has gone wrong by itself
        self.kill_began = 0.0
        self.dismissed = False
        self.used = 0
        self.left = {}  # type: Dict[str, List[str]]
        self.words = ""  # the launcher's own: its first complaint, or else its last
        self.unsent = b""

    def prepare(self) -> None:
        """Do nothing: each task prepares its own container."""

    def open_door(self, path: str) -> None:
        """Do nothing: each task has a door of its own."""

    def close_door(self) -> None:
        """Do nothing: see ``open_door``."""

    def clean_up(self) -> None:
        """Close what led to the launcher; each task cleans up after its own container."""
        if self.pid:
            os.close(self.input)
            os.close(self.lines.fd)

    def start(self, argv: "List[str]", variables: "Dict[str, str]") -> None:
        orders, self.input = os.pipe()
        output, answers = os.pipe()
        os.set_blocking(self.input, False)
        try:
            words = own_words("rank", self.job_dir.path)
            folder = self.job_dir.path  # the work tree need not be on every node
            self.pid = process.start(self.launcher + words, folder, self.base, answers, orders)
        finally:
            os.close(orders)
            os.close(answers)
        self.lines = Lines(output)
        self._say(
            {
                "what": "order",
                "attempt": self.attempt.number,
                "argv": argv,
                "told": variables,
                "work": self.job_dir.work,
                "address": self.address,
                "port": free_port(layout.port_for(int(re.sub(r"\D", "", self.number) or 0))),
            }
        )

    def _say(self, message: "Order") -> None:
        self.unsent += json.dumps(message).encode("ascii") + b"\n"
        self._send()

    def _send(self) -> None:
        try:
            while self.unsent:
                self.unsent = self.unsent[os.write(self.input, self.unsent) :]
        except BlockingIOError:  # it reads nothing before every task is there
            pass
        except OSError:  # it has ended
            self.unsent = b""

    def listen(self) -> None:
        for line in self.lines.read():
            if line.startswith(MARK):
                self._hear(json.loads(line[len(MARK) :].decode("ascii")))
            elif line.strip():
                words = line.decode("utf-8", "replace").strip()
                print_message(words)
                self.words = self.words if "error:" in self.words else words
        self._send()
        if self.kill_rest_at and not self.dismissed and time.monotonic() > self.kill_rest_at:
            self.kill_rest_at = time.monotonic() + LEFTOVER_GRACE
            self._say({"what": "end", "signal": int(signal.SIGKILL)})

    def _hear(self, message: "News") -> None:
        what = message["what"]
        if what == "ready":
            self.trees[str(message["node"])] = message["work"]
            if len(self.trees) == layout.nodes_of(self.job):
                self._say({"what": "go", "trees": self.trees})
        elif what == "asked":
            self.answers[message["rank"]] = message["caught"]
        elif what == "memory":
            self.used = max(self.used, message["used"])
        elif what == "left":
            self.left[message["host"]] = message["paths"]
        elif what == "ended":
            self.ends[message["rank"]] = message
            if message["reason"] and self.bad is None:
                self._end_rest(message)
        elif what == "leaving":
            self.departing = message["host"]
        elif what == "lost":
            self._lose(message)

    def _lose(self, message: "News") -> None:
        """Count a rank that is lost with its task or its node as ended. Others may have noticed
        before we did, and have crashed for it."""
        if message["rank"] in self.ends:
            return
        self.ends[message["rank"]] = message
        if self.bad is None:
            self._end_rest(message)
        elif message["cause"] == trouble.LOST:
            self.bad = message

    def _end_rest(self, bad: "News") -> None:
        """End the other tasks, which would wait for the dead one. If all were asked to end, each
        keeps the time that the supervisor gives: one torchrun may leave at once, while another's
        worker saves."""
        self.bad = bad
        if not self.asked:
            self.kill_rest_at = time.monotonic() + LEFTOVER_GRACE
            self.terminate()

    def reap(self) -> None:
        for pid, status in process.reap():
            if pid == self.pid:
                self.status = status
                self.listen()

    def ended(self) -> bool:
        return self.is_gone() or len(self.ends) == layout.tasks_of(self.job)

    def ahead_of_us(self) -> float:
        """Return by how many seconds a task's end may have come before our own signal: every node's
        daemon passes on the scheduler's signal, and a busy one is late."""
        if any(end.get("signalled") for end in self.ends.values()):
            return OTHER_NODE
        if self.bad is None:
            return OTHER_NODE if self.is_gone() else 0.0
        if self.bad["signal"] == "SIGTERM" or self.bad["exit_code"] in SIGNALLED:
            return OTHER_NODE
        return SAME_NODE if self.bad["signal"] else 0.0

    def is_gone(self) -> bool:
        return self.pid == 0 or self.status is not None

    def end(self) -> "CommandEnd":
        if self.bad is not None and not self._was_ended_by_launcher():
            return {
                "exit_code": self.bad["exit_code"],
                "signal": self.bad["signal"],
                "reason": "{}: {}".format(self.bad["task"], self.bad["reason"]),
                "hopeless": self.bad["hopeless"],
                "cause": self.bad.get("cause", ""),
                "rank": self.bad["rank"],
            }
        if len(self.ends) == layout.tasks_of(self.job):
            return {"exit_code": 0, "signal": None, "reason": ""}
        return self._launchers_end()

    def _was_ended_by_launcher(self) -> bool:
        """Return whether a lost task made the launcher kill the others. The lost one itself sends
        nothing."""
        assert self.bad is not None
        lost = self.is_gone() and len(self.ends) < layout.tasks_of(self.job)
        return lost and self.bad["signal"] in ("SIGTERM", "SIGKILL")

    def _launchers_end(self) -> "CommandEnd":
        """Describe the end by that of the launcher: a node was lost, or a task was killed from
        outside."""
        if self.status is None:
            return NOT_TO_BE_KILLED.copy()
        code, name = process.read_status(self.status)
        reason = self.words or "{}: {}".format(self.launcher[0], describe_end(code, name))
        return {"exit_code": code or (None if name else 1), "signal": name, "reason": reason}

    def signal(self, number: int) -> bool:
        self.answers = {}
        self._say({"what": "signal", "signal": number})
        until = time.monotonic() + ANSWER
        running = layout.tasks_of(self.job) - len(self.ends)
        while len(self.answers) < running and self.lines.is_open and time.monotonic() < until:
            select.select([self.lines.fd], [], [], 0.1)
            self.listen()
        return any(self.answers.values())

    def terminate(self) -> None:
        self.asked = True
        self._say({"what": "end", "signal": int(signal.SIGTERM)})

    def kill(self) -> bool:
        now = time.monotonic()
        if not self.kill_began:
            self.kill_began = now
            self._say({"what": "end", "signal": int(signal.SIGKILL)})
        if now > self.kill_began + KILL_HARD:
            process.send([self.pid], signal.SIGKILL)
        elif now > self.kill_began + KILL:
            process.send([self.pid], signal.SIGTERM)  # srun kills every task, and waits for it
        return self.is_gone() if self.dismissed else self.ended()

    def end_leftovers(self) -> None:
        self.dismissed = True
        self.kill_began = 0.0
        self._say({"what": "clear"})

    def memory(self) -> int:
        """Return the memory of the node that uses most."""
        return self.used

    def left_elsewhere(self) -> "List[str]":
        """Move what other nodes have kept into this attempt's folder, each into one of its own."""
        kept = []
        for host, paths in sorted(self.left.items()):
            if STAND_IN not in os.environ:  # else whoever brings it home puts it there
                os.makedirs(self.attempt.left, mode=0o700, exist_ok=True)
                os.rename(self.attempt.left_on(host), os.path.join(self.attempt.left, host))
            kept += [os.path.join(host, path) for path in paths]
        return kept
