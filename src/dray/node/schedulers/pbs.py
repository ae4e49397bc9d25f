"""PBS (OpenPBS, PBS Pro, Torque): its commands, and how their answers are read.

The queue is asked for in two small queries: ``qselect`` names this user's batch jobs, and ``qstat``
describes these alone. ``qstat -f`` without ids would make the server send everybody's, megabytes on
a big machine, and the table of ``qstat -u`` cuts off what we need.
"""

import json
import os
import pwd
import re
import socket
import time

from . import scheduler
from .scheduler import SchedulerError, call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from ..formats.records import End, NodeShape, Record, Row, SiteFacts

    Attributes = Dict[str, str]

OUTPUT = re.compile(r"/jobs/([^/]+)/pbs\.log$")  # as the batch script has it
WAITING = ("Q", "H", "W", "T", "S", "U")
STATES = dict(dict.fromkeys(WAITING, "waiting"), R="running", B="running", E="ending")
RERUN = ("60", "61", "62", "63")  # substates of a batch job on its way back to the queue
ENDED_STATES = ("C", "F")  # states of a batch job that has ended, in Torque and in OpenPBS
DELETED = "91"  # substate
KILLED_BY_TERM = "271"  # exit status
GONE = (35, 153)  # exit codes: it has finished, it is not known
TRIES = 5
SUBMIT = ("qsub",)  # and behind it the script
KILL_DELAY = 10.0  # seconds, where a queue has no other
KILL_MARGIN = 5.0


# -- pure: reading answers ------------------------------------------------------------------------


def parse_blocks(text: str, head: str) -> "Dict[str, Attributes]":
    """Parse the output of ``qstat -f`` or ``pbsnodes``: a name behind ``head``, and below it lines
    of ``attribute = value``.

    A long value goes on in lines that begin with a tab. Slurm's own qstat begins its attributes
    with one, too; so the indentation of the first attribute is that of all."""
    found = {}  # type: Dict[str, Attributes]
    block, key, indent = None, "", ""  # type: Optional[Attributes], str, str
    for line in text.split("\n"):
        if not line.strip():
            continue
        if not line[0].isspace():
            if line.startswith(head):
                block, indent = found.setdefault(line[len(head) :].strip(), {}), ""
            continue  # else it is the rest of a value with a line break in it
        if block is None:
            continue
        parts = re.match(r"(\s+)([\w.-]+) = (.*)", line)
        if parts and parts.group(1) == (indent or parts.group(1)):
            indent, key = parts.group(1), parts.group(2)
            block[key] = parts.group(3)
        elif line.startswith("\t") and key in block:
            block[key] += line[1:]
    return found


def parse_jobs(text: str) -> "Dict[str, Attributes]":
    """Parse what ``qstat -f`` says of each batch job, in either of its formats."""
    if not text.lstrip().startswith("{"):
        return parse_blocks(text, "Job Id:")
    jobs = json.loads(text, strict=False).get("Jobs", {})
    return {number: flatten(attributes) for number, attributes in jobs.items()}


def flatten(attributes: "Record", prefix: str = "") -> "Attributes":
    """Join nested keys as the text format does: ``Resource_List.walltime``."""
    found = {}  # type: Attributes
    for key, value in attributes.items():
        if isinstance(value, dict):
            found.update(flatten(value, prefix + key + "."))
        else:
            found[prefix + key] = str(value)
    return found


def is_readable(text: str) -> bool:
    """Return whether the answer can be parsed. OpenPBS's JSON is not always valid: a value like 007
    is printed as if it were a number."""
    try:
        parse_jobs(text)
    except ValueError:
        return False
    return True


def parse_queue(text: str) -> "Dict[str, Row]":
    found = {}  # type: Dict[str, Row]
    # A successor is found, not the batch job that it waits for.
    for number, attributes in sorted(parse_jobs(text).items(), key=lambda item: serial(item[0])):
        state = STATES.get(attributes.get("job_state", ""))
        job = job_of(attributes)
        if state and job:
            start = attributes.get("estimated.start_time") or attributes.get("Execution_Time", "")
            found[job] = {"id": number, "state": state, "why": why(attributes), "start": start}
    return found


def count_alive(text: str) -> int:
    return sum(about.get("job_state") in STATES for about in parse_jobs(text).values())


def serial(number: str) -> int:
    """Parse the number of a batch job: '123[7].server' → 123."""
    digits = re.match(r"\d+", number)
    return int(digits.group()) if digits else 0


def job_of(attributes: "Attributes") -> str:
    """Return dray's id of a batch job, from the path of its output: names have at most 15
    characters."""
    path = attributes.get("Output_Path")
    if path is None:  # Slurm's own qstat does not tell it
        return attributes.get("Job_Name", "")
    found = OUTPUT.search(path)
    return found.group(1) if found else ""


