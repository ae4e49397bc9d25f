"""Slurm from the inside: what the batch script runs on the compute node, and the commands that
the agent gives on the login node.

The batch job is the job itself: it runs one attempt, and when another one is due it asks Slurm to
requeue it, or, where that is not allowed, submits its own successor.
"""

import os
import re
import subprocess
import time
import traceback

from . import files, locales, policy, worktree
from .jobdir import JobDir, since_resumed
from .ledger import end_job, record_lost, record_own_failure
from .supervisor import Place, Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    Record = Dict[str, Any]

SEPARATOR = "\x1f"
QUEUE_FORMAT = SEPARATOR.join(("%i", "%j", "%T", "%r", "%S"))
PATIENCE = 60.0  # seconds for a scheduler that does not answer at once
SETTLING = 3.0  # seconds at the end of an allocation that are left to Slurm
LOCK_PATIENCE = 60.0
OUTAGE = 600.0  # seconds for which a controller may be away
REQUEUEING = ("COMPLETING", "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED")


class SlurmError(Exception):
    """A command of Slurm's failed; says what it said."""


class NoAnswer(SlurmError):
    """Slurm did not answer: what was asked for may have been done or not."""


# -- pure: building commands and reading answers ------------------------------------------------


def parse_queue(text: str) -> "Dict[str, Record]":
    """squeue's answer: job name → {"id", "state", "why", "start"}."""
    found = {}  # type: Dict[str, Record]
    for line in text.splitlines():
        parts = line.split(SEPARATOR)
        if len(parts) != 5:
            continue
        number, name, state, why, start = parts
        found[name] = {"id": number, "state": state, "why": why, "start": start}
    return found


def parse_submitted(text: str) -> str:
    """``sbatch --parsable`` prints the id, and behind a semicolon the cluster."""
    last = text.strip().splitlines()[-1] if text.strip() else ""
    number = last.split(";")[0]
    if not number.isdigit():
        raise SlurmError("sbatch did not print a job id: {!r}".format(text[:500]))
    return number


def parse_time_left(text: str) -> "Optional[float]":
    """squeue's %L: [days-][hours:]minutes:seconds → seconds; None where there is no limit."""
    text = text.strip()
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + int(days or 0) * 86400


def parse_job_state(text: str) -> str:
    found = re.search(r"\bJobState=(\w+)", text)
    if found and found.group(1) == "COMPLETING" and "Reason=TimeLimit" in text:
        return "TIMEOUT"
    return found.group(1) if found else ""


# -- asking Slurm -------------------------------------------------------------------------------


def clean_environment() -> "Dict[str, str]":
    """A batch job must not see what the submitting shell happened to hold."""
    names = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "SLURM_CONF", "USER")
    return {name: os.environ[name] for name in names if name in os.environ}


user_umask = None  # type: Optional[int]  # the agent's own is stricter, and no job's business


def restore_umask() -> None:
    if user_umask is not None:
        os.umask(user_umask)


def call(*words: str, **more: "Any") -> str:
    try:
        ended = subprocess.run(
            words,
            env=clean_environment(),
            pass_fds=more.get("keep_open", ()),
            preexec_fn=restore_umask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )
    except FileNotFoundError:
        raise SlurmError("{}: command not found".format(words[0]))
    except subprocess.TimeoutExpired:
        raise NoAnswer("{} did not answer within {:.0f} s".format(words[0], PATIENCE))
    if ended.returncode != 0:
        complaint = ended.stderr.decode("utf-8", "replace").strip()
        raise SlurmError(complaint or "{} ended with {}".format(words[0], ended.returncode))
    return ended.stdout.decode("utf-8", "replace")


def queue() -> "Dict[str, Record]":
    """All of this user's jobs that Slurm has not finished with, in one query."""
    me = str(os.getuid())
    return parse_queue(call("squeue", "--noheader", "--user", me, "--format", QUEUE_FORMAT))


def submit(
    job_dir: JobDir, dependency: "Optional[str]" = None, lock: "Optional[int]" = None
) -> str:
    """``lock`` is held open by sbatch too: if we are killed, it ends with sbatch, not before."""
    script = os.path.join(job_dir.path, "batch.sh")
    words = ["sbatch", "--parsable"]
    if dependency:
        words.append("--dependency=afterany:" + dependency)
    keep_open = (lock,) if lock is not None else ()
    number = parse_submitted(call(*(words + [script]), keep_open=keep_open))
    remember(job_dir, number)
    return number


def remember(job_dir: JobDir, number: str) -> None:
    # Not worth waiting for the disk: a lost one is found again by the job's name.
    files.write_json(os.path.join(job_dir.path, "scheduler.json"), {"id": number}, durable=False)


def known_id(job_dir: JobDir) -> "Optional[str]":
    record = files.read_json(os.path.join(job_dir.path, "scheduler.json"))
    return str(record["id"]) if record else None


def job_state(number: str) -> str:
    """JobState as Slurm has it now; empty where it does not say."""
    try:
        return parse_job_state(call("scontrol", "--oneliner", "show", "job", number))
    except SlurmError:
        return ""


# -- one attempt, in the allocation -------------------------------------------------------------


