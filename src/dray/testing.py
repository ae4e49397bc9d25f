"""A cluster that is only in memory, for tests of what is built on dray.

    cluster = FakeCluster("hpc")
    verbs = launcher(tmp_path, cluster)
    job = verbs.run(["python", "train.py"], snapshot=False)
    cluster.start(job)
    cluster.write(job, b"iteration 1\\n")
    cluster.end(job, "failed", exit_code=3)
    assert verbs.wait(job).state == "failed"

It is as unkind as a real one: it refuses ids and jobs that it does not know, takes a job once only,
and can be told to fail, to lose an answer, or to hang (``break_next``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from dray import checks
from dray.clusters.protocol import (
    Appended,
    Cluster,
    Found,
    ImagePart,
    ImageState,
    Piece,
    Selection,
    Situation,
    Statuses,
    Unsent,
)
from dray.config.loading import Config
from dray.config.reading import ClusterConfig
from dray.errors import ClusterError, ImageMissing, LoginNeeded, NotFound, Refused
from dray.home import Home
from dray.job.model import (
    Attempt,
    Capabilities,
    Equipment,
    Finding,
    JobArray,
    JobSpec,
    JobState,
    JobView,
    Plan,
    Private,
    Series,
    Snapshot,
)
from dray.job.quantities import show_count
from dray.job.situation import Allowance, Explanation, Pool, QueueEntry, QueueView, Reason
from dray.landing import Incoming, Landing
from dray.launcher import Launcher
from dray.reporter import Progress, Reporter

LOG_PIECE = 1 << 16


class Trouble(Enum):
    FAIL = "fail"  # there is no connection: nothing of the request arrives
    LOSE = "lose"  # the request is carried out, and its answer is lost
    HANG = "hang"  # no answer comes until somebody hangs up
    LOGIN = "login"  # a password has to be typed


@dataclass
class FakeJob:
    spec: JobSpec
    private: Private
    state: JobState = JobState.QUEUED
    reason: str = ""
    ended: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    logs: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by attempt and rank
    outputs: dict[str, bytes] = field(default_factory=dict)

    def view(self, cluster: str) -> JobView:
        return JobView(
            spec=self.spec,
            cluster=cluster,
            state=self.state,
            reason=self.reason,
            ended=self.ended,
            attempts=tuple(self.attempts),
        )


class FakeCluster:
    """A place to run jobs at which nothing runs: the test says what becomes of them."""

    kind = "fake"
    capabilities = Capabilities(has_host=True)
    sessions = None

    def __init__(self, name: str = "fake", *, array_size: int = 1000, gpus: int = 8) -> None:
        self.name = name
        self.gpus = gpus
        self.may_ask = True
        self.jobs: dict[str, FakeJob] = {}
        self.sweeps: dict[str, dict[str, Any]] = {}  # as records.StudyFiles has them
        self.snapshots: set[str] = set()
        self.images = FakeImages()
        self.queue = FakeQueue(self, array_size)
        self.files = FakeFiles(self)
        self.situation: Situation = FakeSituation(self)
        self.asked: list[str] = []  # the requests so far
        self._trouble: list[tuple[str, Trouble]] = []
        self._hung_up = threading.Event()
        self._last_answer: float | None = None

    # -- what the test says

    def break_next(self, request: str, trouble: Trouble, times: int = 1) -> None:
        """Let the next requests of this name, such as ``submit``, come to grief."""
        self._trouble += [(request, trouble)] * times

    def start(self, job_id: str) -> None:
        """Begin an attempt of a queued job."""
        job = self.require(job_id)
        assert job.state is JobState.QUEUED, f"{job_id} is {job.state}"
        number = len(job.attempts) + 1
        job.attempts.append(Attempt(number=number, started=time.time(), host="node1"))
        job.state, job.reason = JobState.RUNNING, ""
        self.write(job_id, b"")

    def write(self, job_id: str, text: bytes, rank: int = 0) -> None:
        """Add to the output of the running attempt."""
        job = self.require(job_id)
        place = (len(job.attempts), rank)
        job.logs[place] = job.logs.get(place, b"") + text

    def end(self, job_id: str, state: str, *, exit_code: int | None = None) -> None:
        """End a job that runs, or that never started."""
        job, now = self.require(job_id), time.time()
        assert job.state.active, f"{job_id} is {job.state}"
        job.state, job.ended = JobState(state), now
        job.reason = f"exit code {exit_code}" if exit_code else ""
        if job.attempts:
            last = replace(job.attempts[-1], outcome=state, exit_code=exit_code, ended=now)
            job.attempts[-1] = last

    # -- as a launcher sees it

    def equipment(self) -> Equipment:
        return Equipment(cpus=64, memory=1 << 38, gpus=self.gpus)

    def check(self, job: JobSpec) -> None:
        if job.resources.gpus > self.gpus:
            wanted = show_count(job.resources.gpus, "GPU")
            raise Refused(f"{self.name}: {wanted} asked for, of {self.gpus}")

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return Plan.one_by_one(work, self.name, map(self.plan, work.jobs()))
        return Plan(job=work, cluster=self.name, files={}, command=("start", work.id))

    def plain_image(self) -> str:
        return ""

    def environment(self) -> Mapping[str, str]:
        return {}

    def hang_up(self) -> None:
        self._hung_up.set()

    def last_answer(self) -> float | None:
        return self._last_answer

    def partitions(self) -> Sequence[str]:
        return ()

    def reach(self, seconds: float) -> str:  # noqa: ARG002
        return ""

    def doctor(self) -> list[Finding]:
        return [Finding(ok=True, what="fake", detail=f"{len(self.jobs)} jobs")]

    # -- inside

    @contextmanager
    def answering(self, request: str) -> Iterator[None]:
        """Let a request be carried out, unless the test has said otherwise."""
        self.asked.append(request)
        wanted = next((one for one in self._trouble if one[0] == request), None)
        trouble = None
        if wanted is not None and (wanted[1] is not Trouble.LOGIN or not self.may_ask):
            trouble = wanted[1]
            self._trouble.remove(wanted)
        if trouble is Trouble.FAIL:
            raise ClusterError(f"no connection to {self.name}")
        if trouble is Trouble.LOGIN:
            raise LoginNeeded(f"no connection to {self.name}: Permission denied")
        if trouble is Trouble.HANG:
            self._hung_up.clear()
            self._hung_up.wait()
            raise ClusterError(f"no connection to {self.name}: it hung")
        yield
        if trouble is Trouble.LOSE:
            raise ClusterError(f"the connection to {self.name} broke inside an answer")
        self._last_answer = time.time()

    def require(self, job_id: str) -> FakeJob:
        if job_id not in self.jobs:
            raise NotFound(f"{self.name}: there is no job {job_id}")
        return self.jobs[job_id]

    def take_code(self, plan: Plan, code: Snapshot | None, progress: Progress) -> None:
        """Check that a job comes with all that it needs."""
        job = plan.job
        checks.job_id(job.id)
        assert plan.cluster == self.name, f"{job.id} was planned for {plan.cluster}"
        image = job.container.image if job.container else ""
        if image and image not in self.images.ready:
            raise ImageMissing(f"the image {image} is not there")
        if code is not None:
            assert job.snapshot == code.id, f"{job.id} comes with another snapshot's code"
            progress(code.size, code.size)
            self.snapshots.add(code.id)
        if job.snapshot and job.snapshot not in self.snapshots:
            raise ClusterError(f"{self.name}: the snapshot {job.snapshot} is not there")


class FakeQueue:
    """The jobs of a fake cluster."""

    def __init__(self, cluster: FakeCluster, array_size: int) -> None:
        self.cluster = cluster
        self.array_size = array_size
        self.may_have_got = False

    def prepared(self) -> AbstractContextManager[None]:
        return nullcontext()

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        self.may_have_got = False
        with self.cluster.answering("submit"):
            self.may_have_got = True
            if plan.study:
                known = self.cluster.sweeps.setdefault(
                    plan.study["id"], {"parts": [], "trials": {}, "results": {}, "closed": False}
                )
                known["study"] = dict(plan.study)
                known["parts"].append(dict(plan.part))
            for one in plan.each or (plan,):
                self.cluster.take_code(one, code, progress)
                self.cluster.jobs.setdefault(one.job.id, FakeJob(one.job, secrets))

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        with self.cluster.answering("resume"):
            job = self.cluster.require(plan.job.id)
            if job.state.active and job.spec != plan.job:
                raise Refused(f"{plan.job.id} has not ended")
            self.cluster.take_code(plan, code, progress)
            job.spec, job.private = plan.job, secrets
            job.state, job.reason, job.ended = JobState.QUEUED, "", None

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        if not ids:
            return Statuses({})
        with self.cluster.answering("status"):
            known = [checks.job_id(one) for one in ids if one in self.cluster.jobs]
            found = {one: self.cluster.jobs[one].view(self.cluster.name) for one in known}
        if not brief:
            return Statuses(found)
        waiting = {
            job_id: view.reason
            for job_id, view in found.items()
            if view.state is JobState.QUEUED and not view.attempts
        }
        return Statuses({one: found[one] for one in found if one not in waiting}, waiting)

    def unsent(self) -> Sequence[Unsent]:
        return ()

    def settle(self, message: Unsent) -> None:
        self.cluster.require(message.id)

    def ids(self) -> Iterator[str]:
        with self.cluster.answering("ids"):
            yield from list(self.cluster.jobs)

    def stop(self, ids: Sequence[str], *, now: bool) -> None:  # noqa: ARG002
        with self.cluster.answering("stop"):
            for job_id in ids:
                if self.cluster.require(job_id).state.active:
                    self.cluster.end(job_id, "stopped")

    def remove(self, ids: Sequence[str]) -> None:
        with self.cluster.answering("remove"):
            for job_id in ids:
                if job_id in self.cluster.jobs and self.cluster.jobs[job_id].state.active:
                    raise Refused(f"{job_id} has not ended")
            for job_id in ids:
                self.cluster.jobs.pop(job_id, None)


class FakeFiles:
    """The logs and outputs of a fake cluster's jobs."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def path(self, job_id: str = "") -> str:
        return f"{self.cluster.name}:/fake/jobs/{job_id}"

    def read_log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> Piece:
        with self.cluster.answering("log"):
            whole = self.cluster.require(job_id).logs.get((attempt, rank), b"")
            return Piece(whole[offset : offset + LOG_PIECE], len(whole))

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        with self.cluster.answering("log-times"):
            job = self.cluster.require(job_id)
            began = job.attempts[attempt - 1].started or 0.0
            return [(began, len(job.logs.get((attempt, 0), b"")))]

    def curve(self, job_id: str, name: str = "") -> Series:  # noqa: ARG002
        with self.cluster.answering("metrics"):
            self.cluster.require(job_id)
            return Series()

    def sweep(self, sweep_id: str) -> Mapping[str, Any]:
        with self.cluster.answering("sweep"):
            if sweep_id not in self.cluster.sweeps:
                raise NotFound(f"there is no sweep {sweep_id}")
            return self.cluster.sweeps[sweep_id]

    def tell_others(self, sweep_id: str, others: Mapping[str, Any]) -> None:
        with self.cluster.answering("sweep-others"):
            known = self.cluster.sweeps[sweep_id]
            known.update(others=others["mark"], told=dict(others))

    def close_sweep(self, sweep_id: str) -> None:
        with self.cluster.answering("sweep-close"):
            self.cluster.sweeps[sweep_id]["closed"] = True

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        with self.cluster.answering("pull"):
            outputs, takes = self.cluster.require(job_id).outputs, wanted.takes()
            found = [
                Incoming(path, len(content), 1, 0o600)
                for path, content in outputs.items()
                if takes(path)
            ]
            asked = [file for file in found if landing.wants(file)]
            for file in asked:
                landing.put(file, [outputs[file.path]])
                progress(file.size, file.size)
            return len(asked), len(found)

    def appended(
        self, job_id: str, globs: Sequence[str], known: Mapping[str, int]
    ) -> Sequence[Appended]:
        takes = Selection(tuple(globs)).takes()
        with self.cluster.answering("appended"):
            outputs = self.cluster.require(job_id).outputs
            return [
                Appended(path, known.get(path, 0), content[known.get(path, 0) :])
                for path, content in outputs.items()
                if takes(path) and len(content) > known.get(path, 0)
            ]

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:  # noqa: ARG002
        with self.cluster.answering("checkpoint"):
            self.cluster.require(job_id)
            raise Refused(f"{job_id} has no checkpoint")

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:  # noqa: ARG002
        raise NotFound(f"{job_id} has no {found.path}")

    def bring(self, given: Snapshot, progress: Progress) -> None:
        with self.cluster.answering("bring"):
            progress(given.size, given.size)
            self.cluster.snapshots.add(given.id)


