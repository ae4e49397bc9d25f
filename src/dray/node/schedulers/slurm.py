"""Slurm: its commands, and how their answers are read."""

import collections
import math
import os
import pwd
import re

from ..jobs import arrays
from ..processes import layout
from . import scheduler
from .scheduler import SchedulerError, call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple  # noqa: F401

    from ..formats.records import Description, End, Row, SiteFacts

SUBMIT = ("sbatch", "--parsable")  # and behind it the script
SEPARATOR = "\x1f"
QUEUE_FORMAT = SEPARATOR.join(("%F", "%K", "%j", "%T", "%r", "%S"))
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED")
STATES = dict(dict.fromkeys(WAITING, "waiting"), RUNNING="running", CONFIGURING="running")
LOST = {
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "its deadline in Slurm passed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "it was preempted and not requeued",
    "TIMEOUT": "Slurm's time limit ended it",
}
CONFIG = ("JobRequeue", "KillWait", "MaxArraySize", "PreemptMode")
# The name of an array of which several jobs share a batch job: its id, and how many.
SHARED = re.compile(r"(.+):([0-9]{1,3})$")
INDICES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?$")
WHOLE_LISTS = {"SLURM_BITSTR_LEN": "0"}  # else squeue cuts an array's indices at 64 characters
# One that Slurm requeues for it has no end any more.
PREEMPTED_AND_ENDED = re.compile(r"\bEndTime=\d.*\bPreemptTime=\d")
# What people ask of the queue, in columns. Not --json, which differs from version to version.
LISTED = ("%A", "%i", "%u", "%a", "%P", "%q", "%T", "%Q", "%S", "%l", "%L", "%D", "%b", "%V", "%N")
LIST_FORMAT = SEPARATOR.join(LISTED + ("%j", "%r"))
# Only in the long format, which is padded: the same fields are cut out by their widths again.
GPU_WIDTHS = (("JobID", 14), ("tres-per-job", 40), ("tres-alloc", 120))
NODE_WIDTHS = (
    ("NodeList", 40),
    ("Partition", 40),
    ("StateLong", 20),
    ("Gres", 80),
    ("GresUsed", 80),
    ("Reason", 60),
)
SHARES = "Account,User,NormShares,EffectvUsage,FairShare,LevelFS"
MOST_AWAITED = 20  # jobs of one array that a batch job waits for one by one
MOST_ASKED = 20  # batch jobs of which the controller is asked one by one
COMING_BACK = ("COMPLETING", "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED")


# -- pure: reading answers ------------------------------------------------------------------------


def parse_queue(text: str) -> "Dict[str, Row]":
    """Parse squeue's answer. The jobs of an array share a line while they wait. Of two batch jobs
    of one job the later one counts: it is the other one's successor. One that several jobs share
    does not count for a job that has one by itself: it was resumed alone, and for good."""
    own, shared = {}, {}  # type: Dict[str, Row], Dict[str, Row]
    for line in sorted(text.splitlines(), key=serial):
        parts = line.split(SEPARATOR)
        if len(parts) != 6:
            continue
        number, indices, name, state, why, start = parts
        row = {"id": number, "state": STATES.get(state, "ending")}  # type: Row
        row["why"], row["start"], row["array"] = why, start, indices != "N/A"
        names = names_in(row, name, indices) if row["array"] else [name]
        found = shared if row.get("per_node") else own
        if row["state"] == "ending":  # its successor is what is to be found
            names = [one for one in names if one not in found]
        found.update(dict.fromkeys(names, row))
    return dict(shared, **own)


def array_name(array: str, per_node: int) -> str:
    """Return the name that an array has in Slurm; ``parse_queue`` finds out from it which jobs a
    batch job is for."""
    return "{}:{}".format(array, per_node) if per_node > 1 else array


def split_name(name: str) -> "Tuple[str, int]":
    """Return the array, and how many of its jobs share a batch job."""
    found = SHARED.match(name)
    per_node = int(found.group(2)) if found else 1
    if found is None or not 1 < per_node <= arrays.MOST_PER_NODE:
        return name, 1
    return found.group(1), per_node