def attempt(path: str) -> int:
    """What the batch script runs; its exit code is the batch job's."""
    job_dir = JobDir(path)
    number = os.environ["SLURM_JOB_ID"]
    alive = take_charge(job_dir)
    remember(job_dir, number)  # also where the submitting agent was killed before it could
    try:
        return Allocation(job_dir, number).run()
    finally:
        os.close(alive)


def take_charge(job_dir: JobDir) -> int:
    """Only one attempt at a time, also when a requeue overtakes the attempt before it."""
    alive = files.open_lock(job_dir.alive)
    until = time.monotonic() + LOCK_PATIENCE
    while time.monotonic() < until:
        try:
            if files.try_lock(alive):
                return alive
        except OSError:  # a file system without locks: Slurm alone sees to it
            return alive
        time.sleep(0.2)
    raise SystemExit("another attempt of {} is still running".format(job_dir.id))


class Allocation:
    def __init__(self, job_dir: JobDir, number: str) -> None:
        self.job_dir = job_dir
        self.number = number
        self.job = files.read_json(job_dir.job) or {}

    def run(self) -> int:
        if files.read_json(self.job_dir.end) is not None:
            return 0  # ended before, and requeued by somebody else
        self._account_for_lost_attempt()
        decision = self._decide()
        if decision.again:
            self._one_attempt()
            decision = self._decide()
        if decision.again and self._go_on(decision.delay):
            return 0
        if decision.again:
            decision = policy.Decision("stopped", "cancelled in Slurm")
        end_job(self.job_dir, decision)
        files.remove(self.job_dir.alive)  # one file less on a file system that counts them
        return self._exit_code(decision)

    def _decide(self) -> policy.Decision:
        if os.path.exists(self.job_dir.stop):
            return policy.Decision("stopped", "stopped on request")
        return policy.decide(self.job, since_resumed(self.job, self.job_dir.records()))

    def _one_attempt(self) -> None:
        number = (self.job_dir.numbers() or [0])[-1] + 1
        record = self.job_dir.attempt(number)
        files.make_folder(record.path)
        self.job_dir.work = self._scratch(number)
        place = Place(None, locales.original_environment(), self._seconds())
        try:
            Supervisor(self.job_dir, record, self.job, place).run()
        except Exception as error:
            traceback.print_exc()
            record_own_failure(self.job_dir, number, error)

    def _scratch(self, number: int) -> str:
        """The work tree lies on the node's own disk, where there is one."""
        for variable in ("SLURM_TMPDIR", "TMPDIR"):
            folder = os.environ.get(variable, "")
            if folder and os.access(folder, os.W_OK):
                worktree.sweep(folder)
                name = "{}{}-{}".format(worktree.PREFIX, self.job_dir.id, number)
                return os.path.join(folder, name)
        return self.job_dir.work

    def _seconds(self) -> "Optional[float]":
        """How long the attempt may last: what was asked for, and what Slurm's clock leaves of it
        (it counts in whole minutes)."""
        asked = self.job["resources"]["time"]
        try:
            answer = call("squeue", "--noheader", "--job", self.number, "--format", "%L")
        except SlurmError as error:
            print("time left unknown: {}".format(error), flush=True)
            return float(asked) if asked else None
        left = parse_time_left(answer)
        limits = [float(asked)] if asked else []
        if left is not None:
            limits.append(max(left - SETTLING, left * 0.5))
        return min(limits) if limits else None

    def _account_for_lost_attempt(self) -> None:
        numbers = self.job_dir.numbers()
        if numbers and files.read_json(self.job_dir.attempt(numbers[-1]).outcome) is None:
            record_lost(self.job_dir, self.job, numbers[-1], "ended by Slurm or with its node")

    def _go_on(self, delay: float) -> bool:
        """See to the next attempt; False where somebody has cancelled the job."""
        state = self._state()
        if state == "CANCELLED":
            return False
        if state in REQUEUEING:
            return True  # Slurm sees to it by itself
        if state == "RUNNING" and self._requeue():
            self._postpone(delay)
        else:  # refused, or Slurm itself has ended this batch job: TIMEOUT, PREEMPTED, NODE_FAIL …
            submit(self.job_dir, dependency=self.number)
        return True

    def _state(self) -> str:
        """Waits for a controller that is being restarted: a run is not lost for that."""
        until = time.monotonic() + OUTAGE
        while True:
            state = job_state(self.number)
            if state or time.monotonic() > until:
                return state
            time.sleep(2.0)

    def _requeue(self) -> bool:
        """Slurm ends this batch job when it requeues it."""
        if self.job.get("scheduler", {}).get("resume_with") == "chain":
            return False
        try:
            call("scontrol", "requeue", self.number)
        except SlurmError as error:
            print("requeue was refused: {}".format(error), flush=True)
            return False
        return True

    def _postpone(self, delay: float) -> None:
        if delay < 1:
            return
        start = "StartTime=now+{:.0f}".format(delay)
        try:
            call("scontrol", "update", "JobId=" + self.number, start)
        except SlurmError as error:
            print("the pause before the retry could not be set: {}".format(error), flush=True)

    def _exit_code(self, end: policy.Decision) -> int:
        """So that Slurm's own records tell the truth too."""
        if end.state == "done":
            return 0
        records = self.job_dir.records()
        code = records[-1].get("exit_code") if records else None
        return int(code) if code else 1
