"""How each kind of batch system is asked, and how it answers.

A batch system is a table of its commands: name → what it does with its arguments, and what it
prints. They are called where the real ones are, by ``scheduler.call``; so dray's own reading of
their answers is part of the simulation. A new one joins with such a table, and a line in
``kinds.py``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from dray.clusters.pbs import PbsCluster
from dray.clusters.slurm import SlurmCluster
from dray.node.attempt import allocation
from dray.node.schedulers import pbs, scheduler, slurm
from dray.node.schedulers.scheduler import NoAnswer, SchedulerError
from tests.simulation import batch
from tests.simulation.batch import BatchJob, BatchSystem, Script
from tests.simulation.kernel import Kernel, Process, simulated
from tests.simulation.kind import Kind, place
from tests.simulation.luck import (
    ANSWERED,
    DONE_AND_REFUSED,
    DONE_SILENTLY,
    REFUSED,
    SILENT,
    Calm,
)
from tests.simulation.system import REAL

Words = Sequence[str]
HANGS = 2 * scheduler.PATIENCE  # seconds: longer than anybody waits


class BatchKind(Kind):
    """A batch system by its commands."""

    module: Any
    submits = ""  # the command that does
    kill_wait = 30.0
    system: BatchSystem

    def __init__(self) -> None:
        self.commands: dict[str, Callable[[Words], str]] = {}

    def make_system(
        self, kernel: Kernel, luck: Calm, start: Callable[[BatchJob], Process]
    ) -> BatchSystem:
        self.kernel = kernel
        self.system = BatchSystem(kernel, luck, start)
        self.system.kill_wait = self.kill_wait
        return self.system

    def run_attempt(self, place: BatchJob) -> int:
        """What the batch script does."""
        return allocation.attempt(place.script.folder)

    def call(self, *words: str, **more: Any) -> str:
        """As ``dray.node.schedulers.scheduler.call``: the command's answer, or how it failed."""
        process = simulated()
        assert process is not None
        kernel = self.kernel
        kernel.step(process, words[0])
        patience = float(more.get("patience", scheduler.PATIENCE))
        command = kernel.spawn(words[0], lambda: self._carry_out(words))
        # It goes on though its caller dies, and holds the caller's lock meanwhile; but what is
        # started in a batch job ends with that.
        (process.helpers if process.place is None else process.children).append(command)
        command.fds.update(os.dup(fd) for fd in more.get("keep_open", ()))
        if not kernel.wait_for(process, lambda: command.ended, patience):
            kernel.kill(command)
            raise NoAnswer(f"{words[0]} did not answer within {patience:.0f} s")
        if command.error is not None:
            raise command.error
        if command.dead:
            raise SchedulerError(f"{words[0]} was killed by signal {command.status}")
        return str(command.result)

    def _carry_out(self, words: Words) -> str:
        process = simulated()
        assert process is not None
        luck, kernel = self.system.luck, self.kernel
        way = luck.answer(words[0] == self.submits)
        if way != ANSWERED:
            kernel.say(f"{words[0]}: {way}")
        kernel.sleep(process, luck.delay())
        if way == SILENT:
            kernel.sleep(process, HANGS)
        if way == REFUSED:
            raise SchedulerError(f"{words[0]}: refused, for a reason of its own")
        # What it answers is what it saw then: by the time it is read it may be old.
        answer = self.commands[words[0]](words[1:])
        if way == DONE_SILENTLY:
            kernel.sleep(process, HANGS)
        if way == DONE_AND_REFUSED:
            raise SchedulerError(f"{words[0]}: error: Socket timed out on send/recv operation")
        kernel.sleep(process, luck.delay())
        return answer

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            (self.module, "call", self.call),
            (scheduler, "call", self.call),
            (scheduler, "of_kind", lambda kind: self.scheduler()),
        ]


def argument(words: Words, flag: str) -> str:
    """What stands behind it, or with it after '='."""
    for position, word in enumerate(words):
        if word == flag:
            return words[position + 1]
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
    return ""


def folder_in(text: str) -> str:
    return str(re.findall(r"(?:attempt|task) '([^']+)'", text)[0])


def read_script(path: str) -> str:
    """By the batch system itself: none of dray's processes meets a fault for it."""
    try:
        with REAL.open_file(path) as file:
            return str(file.read())
    except OSError as error:
        raise SchedulerError(f"{path} cannot be read: {error.strerror}") from error


# -- Slurm ----------------------------------------------------------------------------------------


