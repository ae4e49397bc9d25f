"""Batch jobs that several trials of a sweep share: the task's process, and one for each trial.

What the real task does with processes goes on here with those of the kernel: it starts them, sees
how they end, and takes over what one that was killed has left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dray.node.attempt import member, task
from dray.node.processes import process as node_process
from tests.simulation.batch_kinds import SlurmKind
from tests.simulation.kernel import Kernel, Process, simulated
from tests.simulation.luck import Calm

SHARING = 2  # trials in a batch job


class Started:
    """What the task holds of a process that it has started."""

    def __init__(self, kernel: Kernel, process: Process) -> None:
        self.kernel = kernel
        self.process = process
        self.pid = process.pid

    def poll(self) -> int | None:
        process = self.process
        if not process.ended:
            return None
        if process.dead:
            return -process.status
        return int(process.result) if process.error is None else 1

    def send_signal(self, number: int) -> None:
        self.kernel.signal(self.process, number)


class PerNodeKind(SlurmKind):
    """A Slurm on which all that comes in arrays are trials that share batch jobs."""

    per_node = SHARING
    arrays = 0.8

    def make_system(self, kernel: Kernel, luck: Calm, start: Callable[[Any], Process]) -> Any:
        self.start_process = start
        return super().make_system(kernel, luck, start)

    def run_attempt(self, place: Any) -> int:
        if isinstance(place, Member):
            return member.run(place.path, (), place.task)
        if place.index is None:
            return super().run_attempt(place)
        return task.run(place.script.folder)

    def start_member(self, words: list[str], **_: Any) -> Started:
        parent = simulated()
        assert parent is not None
        self.kernel.step(parent, "fork")
        path, _cpus, number = words[words.index("member") + 1 :]
        child = self.start_process(Member(path, int(number)))
        child.name, child.place = "member", parent.place
        child.host, child.skew = parent.host, parent.skew
        child.blocks_signals = parent.blocks_signals
        child.output = parent.output
        child.parent = child.heir = parent
        parent.children.append(child)
        return Started(self.kernel, child)

    def adopted(self, started: list[int]) -> list[int]:
        me = simulated()
        assert me is not None
        return [one.pid for one in me.children if one.pid not in started and not one.ended]

    def parent(self) -> int:
        me = simulated()
        if me is None or me.parent is None:
            return REAL_PARENT()
        return 1 if me.parent.ended or me.parent.dead else me.parent.pid

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            *super().replacements(),
            (task, "subprocess", SimpleNamespace(Popen=self.start_member, DEVNULL=None)),
            (node_process, "adopted", self.adopted),
            (node_process, "reap_adopted", lambda started: None),
            (node_process, "end_with_parent", lambda number: None),
            (node_process, "marked_with", lambda job: []),
            (os, "getppid", self.parent),
        ]


REAL_PARENT = os.getppid


class Member:
    """What a process is started for that makes one trial's attempts."""

    def __init__(self, path: str, task: int) -> None:
        self.path = path
        self.task = task
