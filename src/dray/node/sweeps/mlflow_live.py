"""Tells an MLflow server of a trial while it runs, and how it has ended.

A trial has one run there, which is found again by its tags: by the next attempt, and by an export
afterwards. A server that is away, or slow, holds up nothing: what it was not told is told later, at
the latest by the whole curve at the trial's end, for which it has a few seconds."""

import math
import random
import re
import threading
import time
from urllib.parse import quote

from ..formats.messages import print_message
from ..metrics import sources
from ..processes.environment import secrets_of
from . import asking, mlflow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import AttemptRecord, Description, ResultRecord, StudyRecord
    from ..jobs.jobdir import JobDir

    Curves = Dict[str, List[Tuple[int, float]]]  # by the metric's name

EVERY, SELDOM = 20.0, 600.0  # seconds between two tellings; where the server does not answer
PATIENCE, PATIENCE_AT_END = 60.0, 20.0  # seconds in which something has to come
ALL_AT_END = 60.0  # seconds for all that is told at the end
LAST_WORDS = 5.0  # seconds for what is being told at that moment
MOST_WAITING = 1000  # points that are kept for the next time
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}$")
AT_WORK = []  # type: List[Live]  # in this process


def connect(
    job_dir: "JobDir", study: "StudyRecord", patience: float
) -> "Optional[mlflow.Connection]":
    """Return the way to the sweep's server; None where it has none. Credentials are those of the
    job's secrets, and go nowhere in the clear."""
    address = study.get("mlflow")
    if not address or mlflow.why_not_an_address(address):
        return None
    secrets = secrets_of(job_dir)
    if mlflow.why_not_a_token(secrets):
        print_message(mlflow.why_not_a_token(secrets))
    found = mlflow.Connection(address, secrets, patience)
    if found.is_exposed():
        print_message("{} is not encrypted: MLflow is told nothing".format(address))
        return None
    return found


class Run:
    """A trial's run on the server. It is looked for, or made, when something is told first."""

    def __init__(
        self, connection: mlflow.Connection, study: "StudyRecord", job: "Description"
    ) -> None:
        self.connection = connection
        self.study = study
        self.job = job
        self.until = None  # type: Optional[float]  # when nothing more is asked
        self.is_over = False  # whether nothing more is to be told
        self.id = ""
        self.state = ""  # that it was told last
        self.known = []  # type: List[Any]  # parameters that it has already, which never change

    def tell(self, state: str, tags: "Dict[str, str]", curves: "Curves") -> None:
        """Tell how the trial does; raise mlflow.NoAnswer."""
        if not self.id:
            self.id = self._find() or self._make()
            params = mlflow.params_of(self.job["sweep"].get("values") or {})
            self._log({one: params[one] for one in params if one not in self.known}, {}, [])
        created = self.study.get("created") or 0.0
        named = asking.names_of(self.study)
        for name in curves:
            key = name if name in named else ""
            self._log({}, {}, mlflow.metrics_of(key, created, curves[name]))
        if state == self.state:
            return
        number = self.job["sweep"]["trial"] // self.study["repeats"]
        own = {"dray.configuration": str(number), "dray.state": state}
        self._log({}, dict(own, **tags), [])
        self._ask("runs/update", {"run_id": self.id, "status": status_of(state)})
        self.state = state

    def _find(self) -> str:
        wanted = "tags.`{}` = '{}' and tags.`{}` = '{}'".format(
            mlflow.SWEEP, self.study["id"], mlflow.JOB, self.job["id"]
        )
        body = {"experiment_ids": [self._experiment()], "filter": wanted, "max_results": 1}
        runs = self._ask("runs/search", body).get("runs")
        if not isinstance(runs, list) or not runs:
            return ""
        found = run_id(runs[0])
        data = runs[0].get("data")
        params = data.get("params") if isinstance(data, dict) else None
        self.known = [one.get("key") for one in params or () if isinstance(one, dict)]
        return found

    def _make(self) -> str:
        tags = {mlflow.SWEEP: self.study["id"], mlflow.JOB: self.job["id"]}
        body = {
            "experiment_id": self._experiment(),
            "run_name": self.job["id"],
            "start_time": int((self.study.get("created") or 0.0) * 1000),
            "tags": mlflow.pairs(tags),
        }
        return run_id(self._ask("runs/create", body).get("run"))

    def _experiment(self) -> str:
        """Return the experiment's id; make it where nobody has."""
        name = self.study.get("experiment") or self.study["id"]
        path = "experiments/get-by-name?experiment_name=" + quote(name, safe="")
        try:
            return text_in(self._ask(path).get("experiment"), "experiment_id")
        except mlflow.NoAnswer as error:
            if error.code != 404:
                raise
        try:
            return text_in(self._ask("experiments/create", {"name": name}), "experiment_id")
        except mlflow.NoAnswer as error:  # another trial was quicker
            if error.kind != "RESOURCE_ALREADY_EXISTS":
                raise
        return text_in(self._ask(path).get("experiment"), "experiment_id")

    def _log(self, params: "Any", tags: "Any", metrics: "Any") -> None:
        for batch in mlflow.batches(params, tags, metrics):
            self._ask("runs/log-batch", dict(batch, run_id=self.id))

    def _ask(self, path: str, body: "Optional[Dict[str, Any]]" = None) -> "Dict[str, Any]":
        left = None if self.until is None else self.until - time.monotonic()
        if self.is_over or (left is not None and left <= 0):
            raise mlflow.NoAnswer("the trial has ended")
        return self.connection.ask(path, body, left)


