"""Processes that take turns: one runs at a time, and the seed decides who goes on.

Each simulated process is a thread that waits at a gate of its own. At every operation it may hand
the turn to another one, or to the test, which waits at a gate too. So what two processes do is
interleaved operation by operation, and the same seed always interleaves it in the same way.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from random import Random
from signal import SIGALRM
from typing import Any, NamedTuple

EPOCH = 1_000_000_000.0
OPERATION = 1e-4  # seconds that an operation takes
SWITCH = 0.15  # how often another process goes on after one
FOREVER = float("inf")
NEEDS_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Killed(BaseException):
    """The process has died: what it still tries, in a ``finally`` or elsewhere, does nothing."""


class Exited(BaseException):
    """The process ends itself, at once."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Fault(NamedTuple):
    """What a process meets at its n-th operation: an error, or (0) its death."""

    at: int
    error: int = 0


class Process:
    def __init__(self, pid: int, name: str, body: Callable[[], Any], gate: threading.Lock) -> None:
        self.pid = pid
        self.name = name
        self.body = body
        self.gate = gate
        self.wake = 0.0  # not before then
        self.awaits: Callable[[], Any] | None = None  # unless this comes true
        self.dead = False
        self.host = ""
        self.skew = 0.0  # how far the clock of its machine is off
        self.fault: Fault | None = None
        self.meets_full_disk = False
        self.operations = 0
        self.fds: set[int] = set()
        self.signals: list[int] = []
        self.blocks_signals = False
        self.handlers: dict[int, Callable[..., Any]] = {}  # of signals that are not blocked
        self.alarm = FOREVER
        self.uid = 0
        self.children: list[Process] = []  # end with it
        self.helpers: list[Process] = []  # do not
        self.heir: Process | None = None  # to whom the children come instead, while that lives
        self.reaped: list[tuple[int, int]] = []  # (pid, wait status) of children that ended
        self.status = 0  # wait status, once it has ended
        self.ended = False
        self.ended_at = FOREVER
        self.error: BaseException | None = None
        self.result: Any = None
        self.output: Callable[[bytes], None] = lambda text: None
        self.at_end: list[Callable[[Process], None]] = []
        self.place: Any = None  # the batch job or the pod that it is in
        self.mark = ""  # the job that its environment names
        # Of one that forks:
        self.parent: Process | None = None
        self.forks: Callable[[Process], Any] | None = None  # what its next child does
        self.inherited: dict[int, int] = {}  # the parent's number of an open file → its own

    def __repr__(self) -> str:
        return f"{self.name}[{self.pid}]"


class Worker(threading.Thread):
    """A thread for one process after another: starting one for each would take most of the time."""

    idle: list[Worker] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(daemon=True, name="simulated")
        self.gate = threading.Lock()
        self.gate.acquire()
        self.work: Callable[[], threading.Lock] = lambda: self.gate
        self.start()

    def run(self) -> None:
        while True:
            self.gate.acquire()
            self.work().release()


current: dict[int, Process] = {}  # by thread: all other threads have the real system


