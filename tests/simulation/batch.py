"""A batch system: what any kind of it does with the jobs that it was given.

How it is asked and how it answers is each kind's own: see batch_kinds.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.kernel import Kernel, Process, below
from tests.simulation.luck import Calm
from tests.simulation.system import REAL

PENDING, RUNNING, ENDING, GONE = "pending", "running", "ending", "gone"
CANCELLED, FAILED, COMPLETED = "CANCELLED", "FAILED", "COMPLETED"
TIMEOUT, PREEMPTED, NODE_FAIL, REQUEUE = "TIMEOUT", "PREEMPTED", "NODE_FAIL", "REQUEUE"
OUT_OF_MEMORY = "OUT_OF_MEMORY"


class Script(NamedTuple):
    """What a batch script says of itself."""

    job: str  # dray's id of the job, or of the array
    folder: str
    log: str
    limit: float | None
    indices: tuple[int, ...]  # of an array; none: it is no array


class BatchJob:
    def __init__(self, number: int, index: int | None, script: Script, after: str) -> None:
        self.number = number
        self.index = index
        self.script = script
        self.after = after
        self.state = PENDING
        self.fate = ""  # what becomes of it, once it is ending or gone
        self.code = 0
        self.begin = 0.0
        self.started = 0.0
        self.kill_at = 0.0
        self.process: Process | None = None
        self.starts = 0

    @property
    def job(self) -> str:
        """dray's id of it."""
        return self.script.job if self.index is None else f"{self.script.job}.{self.index}"

    @property
    def name(self) -> str:
        return f"{self.number}" if self.index is None else f"{self.number}_{self.index}"

    def time_left(self, now: float) -> float | None:
        limit = self.script.limit
        return None if limit is None else max(self.started + limit - now, 0.0)


class BatchSystem:
    kill_wait = 30.0  # seconds from SIGTERM to SIGKILL

    def __init__(self, kernel: Kernel, luck: Calm, attempt: Callable[[BatchJob], Process]) -> None:
        self.kernel = kernel
        self.luck = luck
        self.attempt = attempt
        self.jobs: list[BatchJob] = []
        self.next_number = 100
        self.submitted: Callable[[BatchJob, BatchJob | None], None] = lambda job, beside: None

    # -- what users ask for -----------------------------------------------------------------------

    def submit(self, script: Script, after: str) -> int:
        number = self.next_number
        self.next_number += 1
        for index in script.indices or (None,):
            job = BatchJob(number, index, script, after)
            self.submitted(job, self._beside(job))
            self.jobs.append(job)
        self.kernel.say(f"batch job {number} is queued for {script.job} after {after or 'none'}")
        return number

    def _beside(self, new: BatchJob) -> BatchJob | None:
        """Another one of the same job that waits, and not one behind the other."""
        for other in self.live():
            waits = other.state == PENDING and other.job == new.job
            if waits and new.after not in (other.name, str(other.number)):
                return other
        return None

    def find(self, name: str) -> list[BatchJob]:
        """By its number; that of an array means all of it."""
        return [job for job in self.jobs if name in (job.name, str(job.number))]

    def live(self) -> list[BatchJob]:
        return [job for job in self.jobs if job.state != GONE]

    def running(self) -> list[BatchJob]:
        return [job for job in self.jobs if job.state == RUNNING]

    def is_idle(self) -> bool:
        return not self.live()

    def cancel(self, job: BatchJob) -> None:
        if job.state == PENDING:
            self._leave(job, CANCELLED)
        elif job.state == RUNNING:
            self.end(job, CANCELLED)
        elif job.state == ENDING and job.fate == REQUEUE:
            job.fate = CANCELLED

    def requeue(self, job: BatchJob, *, at_once: bool = False) -> bool:
        if job.state != RUNNING:
            return False
        self.end(job, REQUEUE, at_once=at_once)
        return True

    # -- what the batch system does by itself -----------------------------------------------------

    def end(self, job: BatchJob, fate: str, *, at_once: bool = False) -> None:
        """SIGTERM, and after a while SIGKILL; a node that is gone gives no while."""
        if job.state != RUNNING:
            return
        self.kernel.say(f"batch job {job.name} is being ended: {fate}")
        job.state, job.fate = ENDING, fate
        job.kill_at = self.kernel.now + (0 if at_once else self.kill_wait)
        assert job.process is not None
        if at_once:
            self.kernel.kill(job.process)
        else:
            for child in list(below(job.process)):
                self.kernel.signal(child, signal.SIGTERM)
            self.kernel.signal(job.process, signal.SIGTERM)

    def tick(self) -> None:
        """Start what can start, end what has to."""
        for job in self.live():
            if job.state == PENDING and self._can_start(job) and self.luck.starts():
                self._start(job)
            elif job.state == RUNNING and job.time_left(self.kernel.now) == 0:
                self.end(job, TIMEOUT)
            elif job.state == ENDING and self.kernel.now >= job.kill_at and job.process:
                self.kernel.kill(job.process)

    def _can_start(self, job: BatchJob) -> bool:
        waits = job.after and any(one.state != GONE for one in self.find(job.after))
        return not waits and job.begin <= self.kernel.now

    def _start(self, job: BatchJob) -> None:
        job.state, job.fate = RUNNING, ""
        job.started = self.kernel.now
        job.starts += 1
        self.kernel.say(f"batch job {job.name} of {job.job} starts")
        if not os.path.isdir(os.path.dirname(job.script.log)):
            self._leave(job, FAILED, 1)  # its output could not be opened
            return
        process = self.attempt(job)
        process.place, job.process = job, process
        process.output = lambda text: append(job.script.log, text)
        process.at_end.append(lambda ended: self._ended(job, ended))

    def _ended(self, job: BatchJob, process: Process) -> None:
        if job.state != ENDING:
            code = process.result if isinstance(process.result, int) else 1
            self._leave(job, COMPLETED if code == 0 else FAILED, code)
            return
        if job.fate == CANCELLED:
            append(job.script.log, b"slurmstepd: error: *** JOB CANCELLED ***\n")
        if job.fate == REQUEUE:
            self.kernel.say(f"batch job {job.name} is back in the queue")
            job.state, job.process = PENDING, None
        else:
            self._leave(job, job.fate, process.status & 127)

    def _leave(self, job: BatchJob, fate: str, code: int = 0) -> None:
        self.kernel.say(f"batch job {job.name} is gone: {fate} {code}")
        job.state, job.fate, job.code, job.process = GONE, fate, code, None


def append(path: str, text: bytes) -> None:
    """As the batch system itself does it, which the simulated faults do not touch."""
    try:
        fd = REAL.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except FileNotFoundError:  # removed meanwhile
        return
    try:
        REAL.write(fd, text)
    finally:
        REAL.close(fd)