def why(attributes: "Attributes") -> str:
    """Return a word for why the batch job waits, if its state tells; else the scheduler's
    comment."""
    state, comment = attributes.get("job_state"), attributes.get("comment", "")
    if state == "H" and attributes.get("depend"):
        return "Dependency"
    if state == "H":
        return "Held {} {}".format(attributes.get("Hold_Types", "-"), comment).strip()
    return {"W": "BeginTime", "S": "Suspended", "U": "Suspended"}.get(str(state), comment)


def parse_submitted(text: str) -> str:
    last = text.strip().splitlines()[-1].strip() if text.strip() else ""
    if not re.match(r"\d+(\[\])?(\.\S+)?$", last):
        raise SchedulerError("qsub did not print a job id: {!r}".format(text[:500]))
    return last


def submit_words(
    planned: "Sequence[str]", script: str, after: "Optional[str]", umask: int
) -> "List[str]":
    """Return the submission command: the plan's words, and what is known only here."""
    words = list(planned or SUBMIT) + ["-W", "umask={:03o}".format(umask)]
    if after:
        words += ["-W", "depend=afterany:" + after]
    return words + [script]


def parse_duration(text: str) -> "Optional[float]":
    """Parse '[[hours:]minutes:]seconds' to seconds."""
    parts = text.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds


def parse_time_left(attributes: "Attributes", now: float) -> "Optional[float]":
    """Return the seconds that are left of the time limit. The server hears of the used time only
    every few minutes, so the start time is more exact."""
    limit = parse_duration(attributes.get("Resource_List.walltime", ""))
    if limit is None:
        return None
    used = parse_duration(attributes.get("resources_used.walltime", "")) or 0.0
    for name in ("stime", "start_time"):
        try:
            started = time.mktime(time.strptime(attributes.get(name, ""), "%a %b %d %H:%M:%S %Y"))
        except ValueError:
            continue
        used = max(used, min(now - started, limit))
    return limit - used


def parse_batch_state(attributes: "Attributes", now: float) -> str:
    """Return the state of the batch job that the caller is in: if it is ending, or gone, somebody
    has ended it."""
    state = attributes.get("job_state", "")
    if state in ("Q", "H", "W", "T") or attributes.get("substate") in RERUN:
        return scheduler.REQUEUED
    left = parse_time_left(attributes, now)
    if left is not None and left <= 0:
        return scheduler.ENDED
    return scheduler.RUNNING if state in ("R", "B", "S", "U") else scheduler.CANCELLED


def parse_ends(text: str) -> "Dict[str, End]":
    """Find the ended batch jobs that somebody has deleted: PBS says so, or they have no exit
    status, as they never ran."""
    found = {}  # type: Dict[str, End]
    for number, attributes in parse_jobs(text).items():
        if attributes.get("job_state") not in ENDED_STATES:
            continue
        status = attributes.get("exit_status", attributes.get("Exit_status"))
        if attributes.get("substate") == DELETED or status in (None, KILLED_BY_TERM):
            found[number] = {"state": "stopped", "reason": "cancelled in PBS"}
    return found


def node_shapes(text: str) -> "List[NodeShape]":
    """Count the nodes of each sort that ``pbsnodes -a`` lists. It may list one node in parts."""
    hosts = {}  # type: Dict[str, List[Tuple[int, int, int]]]
    for name, node in parse_blocks(text, "").items():
        status = re.search(r"\b(?:physmem|availmem)=(\w+)", node.get("status", ""))
        part = (
            int(node.get("resources_available.ncpus", node.get("np", "0"))),
            kilobytes(node.get("resources_available.mem", status.group(1) if status else "0")),
            int(node.get("resources_available.ngpus", node.get("gpus", "0"))),
        )
        hosts.setdefault(node.get("resources_available.host", name), []).append(part)
    counts = {}  # type: Dict[Tuple[int, ...], int]
    for parts in hosts.values():
        shape = tuple(sum(part[at] for part in parts) for at in range(3))
        counts[shape] = counts.get(shape, 0) + 1
    return [
        {"cpus": shape[0], "kilobytes": shape[1], "gpus": shape[2], "nodes": count}
        for shape, count in sorted(counts.items())
    ]


def kilobytes(text: str) -> int:
    parts = re.match(r"(\d+)([kmgt]?)[bw]?$", text.lower())
    power = "kmgt".find(parts.group(2) or "?") if parts else 0
    return int(int(parts.group(1)) * 1024.0**power) if parts else 0


# -- asking ---------------------------------------------------------------------------------------