class FakeSituation:
    """The queue of a fake cluster: first in, first out."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def view(self) -> QueueView:
        with self.cluster.answering("view"):
            return self._view()

    def _view(self) -> QueueView:
        entries = [
            QueueEntry(
                number=job_id,
                owner="you",
                state="running" if one.state is JobState.RUNNING else "waiting",
                job=job_id,
                gpus=one.spec.resources.gpus,
                reason=one.reason,
            )
            for job_id, one in self.cluster.jobs.items()
            if one.state.active
        ]
        used = sum(one.gpus for one in entries if not one.is_waiting)
        total = self.cluster.gpus
        pools = (Pool("", max(total - used, 0), total, 1),)
        return QueueView(entries=tuple(entries), pools=pools, as_of=time.time(), me="you")

    def explain(self, view: JobView) -> Explanation:
        with self.cluster.answering("explain"):
            line = [one.job for one in self._view().waiting]
            place = line.index(view.id) + 1 if view.id in line else 0
            return Explanation(Reason(view.reason), place=place, waiting=len(line))

    def allowance(self) -> Allowance:
        with self.cluster.answering("allowance"):
            return Allowance()

    def description(self, job_id: str) -> Mapping[str, str]:
        with self.cluster.answering("description"):
            return {f"job {job_id}": repr(self.cluster.require(job_id).spec.resources)}


class FakeImages:
    """The images of a fake cluster: ``ready`` ones are there."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.records: list[dict[str, Any]] = []

    def look(self, image: str, layers: Sequence[str]) -> ImageState:
        if image in self.ready:
            return ImageState(ready=True)
        return ImageState(ready=False, lacking=dict.fromkeys(layers, ()))

    def announce(self, record: Mapping[str, Any]) -> None:
        self.records.append(dict(record))

    def take(self, part: ImagePart) -> None:
        assert part.offset >= 0

    def listing(self) -> list[dict[str, Any]]:
        return [one for one in self.records if one["id"] in self.ready]

    def remove(self, image: str) -> None:
        if image not in self.ready:
            raise NotFound(f"there is no image {image}")
        self.ready.remove(image)


def launcher(
    folder: Path, *clusters: Cluster, say: Callable[[str], None] = lambda text: None
) -> Launcher:
    """Return the verbs over these clusters, with all of dray's own files below ``folder``. Jobs go
    to the first cluster; the project is ``folder/project``."""
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    config = Config(
        home=Home(folder / "dray", folder / "dray", folder / "dray/cache"),
        project=project,
        folder="",
        job={"job.on": clusters[0].name},
        clusters={one.name: ClusterConfig(one.name, one.kind) for one in clusters},
    )
    return Launcher(config, Reporter(say=say), {one.name: one for one in clusters})
