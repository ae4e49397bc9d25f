"""An attempt's batch job, where the scheduler does not do what it should."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dray.node.attempt import allocation, loop, succession
from dray.node.formats import files
from dray.node.jobs import policy, staging, trouble
from dray.node.jobs.jobdir import JobDir
from dray.node.schedulers.scheduler import RUNNING, NoAnswer, Scheduler, SchedulerError
from tests.unit.test_trouble import JOB as DESCRIBED

RESUME = {"checkpoint": "*.json", "grace": 1, "backoff": 0}
JOB: dict[str, Any] = {
    "resume": RESUME,
    "outputs": [],
    "retries": 1,
    "resumed_after": 0,
    "scheduler": {"kind": "slurm", "resume_with": "chain"},
}


class Unwilling(Scheduler):
    """Takes no batch job, or takes it and does not say so."""

    name = "Slurm"

    def __init__(self, queued: dict[str, Any]) -> None:
        self.queued = queued
        self.error: SchedulerError = NoAnswer("silence") if queued else SchedulerError("no room")

    def own_number(self) -> str:
        return "14"

    def batch_state(self, number: str) -> str:
        assert number == "14"
        return RUNNING

    def queue(self) -> dict[str, Any]:
        return self.queued

    def number_of(self, row: dict[str, Any], job_id: str) -> str:
        assert job_id == "walk-7f3k"
        return str(row["id"])

    def submit(
        self,
        script: str,
        after: str | None = None,
        keep_open: tuple[int, ...] = (),
        planned: Sequence[str] = (),
    ) -> str:
        assert (Path(script).name, after, keep_open, planned) == ("batch.sh", "14", (), [])
        raise self.error


@pytest.fixture
def job_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDir:
    """An attempt was made, was interrupted, and made progress."""
    monkeypatch.setattr(succession, "OUTAGE", 1.5)
    monkeypatch.setattr(loop.AttemptLoop, "_make_attempt", lambda _: None)
    folder = tmp_path / "jobs/walk-7f3k"
    (folder / "attempts/001").mkdir(parents=True)
    outcome = {"outcome": "interrupted", "cause": "time", "progress": True}
    (folder / "attempts/001/outcome.json").write_text(json.dumps(outcome))
    (folder / "batch.sh").write_text("#!/bin/sh\n")
    return JobDir(str(folder))


def test_a_successor_that_is_refused_for_good_is_the_end(job_dir: JobDir) -> None:
    assert allocation.Allocation(job_dir, JOB, Unwilling({})).run() == 1
    end = json.loads(Path(job_dir.end).read_text())
    reason = "its next attempt could not be queued: no room"
    assert (end["state"], end["reason"]) == ("failed", reason)


def test_one_that_was_taken_without_an_answer_is_found(job_dir: JobDir) -> None:
    queued = {"walk-7f3k": {"id": "15", "state": "waiting"}}
    assert allocation.Allocation(job_dir, JOB, Unwilling(queued)).run() == 0
    assert job_dir.known_number() == "15"
    assert not Path(job_dir.end).exists()


@pytest.mark.parametrize("progress", [True, False])
def test_a_time_limit_that_was_cut_is_restored(job_dir: JobDir, progress: bool) -> None:
    """Where the short slot brought no checkpoint, the next one has to be whole."""
    about = {"started": 100.0, "deadline": 100.0 + 3600}
    Path(job_dir.attempt(1).attempt).write_text(json.dumps(about))
    outcome = {"outcome": "interrupted", "cause": "time", "progress": progress}
    Path(job_dir.attempt(1).outcome).write_text(json.dumps(outcome))
    resources = {"time": 4 * 3600.0, "time_min": 3600.0}
    batch = Willing()
    job = {**JOB, "resources": resources, "scheduler": {"kind": "slurm"}}
    assert allocation.Allocation(job_dir, job, batch).run() == 0
    assert batch.asked == [("requeue", "14"), ("restore", "14", 4 * 3600.0, not progress)]


def test_no_attempt_follows_when_the_total_time_is_used_up(job_dir: JobDir) -> None:
    about = {"started": 100.0}
    Path(job_dir.attempt(1).attempt).write_text(json.dumps(about))
    outcome = {"outcome": "interrupted", "cause": "time", "progress": True, "ended": 160.0}
    Path(job_dir.attempt(1).outcome).write_text(json.dumps(outcome))
    batch = Willing()
    job = {**JOB, "limits": {"total_time": 60.5}}
    assert allocation.Allocation(job_dir, job, batch).run() == 1
    assert batch.asked == []
    end = json.loads(Path(job_dir.end).read_text())
    assert (end["state"], end["reason"]) == ("stopped", "its total time of 1.01 min is used up")


# -- a node that cannot even begin ---------------------------------------------------------------


class Willing(Unwilling):
    """Requeues, and remembers what it was asked for."""

    def __init__(self) -> None:
        Unwilling.__init__(self, {})
        self.asked: list[tuple[Any, ...]] = []

    def own_index(self) -> int:
        return 7

    def requeue(self, number: str) -> None:
        self.asked.append(("requeue", number))

    def postpone(self, number: str, seconds: float) -> None:
        self.asked.append(("postpone", number, seconds))

    def restore_time(self, number: str, seconds: float, whole: bool) -> None:
        self.asked.append(("restore", number, seconds, whole))


@pytest.fixture
def willing(monkeypatch: pytest.MonkeyPatch) -> Willing:
    batch = Willing()
    monkeypatch.setattr(allocation.scheduler, "of_kind", lambda _: batch)
    monkeypatch.setattr(trouble.with_retries, "__defaults__", (0.0,))
    monkeypatch.setattr(trouble.time, "sleep", lambda _: None)
    return batch


def write_job(folder: Path, **more: Any) -> None:
    folder.mkdir(parents=True)
    job = {**DESCRIBED, "scheduler": {"kind": "slurm"}, **more}
    (folder / "job.json").write_text(json.dumps(job))
    for name in ("batch.sh", "job.sh"):
        (folder / name).write_text("#!/bin/sh\n")


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize("where", [(files, "open_lock"), (files, "make_folder")])
def test_an_attempt_that_cannot_begin_is_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, willing: Willing, where: tuple[Any, str]
) -> None:
    folder = tmp_path / "jobs/walk-7f3k"
    write_job(folder)
    monkeypatch.setattr(*where, no_room)
    assert allocation.attempt(str(folder)) == 0
    assert willing.asked == [("requeue", "14"), ("postpone", "14", policy.LONGEST_PAUSE)]
    assert not (folder / "end.json").exists()


def test_so_is_one_of_an_array_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, willing: Willing
) -> None:
    write_job(tmp_path / "arrays/sweep-a", commands=[["true"]] * 8)
    monkeypatch.setattr(staging.New, "write", no_room)
    assert allocation.attempt(str(tmp_path / "arrays/sweep-a")) == 0
    assert willing.asked[0] == ("requeue", "14")


def test_without_a_script_of_its_own_it_cannot_be_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, willing: Willing
) -> None:
    """Least of all by submitting the array."""
    settings = {"kind": "slurm", "resume_with": "chain"}
    write_job(tmp_path / "arrays/sweep-a", commands=[["true"]] * 8, scheduler=settings)
    monkeypatch.setattr(staging.New, "write", no_room)
    with pytest.raises(SchedulerError, match=r"there is no .*sweep-a\.7"):
        allocation.attempt(str(tmp_path / "arrays/sweep-a"))
    assert willing.asked == []


def test_a_defect_of_drays_is_not_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, willing: Willing
) -> None:
    write_job(tmp_path / "jobs/walk-7f3k")
    monkeypatch.setattr(files, "open_lock", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        allocation.attempt(str(tmp_path / "jobs/walk-7f3k"))
    assert willing.asked == []
