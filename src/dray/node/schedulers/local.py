"""The queue of a machine without a scheduler, with a scheduler's interface: see ``queue``.

A job is submitted by starting its keeper, which outlives the agent. The lock that the keeper holds
shows that it is there, so a job is submitted once: a retry finds the lock taken. A batch job's
number is the name of its first ticket."""

import json
import os
import signal
import time

from ..formats import files, shapes
from ..jobs import following
from ..jobs.jobdir import JobDir
from . import rows
from .queue import Queue, Unusable, place_in, queue_of, queued_here
from .scheduler import Scheduler, SchedulerError, call
from .slots import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from ..formats.records import (  # noqa: F401
        Capacity,
        Description,
        Granted,
        Machine,
        MachineQueue,
        NodeShape,
        QueuedHere,
        Request,
        Row,
        SchedulerSettings,
        SiteFacts,
    )

LEAVING = 5.0  # seconds for a keeper that is on its way out


# -- pure ---------------------------------------------------------------------------------------


def job_of(number: str) -> str:
    """Return the job whose number this is."""
    return number.partition("-")[2]


def capacity_of(
    machine: "Machine", declared: "SchedulerSettings", known: "Capacity", gpus: bool
) -> "Capacity":
    """Return what jobs may use: what the settings declare, else what the machine has. GPUs are
    counted only for a job that asks for some, so a number known from before may be greater."""
    found = {
        "cpus": declared_or(declared.get("cpus"), machine["cpus"]),
        "memory": declared_or(declared.get("memory"), machine["memory"]),
        "gpus": declared_or(declared.get("gpus"), machine["gpus"]),
    }  # type: Capacity
    if not gpus and declared.get("gpus") is None:
        found["gpus"] = max(found["gpus"], known.get("gpus") or 0)
    return found


def share_of(job: "Optional[Description]") -> "Optional[str]":
    """Return the folder through which the job's account shares the machine, if it does."""
    return job.get("share") if job else None


def declared_or(declared: "Optional[int]", found: int) -> int:
    return found if declared is None else declared


# -- acting -------------------------------------------------------------------------------------


class View:
    """A queue as it is at one moment. One that cannot be looked at, because its folder is closed or
    a job's description names another, hides no job of the others."""

    def __init__(self, queue: Queue) -> None:
        self.holders = {}  # type: Dict[str, Granted]
        self.line = []  # type: List[str]
        self.lacking = self.problem = ""
        try:
            self.holders = queue.holders()
            self.line, self.lacking = queue.waiting()
        except OSError as error:
            self.problem = "the queue cannot be looked at: {}".format(error)

    def row(self, job_dir: JobDir, number: str) -> "Row":
        name, why = job_dir.id, self.problem
        if name in self.line:
            why = place_in(self.line, self.line.index(name), self.lacking)
        elif name not in self.holders and not job_dir.numbers():
            why = why or following.in_words(job_dir.root, job_dir.description())
        is_running = name in self.holders or (self.problem and job_dir.numbers())
        return {"id": number, "state": "running" if is_running else "waiting", "why": why}