class SimulatedSlurm(slurm.Slurm):
    def own_number(self) -> str:
        return str(place().name)

    def own_index(self) -> int:
        return int(place().index or 0)


class SlurmKind(BatchKind):
    cluster = SlurmCluster
    scheduler = SimulatedSlurm
    module = slurm
    submits = "sbatch"

    def __init__(self) -> None:
        super().__init__()
        self.commands = {
            "sbatch": self.sbatch,
            "squeue": self.squeue,
            "scancel": self.scancel,
            "scontrol": self.scontrol,
            "sacct": self.sacct,
            "sacctmgr": lambda words: "",
            "sinfo": lambda words: "slurm 23.11",
        }

    def sbatch(self, words: Words) -> str:
        text = read_script(words[-1])
        minutes = re.search(r"^#SBATCH --time=(\d+)", text, re.M)
        array = re.search(r"^#SBATCH --array=(\S+)", text, re.M)
        indices = argument(words, "--array") or (array[1] if array else "")
        script = Script(
            job=re.findall(r"^#SBATCH --job-name=(\S+)", text, re.M)[0],
            folder=folder_in(text),
            log=re.findall(r"^#SBATCH --output=(\S+)", text, re.M)[0],
            limit=float(minutes[1]) * 60 if minutes else None,
            indices=tuple(slurm.parse_indices(indices)) if indices else (),
        )
        after = argument(words, "--dependency").partition(":")[2]
        return f"{self.system.submit(script, after)}\n"

    def squeue(self, words: Words) -> str:
        if argument(words, "--format") == "%L":
            return self._time_left(argument(words, "--job"))
        lines = []
        waiting: dict[int, list[BatchJob]] = {}
        for job in self.system.live():
            if job.index is not None and job.state == batch.PENDING and not job.starts:
                waiting.setdefault(job.number, []).append(job)
            else:
                lines.append(self._line(job, "N/A" if job.index is None else str(job.index)))
        lines += [  # those of an array share a line
            self._line(jobs[0], ",".join(str(job.index) for job in jobs))
            for jobs in waiting.values()
        ]
        return "".join(f"{line}\n" for line in lines)

    def _line(self, job: BatchJob, indices: str) -> str:
        names = {batch.PENDING: "PENDING", batch.RUNNING: "RUNNING", batch.ENDING: "COMPLETING"}
        why = "Dependency" if job.after else "Priority"
        parts = (str(job.number), indices, job.script.job, names[job.state], why, "N/A")
        return slurm.SEPARATOR.join(parts)

    def _time_left(self, name: str) -> str:
        jobs = [job for job in self.system.find(name) if job.state != batch.GONE]
        if not jobs:
            raise SchedulerError("slurm_load_jobs error: Invalid job id specified")
        left = jobs[0].time_left(self.kernel.now)
        return "UNLIMITED" if left is None else f"{int(left) // 60}:{int(left) % 60:02d}\n"

    def scancel(self, words: Words) -> str:
        if "--batch" in words:
            for job in self.system.find(words[-1]):
                if job.process is not None:
                    self.kernel.signal(job.process, 2)
            return ""
        for word in words:
            array, _, indices = word.rstrip("]").partition("_[")
            names = [f"{array}_{index}" for index in indices.split(",")] if indices else [word]
            for job in (job for name in names for job in self.system.find(name)):
                self.system.cancel(job)
        return ""

    def scontrol(self, words: Words) -> str:
        if words[0] == "requeue":
            return self._requeue(words[1])
        if words[0] == "update":
            return self._update(words)
        if words[-1] == "config":
            return "JobRequeue              = 1\nKillWait                = 30 sec\n"
        for job in self.system.find(words[-1]):
            return self._show(job)
        raise SchedulerError("slurm_load_jobs error: Invalid job id specified")

    def _show(self, job: BatchJob) -> str:
        if job.state in (batch.PENDING, batch.RUNNING):
            return f"JobId={job.number} JobState={job.state.upper()} Reason=None"
        if job.fate == batch.CANCELLED or job.state == batch.GONE:
            return f"JobId={job.number} JobState={job.fate} Reason=None"
        more = {
            batch.TIMEOUT: "Reason=TimeLimit",
            batch.PREEMPTED: "EndTime=2001-09-09T01:46:40 PreemptTime=2001-09-09T01:46:40",
        }
        return f"JobId={job.number} JobState=COMPLETING {more.get(job.fate, 'Reason=None')}"

    def _requeue(self, name: str) -> str:
        if not all(self.system.requeue(job) for job in self.system.find(name)):
            raise SchedulerError("Requested operation is presently disabled")
        return ""

    def _update(self, words: Words) -> str:
        seconds = float(argument(words, "StartTime").partition("+")[2])
        for job in self.system.find(argument(words, "JobId")):
            job.begin = self.kernel.now + seconds
        return ""

    def sacct(self, words: Words) -> str:
        wanted = argument(words, "--jobs").split(",")
        states = {batch.PENDING: "PENDING", batch.RUNNING: "RUNNING", batch.ENDING: "RUNNING"}
        return "".join(
            f"{job.name}|{states.get(job.state, job.fate)}|{job.code}:0\n"
            for job in self.system.jobs
            if str(job.number) in wanted
        )