class Pbs(scheduler.Scheduler):
    name = "PBS"
    is_called = True

    def own_number(self) -> str:
        return os.environ["PBS_JOBID"]

    def own_place(self) -> "Dict[str, str]":
        return {"host": socket.gethostname()}

    def __init__(self) -> None:
        self._version = None  # type: Optional[str]

    def version(self, patience: float = scheduler.PATIENCE) -> str:
        """Return the version of the commands here; '' where they do not tell."""
        if self._version is None:
            try:
                words = ("qstat", "--version")
                self._version = call(*words, with_errors=True, patience=patience).strip()
            except SchedulerError:
                self._version = ""
        return self._version

    def _full(self, numbers: "List[str]", patience: float = scheduler.PATIENCE) -> str:
        if "pbs_version" in self.version(patience):  # Torque has no such format
            words = ["qstat", "-f", "-F", "json"] + numbers
            text = call(*words, fine=GONE, patience=patience)
            if is_readable(text):
                return text
        return call("qstat", "-f", *numbers, fine=GONE, patience=patience)

    def _attributes(self, number: str, patience: float = scheduler.PATIENCE) -> "Attributes":
        for attributes in parse_jobs(self._full([number], patience)).values():
            return attributes
        return {}

    def _own_numbers(self) -> "List[str]":
        return call("qselect", "-u", pwd.getpwuid(os.getuid()).pw_name).split()

    def read_queue(self) -> str:
        """Ask for the user's batch jobs, then for their attributes; repeat if a batch job ended
        between the two queries, as it may have left a successor."""
        numbers = self._own_numbers()
        text = ""
        for _ in range(TRIES):
            text = self._full(numbers) if numbers else ""
            if count_alive(text) == len(numbers):
                break
            known, numbers = numbers, self._own_numbers()
            if set(numbers) <= set(known):
                break
        return text

    def parse_queue(self, text: str) -> "Dict[str, Row]":
        return parse_queue(text)

    def number_of(self, row: "Row", job_id: str) -> str:  # noqa: ARG002
        return str(row["id"])

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,
        keep_open: "Tuple[int, ...]" = (),
        planned: "Sequence[str]" = (),
    ) -> str:
        words = submit_words(planned, script, after, scheduler.umask_of_jobs())
        return parse_submitted(call(*words, keep_open=keep_open))

    def cancel(self, numbers: "List[str]") -> None:
        try:
            call("qdel", *numbers)
        except SchedulerError:  # some may have ended by themselves this moment
            still = [self._attributes(one).get("job_state") for one in numbers]
            if any(state in WAITING + ("R",) for state in still):
                raise

    def interrupt(self, number: str) -> None:
        try:
            call("qsig", "-s", "INT", number)
        except SchedulerError:
            pass

    def time_left(self, number: str, patience: float = scheduler.PATIENCE) -> "Optional[float]":
        return parse_time_left(self._attributes(number, patience), time.time())

    def batch_state(self, number: str) -> str:
        try:
            return parse_batch_state(self._attributes(number), time.time())
        except SchedulerError:
            return scheduler.UNKNOWN

    def kill_delay(self, number: str) -> float:
        """Return how long PBS takes to kill a deleted batch job: it does not show the deletion
        until then."""
        delay = None
        try:
            queue = self._attributes(number).get("queue", "")
            for attributes in parse_blocks(call("qstat", "-Q", "-f", queue), "Queue:").values():
                delay = parse_duration(attributes.get("kill_delay", ""))
        except SchedulerError:
            pass
        return (KILL_DELAY if delay is None else delay) + KILL_MARGIN

    def ends(self, numbers: "List[str]") -> "Dict[str, End]":
        history = ["-x"] if "pbs_version" in self.version() else []
        try:
            return parse_ends(call("qstat", "-f", *(history + numbers), fine=GONE))
        except SchedulerError:
            return {}

    def requeue(self, number: str) -> None:
        call("qrerun", number)

    def postpone(self, number: str, seconds: float) -> None:
        start = time.strftime("%Y%m%d%H%M.%S", time.localtime(time.time() + seconds))
        call("qalter", "-a", start, number)

    def describe(self) -> "SiteFacts":
        told = scheduler.ask_each({"queues": ("qstat", "-Q", "-f")})
        version = self.version()
        nodes = scheduler.ask_each({"nodes": ("pbsnodes", "-a")})
        found = {
            "version": version.replace("\n", ", "),
            "dialect": "openpbs" if "pbs_version" in version else "torque",
            "queues": parse_blocks(told.get("queues", ""), "Queue:"),
            "nodes": node_shapes(nodes.get("nodes", "")),
        }  # type: SiteFacts
        if "queues_error" in told:
            found["queues_error"] = told["queues_error"]
        return found

    def questions(self) -> "Dict[str, List[str]]":
        """Return what is asked. Everybody's jobs come as a table: the long form would be megabytes
        on a big machine."""
        return {
            "queue": ["qstat", "-a"],
            "queues": ["qstat", "-Q", "-f"],
            "nodes": ["pbsnodes", "-a"],
        }

    def questions_about(self, number: str) -> "Dict[str, List[str]]":
        return {"job": ["qstat", "-f", number]}
