"""Ray, as its head sees it: a job of ours is a job of Ray's, the driver, which waits for nodes.

Ray calls the driver ``dray-NUMBER``, by a name that we choose, so it is submitted once. NUMBER is
how many attempts there were before it, and the job's id. Ray's own word on how a job ended counts
only where the job's files say nothing.
"""

import json
import os
import shlex
import subprocess
import sys
import time

from ..formats import files, shapes
from ..formats.interpreters import own_words
from ..jobs import arrays
from ..jobs.arrays import ArrayDir
from ..jobs.jobdir import JobDir
from . import ray_view as view
from . import rows
from .gathered import ADDRESS, INDEX, NODE, STAND_IN, TASK, Gathered
from .ray_api import DASHBOARD, Api, Refused
from .scheduler import SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple  # noqa: F401

    from ..formats.records import End, NodeShape, Record, Row, SiteFacts

PREFIX = "dray-"
LIVE = ("PENDING", "RUNNING")
MARK = "job"  # what Ray's metadata says of a driver
STARTING = "its driver is being started by Ray"
STOP_SECONDS = 600  # what Ray leaves a driver to end its nodes before it is killed
IMPORT_SECONDS = 60.0
INSPECTION_SECONDS = 90.0
LEAVING = 30.0  # seconds for a driver that has nothing left to do
LEAVING_LOOK = 0.5
# What Ray sets for its own workers: with the first, breakpoint() would wait for Ray's debugger.
OF_WORKERS = (
    "PYTHONBREAKPOINT",
    "RAY_CLIENT_MODE",
    "RAY_JOB_ID",
    "RAY_JOB_STOP_WAIT_TIME_S",
    "RAY_LD_PRELOAD_ON_WORKERS",
    "RAY_RAYLET_PID",
    "SPT_NOENV",
)


# -- pure ---------------------------------------------------------------------------------------


def job_of(number: str) -> str:
    """Return the job whose number this is."""
    return number.partition("-")[2]


def live_drivers(jobs: "Any", root: str) -> "Dict[str, str]":
    """Return the numbers of this root's drivers that have not ended, and Ray's word on each."""
    found = {}  # type: Dict[str, str]
    for job in jobs if isinstance(jobs, list) else ():
        if not isinstance(job, dict) or not isinstance(job.get("metadata"), dict):
            continue
        submission, about = str(job.get("submission_id")), job["metadata"]
        if about.get("dray") != MARK or about.get("root") != root:
            continue
        if job.get("status") in LIVE and submission.startswith(PREFIX):
            found[submission[len(PREFIX) :]] = str(job["status"])
    return found


def shapes_of(answer: "Any") -> "List[NodeShape]":
    """Read what nodes there are; equal ones are counted together."""
    counted = {}  # type: Dict[Tuple[int, int, int], int]
    for node in nodes_in(answer):
        have = node.get("resources_total")
        if node.get("state") != "ALIVE" or not isinstance(have, dict):
            continue
        cpus, gpus, memory = (number_in(have, name) for name in ("CPU", "GPU", "memory"))
        shape = (cpus, memory >> 30 << 20, gpus)  # in whole gigabytes: no two have the same
        counted[shape] = counted.get(shape, 0) + 1
    return [
        {"nodes": count, "cpus": cpus, "kilobytes": kilobytes, "gpus": gpus}
        for (cpus, kilobytes, gpus), count in sorted(counted.items())
    ]


