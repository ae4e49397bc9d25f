"""What the agent says of jobs, and when it drops their secrets: on real files, with a queue that is
what the test says."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dray.node.agent import jobs, root_requests, status
from dray.node.formats import files
from dray.node.formats.wire import Refusal
from dray.node.jobs import arrays, states
from dray.node.jobs.jobdir import JobDir
from dray.node.root.submission import Submission, submission_lock
from dray.node.schedulers.pbs import parse_ends
from dray.node.schedulers.scheduler import SchedulerError
from dray.node.schedulers.slurm import parse_remembered
from tests.unit.test_hostile_files import Idle, make_agent, make_job
from tests.unit.test_trouble import JOB


def row(root: Path, job_id: str = "walk-7f3k", queued: Any = None) -> dict[str, Any]:
    (found,) = status.status(make_agent(root, queued), {"ids": [job_id]})["jobs"]
    return dict(found)


@pytest.fixture
def ended(tmp_path: Path) -> JobDir:
    job_dir = make_job(tmp_path, "walk-7f3k")
    files.write_json(job_dir.attempt(1).outcome, {"outcome": "failed", "exit_code": 1})
    files.write_json(job_dir.end, {"state": "failed", "reason": "exit code 1", "time": 2.0})
    os.utime(job_dir.scheduler, (1, 1))
    files.write_json(job_dir.secrets, {"KEY": "s3cret"})
    os.utime(job_dir.secrets, (1, 1))
    return job_dir


def test_secrets_of_a_job_that_has_ended_go(ended: JobDir) -> None:
    row(Path(ended.root))
    assert not os.path.exists(ended.secrets)


def test_a_job_whose_lock_is_free_is_lost_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that is asked over the network may be behind a job's last sign of life; the queue
    of a machine without one, which sees the locks, is not."""
    job_dir = make_job(tmp_path, "walk-7f3k")
    os.utime(job_dir.scheduler, (1, 1))
    files.write_json(job_dir.attempt(1).heartbeat, {"heartbeat": time.time()})
    assert row(tmp_path)["state"] == "running"
    monkeypatch.setattr(Idle, "why_gone", "killed")
    found = row(tmp_path)
    assert (found["state"], found["reason"]) == ("lost", "its keeper is gone: killed")