# -- PBS ------------------------------------------------------------------------------------------


class SimulatedPbs(pbs.Pbs):
    def own_number(self) -> str:
        return f"{place().name}.sim"


class PbsKind(BatchKind):
    cluster = PbsCluster
    scheduler = SimulatedPbs
    module = pbs
    submits = "qsub"
    kill_wait = 10.0
    has_arrays = False

    def __init__(self) -> None:
        super().__init__()
        self.commands = {
            "qsub": self.qsub,
            "qselect": lambda words: "".join(f"{job.name}.sim\n" for job in self.system.live()),
            "qstat": self.qstat,
            "qdel": self.qdel,
            "qsig": self.qsig,
            "qrerun": self.qrerun,
            "qalter": self.qalter,
            "pbsnodes": lambda words: "",
        }

    def _find(self, name: str) -> BatchJob:
        for job in self.system.find(name.partition(".")[0]):
            if job.state != batch.GONE:
                return job
        raise SchedulerError(f"qstat: Unknown Job Id {name}")

    def qsub(self, words: Words) -> str:
        text = read_script(words[-1])
        clock = re.search(r"-l walltime=(\d+):(\d+):00", text)
        folder = folder_in(text)
        script = Script(
            job=folder.rpartition("/")[2],
            folder=folder,
            log=re.findall(r"exec >>'([^']+)'", text)[0],
            limit=float(clock[1]) * 3600 + float(clock[2]) * 60 if clock else None,
            indices=(),
        )
        depends = [word for word in words if word.startswith("depend=")]
        after = depends[0].partition(":")[2].partition(".")[0] if depends else ""
        return f"{self.system.submit(script, after)}.sim\n"

    def qstat(self, words: Words) -> str:
        if words == ("--version",):
            return "Version: 6.1.3\n"
        if "-Q" in words:
            return "Queue: batch\n    kill_delay = 10\n    enabled = True\n"
        live = {f"{job.name}.sim": job for job in self.system.live()}
        return "".join(self._describe(live[name]) for name in words[1:] if name in live)

    def _describe(self, job: BatchJob) -> str:
        state, substate = {
            batch.PENDING: ("H" if job.after else "Q", "10"),
            batch.RUNNING: ("R", "42"),
            # Nobody is told that it is being deleted before its processes are killed.
            batch.ENDING: ("R", "42") if job.fate == batch.CANCELLED else ("E", "50"),
        }[job.state]
        if job.state == batch.ENDING and job.fate == batch.REQUEUE:
            substate = "60"
        lines = [
            f"Job Id: {job.name}.sim",
            f"    job_state = {state}",
            f"    substate = {substate}",
        ]
        lines.append(f"    Output_Path = sim:{job.script.folder}/pbs.log")
        lines.append("    queue = batch")
        if job.after:
            lines.append(f"    depend = afterany:{job.after}.sim")
        if job.script.limit is not None:
            minutes = int(job.script.limit) // 60
            walltime = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
            lines.append(f"    Resource_List.walltime = {walltime}")
            if job.state != batch.PENDING:
                used = self.kernel.now - job.started
                lines.append(f"    resources_used.walltime = {int(used)}")
        return "\n".join([*lines, "", ""])

    def qdel(self, words: Words) -> str:
        for name in words:
            self.system.cancel(self._find(name))
        return ""

    def qsig(self, words: Words) -> str:
        process = self._find(words[-1]).process
        if process is not None:
            self.kernel.signal(process, 2)
        return ""

    def qrerun(self, words: Words) -> str:
        if not self.system.requeue(self._find(words[-1]), at_once=True):
            raise SchedulerError("qrerun: Request invalid for state of job")
        return ""

    def qalter(self, words: Words) -> str:
        start = time.mktime(time.strptime(argument(words, "-a"), "%Y%m%d%H%M.%S"))
        self._find(words[-1]).begin = start
        return ""
