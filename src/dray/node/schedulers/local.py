"""The queue of a machine without a scheduler, in the shape of one: see ``queue``.

A job is submitted by starting its keeper, which outlives the agent. Whether it is there is told by
the lock that the keeper holds, so a job is submitted once: a retry finds the lock taken. A batch
job's number is the name of its first ticket.
"""

import json
import os
import signal
import time

from ..formats import files, shapes
from ..jobs.jobdir import JobDir
from .queue import Queue, Unusable, place_in, queue_of
from .scheduler import Scheduler, SchedulerError, call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    Record = Dict[str, Any]

LEAVING = 5.0  # seconds for a keeper that is on its way out
ROW = {"id": shapes.is_text, "state": shapes.is_text, "why": shapes.is_text}


# -- pure ---------------------------------------------------------------------------------------


def job_of(number: str) -> str:
    """The job whose number this is."""
    return number.partition("-")[2]


def capacity_of(machine: "Record", declared: "Record", known: "Record", gpus: bool) -> "Record":
    """What jobs may use: what the settings declare, else what the machine has. GPUs are counted
    only for a job that asks for some, so what is known of them may be more."""
    found = {}
    for what in ("cpus", "memory", "gpus"):
        given = declared.get(what)
        found[what] = machine[what] if given is None else given
    if not gpus and declared.get("gpus") is None:
        found["gpus"] = max(found["gpus"], known.get("gpus") or 0)
    return found


# -- acting -------------------------------------------------------------------------------------


class View:
    """A queue as it is at one moment."""

    def __init__(self, queue: Queue) -> None:
        self.holders = queue.holders()
        self.line, self.lacking = queue.waiting()

    def row(self, name: str) -> "Record":
        why = place_in(self.line, self.line.index(name), self.lacking) if name in self.line else ""
        return {"state": "running" if name in self.holders else "waiting", "why": why}


class Local(Scheduler):
    name = "this machine's queue"

    def __init__(self, root: str) -> None:
        self.root = root

    def read_queue(self) -> str:
        return json.dumps(self._rows())

    def parse_queue(self, text: str) -> "Dict[str, Record]":
        """The text may have lain in a file."""
        try:
            rows = json.loads(text)
        except ValueError:
            return {}
        if not isinstance(rows, dict):
            return {}
        return {
            name: dict(row, start="")
            for name, row in rows.items()
            if shapes.is_id(name) and isinstance(row, dict) and shapes.fits(row, ROW, ROW)
        }

    def _rows(self) -> "Dict[str, Record]":
        jobs = os.path.join(self.root, "jobs")
        views = {}  # type: Dict[Optional[str], View]
        found = {}
        for name in filter(shapes.is_id, files.names_in(jobs)):
            job_dir = JobDir(os.path.join(jobs, name))
            if files.exists(job_dir.end) or not job_dir.is_supervised():
                continue
            share = (job_dir.description() or {}).get("share")
            if share not in views:
                views[share] = View(queue_of(self.root, share))
            number = job_dir.known_number() or "0-" + name
            found[name] = dict(views[share].row(name), id=number)
        return found

    def number_of(self, row: "Record", job_id: str) -> str:  # noqa: ARG002
        return str(row["id"])

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,  # noqa: ARG002
        keep_open: "Tuple[int, ...]" = (),  # noqa: ARG002
        planned: "Sequence[str]" = (),  # noqa: ARG002
    ) -> str:
        """The keeper waits by itself for an image that is being made, and holds nothing open that
        is not its own: it would do so for as long as it lives."""
        job_dir = JobDir(os.path.dirname(script))
        job = job_dir.description() or {}
        queue = queue_of(self.root, job.get("share"))
        alive = self._take_over(job_dir)
        try:
            self._prepare(queue, job)
            ticket = queue.take_ticket(job_dir.id, job.get("resources") or {})
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
        while not files.try_lock(alive):
            if time.monotonic() > until:
                os.close(alive)
                raise SchedulerError("{} is run by another process".format(job_dir.id))
            time.sleep(0.02)
        return alive

    def _prepare(self, queue: Queue, job: "Record") -> None:
        """Write down what the machine has."""
        queue.make()
        wants_gpus = ((job.get("resources") or {}).get("gpus") or 0) > 0
        declared = job.get("scheduler") or {}
        count = wants_gpus and declared.get("gpus") is None
        known = queue.read_capacity()
        capacity = capacity_of(machine(count), declared, known, wants_gpus)
        if capacity != known:
            files.write_json(queue.capacity, capacity)

    def _start_keeper(self, queue: Queue, job_dir: JobDir, alive: int, ticket: int) -> None:
        """Return once it has taken charge: its script ends when the keeper is on its own."""
        words = ("bash", "-l", job_dir.script, str(alive), str(ticket))
        try:
            call(*words, keep_open=(alive, ticket))
        except SchedulerError as error:
            queue.remove_ticket(ticket)
            raise type(error)(files.last_line(job_dir.batch_log) or str(error))

    def cancel(self, numbers: "List[str]") -> None:
        for number in numbers:
            self.interrupt(number)

    def interrupt(self, number: str) -> None:
        """Wake the keeper, or the supervisor that it has."""
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

    def describe(self) -> "Record":
        have = machine(gpus=True)
        shape = {"nodes": 1, "cpus": have["cpus"], "gpus": have["gpus"]}
        return {"nodes": [dict(shape, kilobytes=have["memory"] >> 10)]}


def machine(gpus: bool) -> "Record":
    """What this machine has; ``gpus``: whether they are counted."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpus": os.cpu_count() or 1, "memory": memory, "gpus": count_gpus() if gpus else 0}


def count_gpus() -> int:
    """As many as nvidia-smi lists; none where it is missing or does not answer."""
    try:
        listing = call("nvidia-smi", "--list-gpus", patience=20.0)
    except (SchedulerError, OSError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.splitlines())