class Live:
    """Tells of a running trial, in a thread: nothing here waits for the server."""

    def __init__(self, run: Run, every: float = EVERY) -> None:
        self.run = run
        self.every = every
        self.names = asking.names_of(run.study)  # of the metrics whose points are taken
        self.lock = threading.Lock()
        # points that were not told yet, by metric and step
        self.waiting = {}  # type: Dict[str, Dict[int, float]]
        self.over = threading.Event()
        self.complaint = ""
        self.thread = None  # type: Optional[threading.Thread]

    def begin(self) -> None:
        """Start the thread, once. It has the signals blocked that the supervisor waits for."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, daemon=True)
            AT_WORK.append(self)
            self.thread.start()

    def add(self, name: str, step: int, value: "Optional[float]") -> None:
        if name not in self.names:
            return
        with self.lock:
            own = self.waiting.setdefault(name, {})
            own[step] = number_in(value)
            if len(own) > 2 * MOST_WAITING:
                self.waiting[name] = dict(thinned(sorted(own.items()), MOST_WAITING))

    def end(self) -> None:
        """Tell nothing more: the end of the trial is told by ``tell_end``."""
        self.run.is_over = True
        self.over.set()

    def _work(self) -> None:
        pause = 0.0
        while not self.over.wait(pause):
            pause = self.every if self._tell() else min(max(pause, self.every) * 2, SELDOM)
            pause *= 0.75 + random.random() / 2  # not all trials at the same moment

    def _tell(self) -> bool:
        with self.lock:
            points, self.waiting = self.waiting, {}
        try:
            self.run.tell("running", {}, {one: sorted(points[one].items()) for one in points})
            return True
        except Exception as error:  # whatever it is, the training goes on
            if str(error) != self.complaint and not self.run.is_over:
                print_message("MLflow was not told how the trial does: {}".format(error))
            self.complaint = str(error)
        with self.lock:
            for name, later in self.waiting.items():
                points.setdefault(name, {}).update(later)
            self.waiting = points
        return False


def follow(job_dir: "JobDir", job: "Description", study: "StudyRecord") -> "Optional[Live]":
    """Return what tells of a trial while it runs; None where the sweep has no server."""
    connection = connect(job_dir, study, PATIENCE)
    return Live(Run(connection, study, job)) if connection is not None else None


def tell_end(
    job_dir: "JobDir",
    job: "Description",
    study: "StudyRecord",
    result: "ResultRecord",
    attempts: "List[AttemptRecord]",
) -> None:
    """Tell how a trial has ended, and its whole curve. It is no loss if that fails: an export can
    do so later."""
    connection = connect(job_dir, study, PATIENCE_AT_END)
    if connection is None:
        return
    for one in AT_WORK:  # what it was about to tell must not come after the end
        one.end()
        if one.thread is not None:
            one.thread.join(LAST_WORDS)
    run = Run(connection, study, job)
    run.until = time.monotonic() + ALL_AT_END
    tags = {"dray.gpu_seconds": "{:g}".format(result.get("gpu_seconds") or 0.0)}
    if result.get("reason"):
        tags["dray.reason"] = result["reason"][: mlflow.LONGEST_TAG]
    try:
        names = asking.names_of(study) or [main_metric(attempts)]
        curves = {one: thinned(curve_of(job_dir, job, one), MOST_WAITING) for one in names}
        run.tell(result["state"], tags, curves)
    except Exception as error:  # whatever it is, the trial has ended all the same
        print_message("MLflow was not told how the trial has ended: {}".format(error))


def main_metric(attempts: "List[AttemptRecord]") -> str:
    metric = attempts[-1].get("metric") if attempts else None  # type: Any
    return str(metric.get("name") or "") if isinstance(metric, dict) else ""


def curve_of(job_dir: "JobDir", job: "Description", name: str) -> "List[Tuple[int, float]]":
    """Return the points of a metric; of two at the same step the later one."""
    found = {}  # type: Dict[int, float]
    for by_name in sources.all_points(job, job_dir):
        found.update((point.step, number_in(point.value)) for point in by_name.get(name, ()))
    return sorted(found.items())


def number_in(value: "Optional[float]") -> float:
    return math.nan if value is None else value


def thinned(points: "List[Tuple[int, float]]", most: int) -> "List[Tuple[int, float]]":
    """Return at most so many of the points, evenly; the last one is among them."""
    if len(points) <= most:
        return points
    return [points[-1 - (at * len(points)) // most] for at in range(most)][::-1]


def status_of(state: str) -> str:
    return mlflow.STATUS.get(state, mlflow.KILLED)


def run_id(run: "Any") -> str:
    found = text_in(run.get("info") if isinstance(run, dict) else None, "run_id")
    if not RUN_ID.match(found):
        raise mlflow.NoAnswer("the MLflow server tells of a run that cannot be read")
    return found


def text_in(record: "Any", key: str) -> str:
    found = record.get(key) if isinstance(record, dict) else None
    if not isinstance(found, str) or not found:
        raise mlflow.NoAnswer("the MLflow server's answer cannot be read: {}".format(key))
    return found