class Local(Scheduler):
    name = "this machine's queue"
    why_gone = "killed, or the machine was restarted"

    def __init__(self, root: str) -> None:
        self.root = root
        self.share = None  # type: Optional[str]

    def hear(self, request: "Request") -> None:
        share = request.get("share")
        self.share = share if shapes.is_text(share) else None

    def way_to(self, place: "Dict[str, str]") -> "List[str]":
        del place
        return []  # whoever asks is there already

    def read_queue(self) -> str:
        return json.dumps(self._rows())

    def parse_queue(self, text: str) -> "Dict[str, Row]":
        return rows.parse(text)

    def _rows(self) -> "Dict[str, Row]":
        jobs = os.path.join(self.root, "jobs")
        views, held = {}, Held(self.root)  # type: Dict[Optional[str], View], Held
        found = {}  # type: Dict[str, Row]
        for name in filter(shapes.is_id, files.names_in(jobs)):
            job_dir = JobDir(os.path.join(jobs, name))
            if files.exists(job_dir.end) or not job_dir.is_supervised():
                continue
            job = job_dir.description()
            share = share_of(job)
            if share not in views:
                views[share] = View(queue_of(self.root, share))
            number = job_dir.known_number() or "0-" + name
            row = found[name] = views[share].row(job_dir, number)
            if row["state"] == "waiting" and not row["why"] and job is not None:
                row["why"] = held.why(name, job.get("sweep"))
        return found

    def number_of(self, row: "Row", job_id: str) -> str:  # noqa: ARG002
        return str(row["id"])

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,  # noqa: ARG002
        keep_open: "Tuple[int, ...]" = (),  # noqa: ARG002
        planned: "Sequence[str]" = (),  # noqa: ARG002
    ) -> str:
        """Start the job's keeper; return the name of its ticket. The keeper itself waits for an
        image that is being converted, so ``after`` is not used; nor is ``keep_open``, which it
        would hold open for as long as it lives."""
        job_dir = JobDir(os.path.dirname(script))
        job = job_dir.description()
        queue = queue_of(self.root, share_of(job), job.get("order") if job else None)
        alive = self._take_over(job_dir)
        try:
            self._prepare(queue, job)
            ticket = queue.take_ticket(job_dir.id, job["resources"] if job else {})
            try:
                number = queue.ticket_name(ticket)
                self._start_keeper(queue, job_dir, alive, ticket)
            finally:
                os.close(ticket)
        except Unusable as error:
            raise SchedulerError(str(error))
        finally:
            os.close(alive)
        return number

    def _take_over(self, job_dir: JobDir) -> int:
        alive = files.open_lock(job_dir.alive)
        until = time.monotonic() + LEAVING
        try:
            while not files.try_lock(alive):
                if time.monotonic() > until:
                    raise SchedulerError("{} is run by another process".format(job_dir.id))
                time.sleep(0.02)
        except BaseException:
            os.close(alive)
            raise
        return alive

    def _prepare(self, queue: Queue, job: "Optional[Description]") -> None:
        """Write down what the machine has."""
        queue.make()
        wants_gpus = job is not None and (job["resources"].get("gpus") or 0) > 0
        declared = (job.get("scheduler") if job else None) or {}
        count = wants_gpus and declared.get("gpus") is None
        known = queue.read_capacity()
        capacity = capacity_of(machine(count), declared, known, wants_gpus)
        if capacity != known:
            files.write_json(queue.capacity, capacity)

    def _start_keeper(self, queue: Queue, job_dir: JobDir, alive: int, ticket: int) -> None:
        """Start the keeper, and return once it has taken charge: its script ends then."""
        words = ("bash", "-l", job_dir.script, str(alive), str(ticket))
        log = job_dir.batch_log
        before = os.path.getsize(log) if files.exists(log) else 0
        try:
            call(*words, keep_open=(alive, ticket))
        except SchedulerError as error:
            queue.remove_ticket(ticket)
            # The script's own complaint is the last line; what a program has said is before it.
            said = files.last_lines(log, 2, before)
            raise type(error)("; ".join(reversed(said)) or str(error))

    def cancel(self, numbers: "List[str]") -> None:
        for number in numbers:
            self.interrupt(number)

    def interrupt(self, number: str) -> None:
        """Wake the keeper, or its supervisor."""
        if not shapes.is_id(job_of(number)):
            return
        job_dir = JobDir(os.path.join(self.root, "jobs", job_of(number)))
        pid = job_dir.keeper_pid()
        if pid is None or not job_dir.is_supervised():
            return
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass

    def questions(self) -> "Dict[str, List[str]]":
        return {"machine": []}

    def answer(self, words: "List[str]") -> str:  # noqa: ARG002
        """Return the queue as JSON: that of the account itself, or of all who share the machine."""
        return json.dumps(overview(self.root, self.share))

    def describe(self) -> "SiteFacts":
        have = machine(gpus=True)
        shape = {
            "nodes": 1,
            "cpus": have["cpus"],
            "kilobytes": have["memory"] >> 10,
            "gpus": have["gpus"],
        }  # type: NodeShape
        return {"nodes": [shape]}


def overview(root: str, share: "Optional[str]") -> "MachineQueue":
    """Return who waits for this machine and who has it, and what it has."""
    queue = queue_of(root, share)
    return {"capacity": queue.read_capacity(), "jobs": queue.overview() + held_here(root)}


def held_here(root: str) -> "List[QueuedHere]":
    """Return the trials that wait for their sweep alone."""
    found, held = [], Held(root)  # type: List[QueuedHere], Held
    for name in filter(shapes.is_id, held.everywhere()):
        job = JobDir(os.path.join(root, "jobs", name)).description()
        if job is not None:
            one = queued_here(name, os.getuid(), "waiting", job["resources"])
            one["held"] = held.why(name, job.get("sweep"))
            found.append(one)
    return found


def machine(gpus: bool) -> "Machine":
    """Return what this machine has; GPUs are counted only with ``gpus``."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpus": os.cpu_count() or 1, "memory": memory, "gpus": count_gpus() if gpus else 0}


def count_gpus() -> int:
    """Return how many GPUs nvidia-smi lists; 0 where it is missing or does not answer."""
    try:
        listing = call("nvidia-smi", "--list-gpus", patience=20.0)
    except (SchedulerError, OSError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.splitlines())