def test_those_of_a_resume_after_the_queue_was_asked_stay(
    ended: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is handed over while the status is told."""
    told = states.read

    def resumed_meanwhile(job_dir: JobDir, **known: bool) -> Any:
        record = told(job_dir, **known)
        time.sleep(0.01)  # longer than the tick of the file system's clock
        with Submission(job_dir):
            arrays.rewrite(job_dir, {"secrets.json": b'{"KEY": "new"}'}, None)
            files.remove(job_dir.end)
            job_dir.remember_number("15")
        return record

    monkeypatch.setattr(states, "read", resumed_meanwhile)
    row(Path(ended.root))
    assert files.read_record(ended.secrets) == {"KEY": "new"}


class Cancelling(Idle):
    """Remembers what it was asked to cancel."""

    def __init__(self, queued: Any) -> None:
        Idle.__init__(self, queued)
        self.cancelled: list[str] = []

    def number_of(self, row: dict[str, Any], job_id: str) -> str:
        assert job_id == "walk-7f3k"
        return str(row["id"])

    def cancel(self, numbers: list[str]) -> None:
        self.cancelled += numbers


@pytest.mark.parametrize(
    ("late", "begun", "cancelled"),
    [(status.LATE + 10, False, True), (status.LATE - 10, False, False), (1000.0, True, False)],
)
def test_a_job_that_should_have_begun_is_ended_at_a_look(
    tmp_path: Path, late: float, begun: bool, cancelled: bool
) -> None:
    """Not one that may be about to begin, nor one that waits for its second attempt."""
    job_dir = make_job(tmp_path, "walk-7f3k")
    limits = {"start_by": time.time() - late}
    files.write_json(job_dir.job, {**JOB, "created": 1.0, "limits": limits})
    if begun:
        files.write_json(job_dir.attempt(1).outcome, {"outcome": "interrupted", "progress": True})
    else:
        files.remove_tree(job_dir.attempts)
    queued = {"walk-7f3k": {"id": "14", "state": "waiting", "why": "", "start": ""}}
    asked = make_agent(tmp_path, queued)
    asked.scheduler = batch = Cancelling(queued)
    (found,) = status.status(asked, {"ids": ["walk-7f3k"]})["jobs"]
    assert batch.cancelled == (["14"] if cancelled else [])
    assert found["state"] == ("stopped" if cancelled else "queued")
    assert ("it had not begun by" in found["reason"]) == cancelled
    assert not os.path.exists(submission_lock(job_dir))


def test_those_of_a_submission_under_way_stay(ended: JobDir) -> None:
    with Submission(ended):
        row(Path(ended.root))
    assert os.path.exists(ended.secrets)
    assert not os.path.exists(submission_lock(ended))


class Killing(Idle):
    """Answers just before a submission gets through, whose agent is killed then: its lock is free,
    and still there."""

    def __init__(self, lock: Submission) -> None:
        Idle.__init__(self)
        self.lock: Submission | None = lock

    def read_queue(self) -> str:
        if self.lock is not None:
            os.close(self.lock.fd)
            self.lock = None
        return Idle.read_queue(self)


@pytest.mark.parametrize("kind", ["job", "array"])
def test_those_of_a_submission_that_is_killed_while_the_queue_is_asked_stay(
    tmp_path: Path, kind: str
) -> None:
    """It may have been handed over just after that: only the next look at the queue can tell."""
    job_dir = make_job(tmp_path, "walk-7f3k") if kind == "job" else make_array(tmp_path)
    job_id = job_dir.id if kind == "job" else job_dir.id + ".0"
    files.remove_tree(job_dir.attempts)
    files.remove(job_dir.scheduler)
    files.write_json(job_dir.secrets, {"KEY": "s3cret"})
    os.utime(job_dir.secrets, (1, 1))
    lock = Submission(job_dir)
    lock.take()
    asked = make_agent(tmp_path)
    asked.scheduler = Killing(lock)
    (found,) = status.status(asked, {"ids": [job_id]})["jobs"]
    assert (found["state"], os.path.exists(job_dir.secrets)) == ("queued", True)
    asked.forget_queue()
    (found,) = status.status(asked, {"ids": [job_id]})["jobs"]
    assert (found["state"], os.path.exists(job_dir.secrets)) == ("lost", False)


def make_array(root: Path) -> arrays.ArrayDir:
    """Two jobs that have secrets and no directories."""
    array = arrays.ArrayDir(str(root), "sweep-a")
    os.makedirs(array.path)
    os.makedirs(root / "jobs")
    files.write_json(array.job, {**JOB, "id": "sweep-a", "commands": [["a"], ["b"]]})
    files.write_json(array.secrets, {"KEY": "s3cret"})
    os.utime(array.secrets, (1, 1))
    return array


@pytest.mark.parametrize("under_way", [True, False])
def test_an_arrays_secrets_go_once_none_of_its_jobs_is_queued(
    tmp_path: Path, under_way: bool
) -> None:
    array = make_array(tmp_path)
    if under_way:
        with Submission(array):
            row(tmp_path, "sweep-a.0")
    else:
        row(tmp_path, "sweep-a.0")
    assert os.path.exists(array.secrets) == under_way


def test_a_job_of_an_array_that_has_just_been_submitted_is_not_lost(tmp_path: Path) -> None:
    """It has run already, and was handed over after the queue was asked."""
    array = make_array(tmp_path)
    job_dir = array.make_job(0)
    os.utime(job_dir.secrets, (1, 1))
    os.makedirs(job_dir.attempt(1).path)
    files.write_json(job_dir.attempt(1).outcome, {"outcome": "interrupted", "progress": True})
    assert row(tmp_path, job_dir.id)["state"] == "lost"
    files.write_json(array.scheduler, {"id": "14"})
    assert row(tmp_path, job_dir.id)["state"] == "queued"


class Refusing(Idle):
    def submit(self, *_: Any, **__: Any) -> str:
        raise SchedulerError("no such partition")


class Taking(Idle):
    def submit(self, *_: Any, **__: Any) -> str:
        return "14"


def request(job_id: str) -> dict[str, Any]:
    description = {**JOB, "id": job_id, "name": "x", "created": 1.0}
    contents = {"job.json": files.encode(description).decode(), "batch.sh": "x"}
    contents["secrets.json"] = '{"KEY": "s3cret"}'
    job = {"id": job_id, "created": 1.0, "snapshot": None, "resumed_after": 1}
    job["start_from"] = ""
    return {"job": job, "files": contents}


def test_a_rejected_submission_leaves_nothing(tmp_path: Path) -> None:
    dray = make_agent(tmp_path)
    dray.scheduler = Refusing()
    with pytest.raises(SchedulerError):
        jobs.submit(dray, request("walk-7f3k"))
    assert os.listdir(tmp_path / "jobs") == []


def test_one_that_is_cut_while_it_cleans_up_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.remove_tree

    def cut(path: str) -> list[str]:
        if not os.path.exists(os.path.join(path, "batch.sh")):
            return real(path)
        os.unlink(os.path.join(path, "batch.sh"))
        raise KeyboardInterrupt

    dray = make_agent(tmp_path)
    dray.scheduler = Refusing()
    with monkeypatch.context() as patched:
        patched.setattr(files, "remove_tree", cut)
        with pytest.raises(KeyboardInterrupt):
            jobs.submit(dray, request("walk-7f3k"))
    dray.scheduler = Taking()
    jobs.submit(dray, request("walk-7f3k"))["afterwards"]()
    assert os.listdir(tmp_path / "jobs") == ["walk-7f3k"]
    assert os.path.exists(tmp_path / "jobs/walk-7f3k/batch.sh")


def test_a_locks_file_that_cannot_be_removed_fails_no_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.unlink

    def unlink(path: str, **more: Any) -> None:
        if os.path.basename(path).startswith(".lock-"):
            raise OSError(5, "Input/output error", path)
        real(path, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    dray = make_agent(tmp_path)
    dray.scheduler = Taking()
    assert jobs.submit(dray, request("walk-7f3k"))["scheduler_id"] == "14"


def test_leftovers_of_a_killed_agent_are_swept_by_status_and_ids(tmp_path: Path) -> None:
    for kind, verb in (
        ("jobs", status.status),
        ("arrays", status.status),
        ("jobs", root_requests.ids),
    ):
        left = tmp_path / kind / ".new-walk-7f3k-abc"
        left.mkdir(parents=True)
        (left / ".writing").write_text(os.uname().nodename)
        (left / "secrets.json").write_text("s3cret")
        verb(make_agent(tmp_path), {"ids": []})
        assert not left.exists()


# -- how a job ended that could not say it -----------------------------------------------------


def test_one_that_is_gone_before_its_first_attempt_was_not_cancelled(tmp_path: Path) -> None:
    job_dir = make_job(tmp_path, "walk-7f3k")
    files.remove_tree(job_dir.attempt(1).path)
    os.utime(job_dir.scheduler, (1, 1))
    shown = row(tmp_path)
    reason = "its batch job is gone before it ran, and Slurm does not tell why"
    assert (shown["state"], shown["reason"]) == ("lost", reason)


def test_what_the_controller_remembers_is_told() -> None:
    lines = [
        "JobId=7 JobName=a JobState=CANCELLED Reason=None",
        "JobId=8 JobName=b JobState=NODE_FAIL Reason=None",
        "JobId=9 JobName=c JobState=FAILED Reason=NonZeroExitCode",
        "JobId=10 ArrayJobId=10 ArrayTaskId=3-9 JobName=d JobState=CANCELLED",
        "JobId=12 ArrayJobId=10 ArrayTaskId=1 JobName=d JobState=TIMEOUT",
        "JobId=13 JobName=other JobState=CANCELLED",
    ]
    found = parse_remembered("\n".join(lines), ["7", "8", "9", "10", "10_1"])
    assert {number: end["state"] for number, end in found.items()} == {
        "7": "stopped",
        "8": "lost",
        "10": "stopped",
        "10_1": "lost",
    }


@pytest.mark.parametrize(
    ("attributes", "deleted"),
    [
        ("job_state = C", True),
        ("job_state = C\n    exit_status = 271", True),
        ("job_state = F\n    substate = 91\n    Exit_status = 1", True),
        ("job_state = C\n    exit_status = 1", False),
        ("job_state = F\n    substate = 92\n    Exit_status = 0", False),
        ("job_state = R", False),
    ],
)
def test_of_pbs_only_what_was_deleted_is_known(attributes: str, deleted: bool) -> None:
    assert (parse_ends(f"Job Id: 7.server\n    {attributes}\n") != {}) == deleted


# -- signs of life -------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "reason"), [(10, ""), (430, "no sign of life for 7 min")])
def test_an_attempt_without_a_sign_of_life_is_told(tmp_path: Path, age: int, reason: str) -> None:
    job_dir = make_job(tmp_path, "walk-7f3k")
    beat = job_dir.attempt(1).heartbeat
    files.write_json(beat, {"heartbeat": 1.0})
    at = os.stat(beat).st_mtime - age
    os.utime(beat, (at, at))
    queued = {"walk-7f3k": {"id": "14", "state": "running", "why": "", "start": ""}}
    shown = row(tmp_path, queued=queued)
    assert shown["state"] == "running"
    assert shown["reason"] == (reason and reason + " (its node may be hung)")
    assert sorted(os.listdir(job_dir.attempt(1).path)) == ["attempt.json", "heartbeat.json"]


def test_a_job_of_an_array_that_was_stopped_is_not_told_as_cancelled(tmp_path: Path) -> None:
    """Though the scheduler's books say that it was: that was dray."""
    array = arrays.ArrayDir(str(tmp_path), "sweep-a")
    os.makedirs(array.path)
    os.makedirs(tmp_path / "jobs")
    files.write_json(array.job, {**JOB, "id": "sweep-a", "commands": [["a"], ["b"]]})
    files.write_json(array.scheduler, {"id": "14"})
    os.utime(array.scheduler, (1, 1))
    array.stop_jobs([1])
    dray = make_agent(tmp_path)
    dray.scheduler = Remembering()
    rows = status.status(dray, {"ids": ["sweep-a.0-1"]})["jobs"]
    reasons = [row["reason"] for row in rows]
    assert reasons == ["cancelled in Slurm before it ran", "stopped on request"]


class Remembering(Idle):
    def ends(self, numbers: list[str]) -> dict[str, Any]:
        return {one: {"state": "stopped", "reason": "cancelled in Slurm"} for one in numbers}


class Counting(Taking):
    """Has a new number for each submission, and a queue that is something else at each look."""

    def __init__(self, *looks: dict[str, Any]) -> None:
        super().__init__()
        self.looks = list(looks)
        self.submitted = 14

    def queue(self) -> dict[str, Any]:
        return self.looks.pop(0) if self.looks else {}

    def submit(self, *_: Any, **__: Any) -> str:
        self.submitted += 1
        return str(self.submitted)


def test_a_resume_whose_answer_was_lost_is_not_made_again(ended: JobDir) -> None:
    """The laptop asks again once it is awake; by then the resumed attempt has ended."""
    dray = make_agent(Path(ended.root))
    dray.scheduler = Counting()
    assert jobs.resume(dray, request(ended.id))["scheduler_id"] == "15"
    os.makedirs(ended.attempt(2).path)
    files.write_json(ended.attempt(2).outcome, {"outcome": "done", "exit_code": 0})
    files.write_json(ended.end, {"state": "done", "reason": "", "time": 3.0})
    assert jobs.resume(dray, request(ended.id))["scheduler_id"] == "15"
    assert os.path.exists(ended.end)
    assert dray.scheduler.submitted == 15


class Told(Taking):
    """As Kubernetes: the laptop tells what is queued, and creates what is to be."""

    is_told = True

    def queue(self) -> dict[str, Any]:
        return self.queued


FAILED = {"state": "failed", "reason": "exit code 1", "time": 2.0}


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_the_laptop_could_not_hand_over_is_taken_back_unless_it_goes_on(
    ended: JobDir, goes_on: bool
) -> None:
    """Another laptop may have handed it over, and it may have ended since."""
    dray = make_agent(Path(ended.root))
    dray.scheduler = Told()
    asked = request(ended.id)
    description = {**files.read_record(ended.job), "resumed_after": 1}
    asked["files"]["job.json"] = files.encode(description).decode()
    assert jobs.resume(dray, asked)["end"] == FAILED
    done = {**FAILED, "state": "done", "reason": ""}
    if goes_on:
        os.makedirs(ended.attempt(2).path)
        files.write_json(ended.attempt(2).outcome, {"outcome": "done", "exit_code": 0})
        files.write_json(ended.end, done)
    jobs.discard(dray, {"job": asked["job"], "end": FAILED})
    assert ended.ended() == (done if goes_on else FAILED)


def test_a_job_that_goes_on_in_its_job_gets_no_second_one(ended: JobDir) -> None:
    """The laptop had looked too early, and took it for lost."""
    files.remove(ended.end)
    dray = make_agent(Path(ended.root))
    dray.scheduler = Told({ended.id: {"id": ended.id, "state": "running", "why": "", "start": ""}})
    assert jobs.resume(dray, request(ended.id))["gone_on"] is True
    assert files.read_record(ended.secrets) == {"KEY": "s3cret"}


def test_a_resume_waits_for_a_batch_job_that_may_be_requeued(
    ended: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ENDING_LOOK", 0.0)
    files.remove(ended.end)
    rows = [{"id": "14", "state": state} for state in ("ending", "ending", "waiting")]
    dray = make_agent(Path(ended.root))
    dray.scheduler = Counting(*({ended.id: row} for row in rows))
    assert jobs.resume(dray, request(ended.id))["scheduler_id"] == "14"
    assert dray.scheduler.submitted == 14


def test_a_batch_job_that_does_not_end_is_not_waited_for_without_end(
    ended: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ENDING", -1.0)
    files.remove(ended.end)
    dray = make_agent(Path(ended.root))
    dray.scheduler = Counting({ended.id: {"id": "14", "state": "ending"}})
    with pytest.raises(Refusal, match="still ending"):
        jobs.resume(dray, request(ended.id))