def names_in(row: "Row", name: str, indices: str) -> "List[str]":
    """List the jobs of an array that a line of squeue's is for; note in the row how many share a
    batch job. A last one may not be full: ids of jobs that do not exist do no harm."""
    array, per_node = split_name(name)
    if per_node > 1:
        row["per_node"] = per_node
    firsts = parse_indices(indices, arrays.MOST_JOBS // per_node)
    return [arrays.job_id(array, first + at) for first in firsts for at in range(per_node)]


def serial(line: str) -> int:
    number = line.partition(SEPARATOR)[0]
    return int(number) if re.match("[0-9]{1,18}$", number) else 0


def number_of(row: "Row", job_id: str) -> str:
    """Return Slurm's id of the job itself; its row may be shared by many."""
    place = arrays.split(job_id) if row["array"] else None
    if place is None:
        return str(row["id"])
    return "{}_{}".format(row["id"], arrays.first_in_task(place[1], row.get("per_node", 1)))


def parse_indices(text: str, most: int = arrays.MOST_JOBS) -> "Iterator[int]":
    """Parse '7', '3-5,9', '0-98:2' or '8-999%4' to indices; the number after % is how many run at
    once. Raises SchedulerError for anything else, as jobs that are left out would pass for not
    queued."""
    for part in text.partition("%")[0].split(","):
        found = INDICES.match(part)
        if found is None:
            raise SchedulerError("squeue's list of indices is not understood: " + text[:500])
        first, last, step = (int(one) if one else 0 for one in found.groups())
        indices = range(first, max(first, last) + 1, step or 1)
        most -= len(indices)
        if most < 0:
            raise SchedulerError("squeue lists more indices than there can be: " + text[:500])
        for index in indices:
            yield index


def fold_numbers(numbers: "Iterable[str]") -> "List[str]":
    """Combine the jobs of an array, 14_0, 14_1, 15 → 14_[0,1], 15: scancel cancels what is in
    brackets in one step."""
    alone = []
    indices = {}  # type: Dict[str, List[str]]
    for number in numbers:
        array, _, index = number.partition("_")
        if index:
            indices.setdefault(array, []).append(index)
        else:
            alone.append(number)
    return alone + ["{}_[{}]".format(array, ",".join(indices[array])) for array in indices]


def parse_submitted(text: str) -> str:
    """Parse what ``sbatch --parsable`` prints: the id, and behind a semicolon the cluster."""
    last = text.strip().splitlines()[-1] if text.strip() else ""
    number = last.split(";")[0]
    if not number.isdigit():
        raise SchedulerError("sbatch did not print a job id: {!r}".format(text[:500]))
    return number


def parse_time_left(text: str) -> "Optional[float]":
    """Parse squeue's %L, [days-][hours:]minutes:seconds, to seconds; None where there is no
    limit."""
    text = text.strip()
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + int(days or 0) * 86400


def submit_words(
    planned: "Sequence[str]", script: str, after: "Optional[str]" = None
) -> "List[str]":
    """Return the submission command: the plan's words, and what is known only here."""
    words = list(planned or SUBMIT)
    if after:
        words.append("--dependency=afterany:" + after)
    return words + [script]


def fold_awaited(numbers: "Iterable[str]") -> "List[str]":
    """Take an array as a whole where many of its jobs are awaited: a command line has an end."""
    found = list(dict.fromkeys(one for one in numbers if one))
    jobs = collections.Counter(one.partition("_")[0] for one in found)
    whole = {array for array, number in jobs.items() if number > MOST_AWAITED}
    array_of = [(one.partition("_")[0], one) for one in found]
    return list(dict.fromkeys(array if array in whole else one for array, one in array_of))


def minutes(seconds: float) -> int:
    """Return a time limit as sbatch counts it."""
    return math.ceil(seconds / 60.0)


def srun_words(job: "Description") -> "List[str]":
    """Return the call of srun. Every flag is explicit, as a user's environment may hold other
    defaults."""
    return [
        "srun",
        "--nodes={}".format(layout.nodes_of(job)),
        "--ntasks={}".format(layout.tasks_of(job)),
        "--ntasks-per-node={}".format(layout.tasks_per_node(job)),
        "--cpus-per-task={}".format(layout.cpus_per_task(job)),
        "--export=ALL",
        "--input=all",
        "--output=all",
        "--error=all",
        "--kill-on-bad-exit=1",
    ]


def overlapping_words(number: str, node: str) -> "List[str]":
    """Return the call of srun that starts a small program beside a running job, and takes nothing
    away from it. Every flag is explicit, as a user's environment may hold other defaults."""
    return [
        "srun",
        "--jobid=" + number,
        "--overlap",
        "--quiet",
        "--unbuffered",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=1",
        "--nodelist=" + node,
        "--mem=0",
        "--gres=none",
        "--mpi=none",
        "--chdir=/",
        "--export=ALL",
        "--input=all",
        "--output=all",
        "--error=all",
    ]


def parse_batch_state(text: str) -> str:
    """Parse the state that ``scontrol show job`` prints."""
    found = re.search(r"\bJobState=(\w+)", text)
    state = found.group(1) if found else ""
    if state == "RUNNING":
        return scheduler.RUNNING
    if state == "CANCELLED":
        return scheduler.CANCELLED
    if state == "COMPLETING" and ("Reason=TimeLimit" in text or PREEMPTED_AND_ENDED.search(text)):
        return scheduler.ENDED
    if state in COMING_BACK:
        return scheduler.REQUEUED
    return scheduler.ENDED if state else scheduler.UNKNOWN


def parse_config(text: str) -> "Dict[str, str]":
    """Return the settings in ``scontrol show config`` that dray's jobs depend on."""
    found = re.findall(r"^(\w+)\s*= (.*)$", text, re.M)
    return {name: value.strip() for name, value in found if name in CONFIG}


def parse_ends(text: str, name_of: "Callable[[str], str]") -> "Dict[str, End]":
    """Parse sacct's answer; ``name_of`` resolves a user's number. The jobs of an array that never
    started share a line, '7_[3-9]', and are found by the array's number."""
    found = {}  # type: Dict[str, End]
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 3:
            number, state, code = parts
            state, _, canceller = state.partition(" by ")
            end = parse_end(state, code.partition(":")[0], name_of(canceller) if canceller else "")
            found.update({number.partition("_[")[0]: end} if end else {})
    return found


def parse_remembered(text: str, wanted: "Iterable[str]") -> "Dict[str, End]":
    """Parse scontrol's answer, which covers only the last minutes. Failures are left out: the job's
    own output says more than that it failed. Jobs of an array that never started are found by the
    array's number."""
    found = {}  # type: Dict[str, End]
    for line in text.splitlines():
        about = dict(re.findall(r"\b(JobId|ArrayJobId|ArrayTaskId|JobState)=(\S+)", line))
        number, array = about.get("JobId", ""), about.get("ArrayJobId", "")
        if array and array != number:
            number = "{}_{}".format(array, about.get("ArrayTaskId"))
        end = parse_end(about.get("JobState", ""), "", "")
        if end and number in wanted and end["state"] != "failed":
            found[number] = end
    return found


def parse_end(state: str, code: str, canceller: str) -> "Optional[End]":
    """Describe an end; None where the batch job has not ended, or ended as it should."""
    if state == "CANCELLED":
        reason = "cancelled in Slurm" + (" by " + canceller if canceller else "")
        return {"state": "stopped", "reason": reason}
    if state == "FAILED":
        return {"state": "failed", "reason": "its batch script ended with exit code " + code}
    return {"state": "lost", "reason": LOST[state]} if state in LOST else None


# -- asking ---------------------------------------------------------------------------------------


class Slurm(scheduler.Scheduler):
    name = "Slurm"

    def own_number(self) -> str:
        array, index = (os.environ.get("SLURM_ARRAY_" + name) for name in ("JOB_ID", "TASK_ID"))
        return "{}_{}".format(array, index) if array else os.environ["SLURM_JOB_ID"]

    def own_index(self) -> int:
        return int(os.environ["SLURM_ARRAY_TASK_ID"])

    def own_cpus(self) -> "Optional[int]":
        number = os.environ.get("SLURM_CPUS_ON_NODE", "")
        return int(number) if re.match("[0-9]{1,6}$", number) else None

    def words_for_task(self, index: int) -> "List[str]":
        return ["--array={}".format(index)]

    def read_queue(self) -> str:
        me = str(os.getuid())
        words = ("squeue", "--noheader", "--user", me, "--format", QUEUE_FORMAT)
        return call(*words, env=WHOLE_LISTS)

    def parse_queue(self, text: str) -> "Dict[str, Row]":
        return parse_queue(text)

    def number_of(self, row: "Row", job_id: str) -> str:
        return number_of(row, job_id)

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,
        keep_open: "Tuple[int, ...]" = (),
        planned: "Sequence[str]" = (),
    ) -> str:
        return parse_submitted(call(*submit_words(planned, script, after), keep_open=keep_open))

    def awaiting(self, numbers: "Sequence[str]") -> str:
        return ":".join(fold_awaited(numbers))

    def cancel(self, numbers: "List[str]") -> None:
        call("scancel", *fold_numbers(numbers))

    def interrupt(self, number: str) -> None:
        if "_" in number:  # Slurm 22.05 hangs or fails on signals to one job of an array
            return
        try:
            call("scancel", "--batch", "--signal=INT", number)
        except SchedulerError:  # it ended this moment
            pass

    def launcher(self, job: "Description") -> "List[str]":
        return srun_words(job)

    def task_position(self) -> layout.TaskPosition:
        env = os.environ
        rank, local, node = (int(env["SLURM_" + name]) for name in ("PROCID", "LOCALID", "NODEID"))
        address = env.get("SLURM_LAUNCH_NODE_IPADDR", "")
        return layout.TaskPosition(rank, local, node, env["SLURMD_NODENAME"], address)

    def own_place(self) -> "Dict[str, str]":
        return {"number": os.environ["SLURM_JOB_ID"], "node": os.environ["SLURMD_NODENAME"]}

    def way_to(self, place: "Dict[str, str]") -> "List[str]":
        number, node = place.get("number"), place.get("node")
        if not (isinstance(number, str) and re.match("[0-9]{1,18}$", number)):
            raise SchedulerError("the job does not say which batch job it is")
        if not (isinstance(node, str) and re.match(r"[A-Za-z0-9][\w.-]{0,254}$", node)):
            raise SchedulerError("the job does not say which node it is on")
        return overlapping_words(number, node)

    def time_left(self, number: str, patience: float = scheduler.PATIENCE) -> "Optional[float]":
        words = ("squeue", "--noheader", "--job", number, "--format", "%L")
        return parse_time_left(call(*words, patience=patience))

    def batch_state(self, number: str) -> str:
        try:
            return parse_batch_state(call("scontrol", "--oneliner", "show", "job", number))
        except SchedulerError:
            return scheduler.UNKNOWN

    def ends(self, numbers: "List[str]") -> "Dict[str, End]":
        jobs = sorted({number.partition("_")[0] for number in numbers})
        wanted = ("--format", "JobID,State,ExitCode", "--jobs", ",".join(jobs))
        try:
            text = call("sacct", "--noheader", "--parsable2", "--allocations", *wanted)
        except SchedulerError:
            return self._remembered(jobs[:MOST_ASKED], numbers)
        return parse_ends(text, user_name)

    def _remembered(self, jobs: "List[str]", numbers: "List[str]") -> "Dict[str, End]":
        """Ask the controller, which remembers the last minutes, where no accounting is kept."""
        found = {}  # type: Dict[str, End]
        for job in jobs:
            try:
                text = call("scontrol", "--oneliner", "show", "job", job)
            except SchedulerError:  # forgotten
                continue
            found.update(parse_remembered(text, numbers))
        return found

    def requeue(self, number: str) -> None:
        call("scontrol", "requeue", number)

    def postpone(self, number: str, seconds: float) -> None:
        start = "StartTime=now+{:.0f}".format(seconds)
        call("scontrol", "update", "JobId=" + number, start)

    def restore_time(self, number: str, seconds: float, whole: bool) -> None:
        words = ["JobId=" + number, "TimeLimit={}".format(minutes(seconds))]
        call("scontrol", "update", *(words + (["TimeMin=0"] if whole else [])))

    def describe(self) -> "SiteFacts":
        user = "user=" + pwd.getpwuid(os.getuid()).pw_name
        told = scheduler.ask_each(
            {
                "accounts": ("sacctmgr", "-nP", "show", "assoc", user, "format=Account"),
                "slurm": ("sinfo", "--version"),
                "partitions": ("sinfo", "--all", "--noheader", "--format", "%P|%a|%l|%D|%c|%m|%G"),
                "config": ("scontrol", "show", "config"),
            }
        )
        found = dict(told, config=parse_config(told.get("config", "")))  # type: Any
        facts = found  # type: SiteFacts
        return facts  # noqa: RET504 (this names its type)

    def questions(self) -> "Dict[str, List[str]]":
        me = pwd.getpwuid(os.getuid()).pw_name
        jobs = ["squeue", "--noheader", "--all", "--states", "PENDING,CONFIGURING,RUNNING"]
        return {
            "queue": jobs + ["--format", LIST_FORMAT],
            "gpus": jobs + ["--Format", long_format(GPU_WIDTHS)],
            "nodes": ["sinfo", "--Node", "--all", "--noheader", "-O", long_format(NODE_WIDTHS)],
            "reservations": ["scontrol", "--oneliner", "show", "reservation"],
            "shares": ["sshare", "-U", "-n", "-P", "-o", SHARES],
            "limits": ["scontrol", "-o", "show", "assoc_mgr", "users=" + me, "flags=assoc,qos"],
            "config": ["scontrol", "show", "config"],
        }

    def questions_about(self, number: str) -> "Dict[str, List[str]]":
        return {"job": ["scontrol", "--oneliner", "show", "job", number]}

    def guess_words(self, script: str, change: "Sequence[str]") -> "List[str]":
        return ["sbatch", "--test-only"] + list(change) + [script]

    def answer(self, words: "List[str]") -> str:
        # A test tells its guess as if it were a complaint.
        env = dict(scheduler.IN_UTC, **WHOLE_LISTS)
        return call(*words, env=env, with_errors="--test-only" in words)


def long_format(widths: "Sequence[Tuple[str, int]]") -> str:
    return ",".join("{}:{}".format(name, width) for name, width in widths)


def user_name(number: str) -> str:
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError):
        return "user " + number