def nodes_in(answer: "Any") -> "List[Dict[str, Any]]":
    try:
        found = answer["data"]["result"]["result"]
    except (TypeError, KeyError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number_in(have: "Dict[str, Any]", name: str) -> int:
    value = have.get(name)  # type: Any
    return int(value) if shapes.is_number(value) and 0 <= value < 2**60 else 0


# -- acting -------------------------------------------------------------------------------------


class Ray(Gathered):
    name = "Ray"
    is_called = True  # the head reaches no process of a node but through Ray's own
    own_variables = (ADDRESS, INDEX, NODE, STAND_IN, TASK, DASHBOARD) + OF_WORKERS

    def __init__(self, root: str, address: str = "") -> None:
        self.root = root
        self.api = Api(address)

    def own_place(self) -> "Dict[str, str]":
        return {"host": self.own_address()}

    def read_queue(self) -> str:
        found = {}  # type: Dict[str, Row]
        for number in live_drivers(self.api.ask("GET", "/api/jobs/"), self.root):
            if shapes.is_id(job_of(number)):
                found.update(self._rows(number))
        return json.dumps(found)

    def _rows(self, number: str) -> "Dict[str, Row]":
        """Return the rows of the jobs that one driver has, by what it has written down."""
        name = job_of(number)
        job_dir = JobDir(os.path.join(self.root, "jobs", name))
        if files.exists(job_dir.job):
            seen = view.read(job_dir.path) or {name: ("waiting", STARTING)}
        else:
            array = ArrayDir(self.root, name)
            every = [arrays.job_id(name, index) for index in sorted(array.indices())]
            seen = view.read(array.path) or dict.fromkeys(every, ("waiting", STARTING))
        found = {}  # type: Dict[str, Row]
        for one, (state, why) in seen.items():
            if JobDir(os.path.join(self.root, "jobs", one)).ended() is not None:
                state = "ending"  # its driver is about to see that: a resumed job is another one
            found[one] = {"id": number, "state": state, "why": why, "start": ""}
        return found

    def parse_queue(self, text: str) -> "Dict[str, Row]":
        return rows.parse(text)

    def number_of(self, row: "Row", job_id: str) -> str:  # noqa: ARG002
        return str(row["id"])

    def numbers_of(self, job_dir: JobDir, index: "Optional[int]" = None) -> "List[str]":  # noqa: ARG002
        number = job_dir.known_number()
        return [number] if number else []

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,  # noqa: ARG002
        keep_open: "Tuple[int, ...]" = (),  # noqa: ARG002
        planned: "Sequence[str]" = (),  # noqa: ARG002
    ) -> str:
        """Hand the driver to Ray. What comes before the job is awaited by the driver itself."""
        folder = os.path.dirname(script)
        described = files.read_record(os.path.join(folder, "job.json")) or {}
        before = described.get("resumed_after")
        number = "{}-{}".format(before if shapes.is_count(before) else 0, os.path.basename(folder))
        is_leaving = view.read(folder) == {}
        view.forget(folder)
        request = {
            "submission_id": PREFIX + number,
            "entrypoint": "exec bash {} drive".format(shlex.quote(script)),
            "metadata": {"dray": MARK, "root": self.root},
            "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}},
        }
        try:
            self.api.ask("POST", "/api/jobs/", request)
        except Refused as error:
            if "already exists" not in error.text:
                raise
            self._submit_again(request, is_leaving)
        return number

    def _submit_again(self, request: "Dict[str, Any]", is_leaving: bool) -> None:
        """Submit a driver of a name that Ray knows. One that lives is the one that was meant,
        unless it has nothing left to do; one that does not was lost before it began an attempt."""
        path = "/api/jobs/" + request["submission_id"]
        until = time.monotonic() + LEAVING
        while self.api.ask("GET", path).get("status") in LIVE:
            if not is_leaving:
                return
            if time.monotonic() > until:
                raise SchedulerError("the driver before it is still ending: try again later")
            time.sleep(LEAVING_LOOK)
        self.api.ask("DELETE", path)
        self.api.ask("POST", "/api/jobs/", request)

    def cancel(self, numbers: "List[str]") -> None:
        """Leave it to the driver, which looks every second for requests to stop."""

    def ends(self, numbers: "List[str]") -> "Dict[str, End]":
        found = {}  # type: Dict[str, End]
        for number in numbers:
            try:
                job = self.api.job(PREFIX + number)
            except Refused as error:
                if error.code == 404:
                    reason = "Ray does not know it any more: its head was replaced"
                    found[number] = {"state": "lost", "reason": reason}
                continue
            except SchedulerError:
                continue
            found[number] = end_of(job)
        return found

    def inspect_nodes(self, python: str) -> "List[Record]":
        try:
            ended = subprocess.run(
                program_words("inspect", self.root, python),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=INSPECTION_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SchedulerError("its nodes could not be looked at: {}".format(error))
        found = files.decode(ended.stdout.strip().split(b"\n")[-1])
        if ended.returncode or not isinstance(found, list):
            said = ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["no answer"]
            raise SchedulerError("its nodes could not be looked at: {}".format(said[-1][:300]))
        return found

    def time_left(self, number: str, patience: float = 0.0) -> "Optional[float]":  # noqa: ARG002
        return None  # Ray has no time limits: the supervisor alone keeps the time

    def describe(self) -> "SiteFacts":
        found = {}  # type: SiteFacts
        try:
            about = self.api.ask("GET", "/api/version")
            found["ray"] = str(about.get("ray_version")) if isinstance(about, dict) else ""
            found["nodes"] = shapes_of(self.api.ask("GET", "/api/v0/nodes?limit=10000"))
        except SchedulerError as error:
            found["ray_error"] = str(error)
        found["ray_of_python"] = imported_version()
        return found


def program_words(*arguments: str) -> "List[str]":
    """Return the words that start this program again, such that it can import Ray."""
    words = own_words(*arguments)
    return [one for one in words if one != "-S"]


def end_of(job: "Dict[str, Any]") -> "End":
    """Tell how a driver ended that has left its job without an end."""
    status, message = str(job.get("status")), " ".join(str(job.get("message") or "").split())
    if status == "STOPPED":
        return {"state": "stopped", "reason": "cancelled in Ray"}
    return {"state": "lost", "reason": "its driver ended ({}): {}".format(status, message[:300])}


def imported_version() -> str:
    """Return which Ray the Python of jobs imports; '' for none."""
    words = [sys.executable, "-I", "-c", "import ray; print(ray.__version__)"]
    try:
        ended = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=IMPORT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode("utf-8", "replace").strip() if ended.returncode == 0 else ""
