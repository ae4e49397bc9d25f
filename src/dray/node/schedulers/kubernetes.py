"""Kubernetes, as a pod sees it: the laptop speaks to the API server, where pods have no rights.

What the API server says of the jobs comes with the laptop's requests. The laptop creates a Job once
the job's directory is there.
"""

import os

from ..formats import shapes
from ..jobs import arrays
from ..processes import cgroup
from .gathered import ADDRESS, NODE, TASK, Gathered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from ..formats.records import Answer, End, Request, Row, SiteFacts
    from ..jobs.jobdir import JobDir

# What a submission is, in the Secret of a job that brings its own.
REQUEST = "request.json"
PACK = "pack.gz"

SECRETS = "DRAY_SECRETS"  # names the folder where the job's Secret is mounted
GROUP = {"ids": shapes.is_texts, "state": shapes.is_text, "why": shapes.is_text}
ROW_END = {"state": shapes.is_text, "reason": shapes.is_text}


# -- pure ---------------------------------------------------------------------------------------


def rows_of(groups: "Any") -> "Dict[str, Row]":
    """Read the queue as a request tells it: jobs that have the same state for the same reason are
    one group."""
    rows = {}  # type: Dict[str, Row]
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict) or not shapes.fits(group, GROUP, GROUP):
            continue
        for job_id in arrays.unfold(group["ids"]):
            rows[job_id] = {
                "id": job_id,
                "state": group["state"],
                "why": group["why"],
                "start": "",
            }
    return rows


def ends_of(told: "Any") -> "Dict[str, End]":
    """Read how jobs ended, as a request tells it."""
    ends = {}  # type: Dict[str, End]
    for job_id, end in told.items() if isinstance(told, dict) else ():
        if isinstance(end, dict) and shapes.fits(end, ROW_END, ROW_END):
            ends[job_id] = {"state": end["state"], "reason": end["reason"]}
    return ends


# -- acting -------------------------------------------------------------------------------------


class Kubernetes(Gathered):
    name = "Kubernetes"
    is_told = True
    own_variables = (SECRETS, ADDRESS, NODE, TASK)

    def __init__(self) -> None:
        self.rows = {}  # type: Dict[str, Row]
        self.known_ends = {}  # type: Dict[str, End]
        self.late = []  # type: List[str]
        self.cancelled = []  # type: List[str]
        self.interrupted = []  # type: List[str]
        self.given_up = []  # type: List[str]

    def hear(self, request: "Request") -> None:
        """Take in what the laptop was told by the API server."""
        self.rows = rows_of(request.get("queue"))
        self.known_ends = ends_of(request.get("ends"))
        late = request.get("overdue")
        self.late = list(arrays.unfold(late)) if late and shapes.is_texts(late) else []
        self.cancelled, self.interrupted, self.given_up = [], [], []

    def wishes(self) -> "Answer":
        wished = {}  # type: Answer
        if self.cancelled:
            wished["cancel"] = arrays.fold(self.cancelled)
        if self.interrupted:
            wished["interrupt"] = arrays.fold(self.interrupted)
        if self.given_up:
            wished["give_up"] = arrays.fold(self.given_up)
        return wished

    def own_place(self) -> "Dict[str, str]":
        return {"pod": self.own_number()}

    def secrets_of(self, job_dir: "JobDir") -> str:
        folder = os.environ.get(SECRETS)
        if not folder:
            return job_dir.secrets
        # What a Secret mounts are links, which are not followed where a job may have made them.
        return os.path.realpath(os.path.join(folder, os.path.basename(job_dir.secrets)))

    def meter(self) -> cgroup.Meter:
        return cgroup.Meter()

    def queue(self) -> "Dict[str, Row]":
        return self.rows

    def number_of(self, row: "Row", job_id: str) -> str:  # noqa: ARG002
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

    def ends(self, numbers: "List[str]") -> "Dict[str, End]":
        return {one: self.known_ends[one] for one in numbers if one in self.known_ends}

    def time_left(self, number: str, patience: float = 0.0) -> "Optional[float]":  # noqa: ARG002
        return None  # the supervisor alone keeps the time

    def describe(self) -> "SiteFacts":
        return {}