class Kernel:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # of who goes on; apart from all other chance
        self.noise = Random(~seed)  # of os.urandom
        self.now = EPOCH
        self.until = self.now
        self.home = threading.Lock()
        self.home.acquire()
        self.processes: list[Process] = []
        self.pids = 1000
        self.broken: Exception | None = None
        self.operations = 0
        self.deaths = 0
        self.errors = 0
        self.full_until = 0.0  # the disk has no space before then
        self.trace: Callable[[str], None] | None = None

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now - EPOCH:12.4f}  {text}")

    # -- called by the test, and by whoever starts or ends a process ------------------------------

    def spawn(self, name: str, body: Callable[[], Any]) -> Process:
        worker = Worker.idle.pop() if Worker.idle else Worker()
        self.pids += 1
        process = Process(self.pids, name, body, worker.gate)
        process.wake = self.now
        worker.work = lambda: self._live(process, worker)
        self.processes.append(process)
        return process

    def run(self, seconds: float) -> None:
        """Let the processes go on for so long."""
        self.until = self.now + seconds
        self._pass_turn(self.home)
        if self.broken is not None:
            raise self.broken

    def kill(self, process: Process, number: int = 9) -> None:
        """It ends before anybody does anything else."""
        if not process.ended and not process.dead:
            process.dead = True
            process.status = number
            self.deaths += 1
            self.say(f"{process} dies")

    def signal(self, process: Process, number: int) -> None:
        if process.ended or process.dead:
            return
        if not process.blocks_signals and number not in process.handlers:
            self.kill(process, number)
            return
        process.signals.append(number)
        process.wake = min(process.wake, self.now)

    def end_all(self) -> None:
        for process in self.processes:
            self.kill(process)
        self.run(0)

    # -- called by a process, of itself -----------------------------------------------------------

    def step(self, process: Process, what: str, *, needs_space: bool = False) -> None:
        """One operation: others may go on before it, and it may fail."""
        if process.dead:
            raise Killed
        self.now += OPERATION
        self.operations += 1
        if self.now >= self.until or (len(self.processes) > 1 and self.random.random() < SWITCH):
            self._yield(process)
        fault, process.operations = process.fault, process.operations + 1
        if fault is not None and process.operations > fault.at:
            self._meet(process, fault, what, needs_space)
        if needs_space and process.meets_full_disk and self.now < self.full_until:
            self.errors += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _meet(self, process: Process, fault: Fault, what: str, needs_space: bool) -> None:
        if fault.error in NEEDS_SPACE and not needs_space:
            return  # it meets the next operation that does
        process.fault = None
        if fault.error:
            self.errors += 1
            self.say(f"{process} meets {errno.errorcode[fault.error]} at {what}")
            raise OSError(fault.error, os.strerror(fault.error))
        self.say(f"{process} is about to {what}")
        self.kill(process)
        raise Killed

    def sleep(self, process: Process, seconds: float) -> None:
        """Until then, or until a signal comes."""
        if process.dead:
            raise Killed
        process.wake = self.now + max(seconds, OPERATION)
        self._yield(process)

    def wait_for(self, process: Process, condition: Callable[[], Any], seconds: float) -> bool:
        """Whether it came true within so many seconds; signals do not interrupt it."""
        until = self.now + seconds
        process.awaits = condition
        try:
            while not condition():
                if self.now >= until:
                    return False
                self.sleep(process, until - self.now)
            return True
        finally:
            process.awaits = None

    def _yield(self, process: Process) -> None:
        self._pass_turn(process.gate)
        process.wake = self.now
        if process.dead:
            raise Killed
        self.deliver(process)

    def deliver(self, process: Process) -> None:
        """Call the handler of a signal that has come, which may raise."""
        if process.alarm <= self.now:
            process.alarm = FOREVER
            process.signals.append(SIGALRM)
        if process.blocks_signals:
            return
        for number in [one for one in process.signals if one in process.handlers]:
            process.signals.remove(number)
            process.handlers[number](number, None)

    # -- whose turn it is -------------------------------------------------------------------------

    def _pass_turn(self, mine: threading.Lock) -> None:
        gate = self._next()
        if gate is not mine:
            gate.release()
            mine.acquire()

    def _next(self) -> threading.Lock:
        ready = []
        soonest = FOREVER
        for process in self.processes:
            if process.dead:
                return process.gate
            due = min(process.wake, process.alarm)
            if due <= self.now or (process.awaits is not None and process.awaits()):
                ready.append(process)
            elif due < soonest:
                soonest = due
        if ready and self.now < self.until:
            chosen = ready[0] if len(ready) == 1 else self.random.choice(ready)
            return chosen.gate
        if ready or soonest > self.until:
            self.now = max(self.now, self.until)
            return self.home
        self.now = soonest
        return self._next()

    def _live(self, process: Process, worker: Worker) -> threading.Lock:
        """All of a process's life, in its thread; returns whose turn it is then."""
        me = threading.get_ident()
        current[me] = process
        try:
            if process.dead:
                raise Killed
            process.result = process.body()
        except Killed:
            pass
        except Exited as ended:
            process.result = ended.code
        except BaseException as error:
            process.error = error
        del current[me]
        Worker.idle.append(worker)
        try:
            self._bury(process)
            return self._next()
        except Exception as error:  # a fault of the simulation's: told where it can be seen
            self.broken = error
            return self.home

    def _bury(self, process: Process) -> None:
        """What it has open is closed, what it has started ends, and who waits is told."""
        process.ended = True
        process.ended_at = self.now
        self.processes.remove(process)
        for fd in process.fds:
            os.close(fd)
        process.fds.clear()
        heir = process.heir
        if heir is not None and not heir.ended and not heir.dead:
            heir.children += [child for child in process.children if not child.ended]
        else:
            for child in process.children:
                self.kill(child)
        for act in process.at_end:
            act(process)


def below(process: Process) -> Iterator[Process]:
    """Yield what a process has started, and what that has."""
    for child in process.children:
        yield child
        yield from below(child)


def simulated() -> Process | None:
    return current.get(threading.get_ident())


def describe(error: BaseException) -> str:
    """Where an error that nobody expected came from, on one line."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return f"{error!r} at {where}"
