"""The commands that supervisors start: processes of the kernel, seen by ``process``.

This is the one seam between the real supervisor and the operating system's processes: it starts
one, lists those below it, signals them, and reaps them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Protocol

from dray.node.attempt.command import Command
from dray.node.formats import leases
from dray.node.processes import process as node_process
from tests.simulation.kernel import Kernel, Process, simulated


class Program(Protocol):
    """What a command does; ``run`` returns its exit code."""

    def run(self) -> int: ...

    def ended(self, process: Process) -> None: ...


Start = Callable[[dict[str, str]], Program]


class Children:
    """``start`` makes a program of a command's environment."""

    def __init__(self, kernel: Kernel, start: Start) -> None:
        self.kernel = kernel
        self.make = start

    def start(self, _: list[str], __: str, env: dict[str, str], *___: Any) -> int:
        parent = self._me()
        self.kernel.step(parent, "fork")
        program = self.make(env)
        child = self.kernel.spawn("command", program.run)
        child.blocks_signals = True
        child.host, child.mark = parent.host, env.get("DRAY_JOB_ID", "")
        child.at_end += [program.ended, lambda child: self._tell(parent, child)]
        parent.children.append(child)
        return child.pid

    def _tell(self, parent: Process, child: Process) -> None:
        if child.result is not None:
            child.status = int(child.result) << 8
        parent.reaped.append((child.pid, child.status))
        if parent.blocks_signals:
            self.kernel.signal(parent, signal.SIGCHLD)

    def _me(self) -> Process:
        process = simulated()
        assert process is not None
        return process

    def descendants(self, _: int, __: int = 0) -> list[int]:
        return [child.pid for child in self._me().children if not child.ended]

    def topmost_catchers(self, below: list[int], _: int) -> list[int]:
        return below

    def send(self, pids: list[int], number: int) -> None:
        for child in self._me().children:
            if child.pid in pids:
                if number == signal.SIGKILL:
                    self.kernel.kill(child)
                else:
                    self.kernel.signal(child, number)

    def reap(self) -> list[tuple[int, int]]:
        me = self._me()
        ended, me.reaped = me.reaped, []
        return ended

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            (node_process, "adopt_orphans", lambda: None),
            (node_process, "start", self.start),
            (node_process, "descendants", self.descendants),
            (node_process, "topmost_catchers", self.topmost_catchers),
            (node_process, "send", self.send),
            (node_process, "reap", self.reap),
            (node_process, "memory_of", lambda pids: 0),
            (leases, "locks_work", lambda folder: True),  # it forks
            (Command, "open_door", lambda *_: None),  # a real socket, at which nobody knocks
        ]
