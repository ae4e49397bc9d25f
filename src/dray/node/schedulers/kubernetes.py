"""Kubernetes, as a pod sees it: the laptop speaks to the API server, where pods have no rights.

What the API server says of the jobs comes with the laptop's requests. The laptop creates a Job once
the job's directory is there.
"""

import os

from ..formats import shapes
from ..jobs import arrays
from .scheduler import Scheduler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from ..jobs.jobdir import JobDir

    Record = Dict[str, Any]

# The exit codes of a pod. They are never the command's own, which is in outcome.json.
CODES = {"done": 0, "failed": 10, "stopped": 11}
OWN_FAULT = 12
INTERRUPTED = 75  # another pod goes on

SECRETS = "DRAY_SECRETS"  # names the folder where the job's Secret is mounted
INDEX = "DRAY_ARRAY_INDEX"
POD = "HOSTNAME"  # the kubelet sets it to the pod's name
GROUP = {"ids": shapes.is_texts, "state": shapes.is_text, "why": shapes.is_text}
ROW_END = {"state": shapes.is_text, "reason": shapes.is_text}


# -- pure ---------------------------------------------------------------------------------------


def rows_of(groups: "Any") -> "Dict[str, Record]":
    """Read the queue as a request tells it: jobs that have the same state for the same reason are
    one group."""
    rows = {}  # type: Dict[str, Record]
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict) or not shapes.fits(group, GROUP, GROUP):
            continue
        for job_id in arrays.unfold(group["ids"]):
            row = {"id": job_id, "state": group["state"], "why": group["why"], "start": ""}
            rows[job_id] = row
    return rows


# -- acting -------------------------------------------------------------------------------------


class Kubernetes(Scheduler):
    name = "Kubernetes"
    is_told = True

    def __init__(self) -> None:
        self.rows = {}  # type: Dict[str, Record]
        self.known_ends = {}  # type: Dict[str, Record]
        self.late = []  # type: List[str]
        self.cancelled = []  # type: List[str]
        self.interrupted = []  # type: List[str]
        self.given_up = []  # type: List[str]

    def hear(self, request: "Record") -> None:
        """Take in what the laptop was told by the API server."""
        self.rows = rows_of(request.get("queue"))
        ends = request.get("ends")
        self.known_ends = {
            name: one
            for name, one in (ends.items() if isinstance(ends, dict) else ())
            if isinstance(one, dict) and shapes.fits(one, ROW_END, ROW_END)
        }
        late = request.get("overdue")
        self.late = list(arrays.unfold(late)) if late and shapes.is_texts(late) else []
        self.cancelled, self.interrupted, self.given_up = [], [], []

    def wishes(self) -> "Record":
        wished = {
            "cancel": self.cancelled,
            "interrupt": self.interrupted,
            "give_up": self.given_up,
        }
        return {name: arrays.fold(ids) for name, ids in wished.items() if ids}

    def own_number(self) -> str:
        return os.environ.get(POD, "")

    def own_index(self) -> int:
        return int(os.environ[INDEX])

    def queue(self) -> "Dict[str, Record]":
        return self.rows

    def number_of(self, row: "Record", job_id: str) -> str:  # noqa: ARG002
        return job_id

    def submit(
        self,
        script: str,
        after: "Optional[str]" = None,  # noqa: ARG002
        keep_open: "Tuple[int, ...]" = (),  # noqa: ARG002
        planned: "Sequence[str]" = (),  # noqa: ARG002
    ) -> str:
        """Leave it to the laptop, which creates the Job next."""
        return os.path.basename(os.path.dirname(script))

    def numbers_of(self, job_dir: "JobDir", index: "Optional[int]" = None) -> "List[str]":
        return [job_dir.id if index is None else arrays.job_id(job_dir.id, index)]

    def cancel(self, numbers: "List[str]") -> None:
        self.cancelled += numbers

    def interrupt(self, number: str) -> None:
        self.interrupted.append(number)

    def overdue(self) -> "List[str]":
        return self.late

    def give_up(self, job_id: str) -> None:
        self.given_up.append(job_id)

    def ends(self, numbers: "List[str]") -> "Dict[str, Record]":
        return {one: self.known_ends[one] for one in numbers if one in self.known_ends}

    def time_left(self, number: str, patience: float = 0.0) -> "Optional[float]":  # noqa: ARG002
        return None  # the supervisor alone keeps the time

    def describe(self) -> "Record":
        return {}
