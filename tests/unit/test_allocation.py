"""An attempt's batch job, where the scheduler does not do what it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.node import allocation
from dray.node.jobdir import JobDir
from dray.node.scheduler import RUNNING, NoAnswer, Scheduler, SchedulerError

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

    def fate(self, number: str) -> str:
        assert number == "14"
        return RUNNING

    def queue(self) -> dict[str, Any]:
        return self.queued

    def number_of(self, row: dict[str, Any], job_id: str) -> str:
        assert job_id == "walk-7f3k"
        return str(row["id"])

    def submit(self, script: str, after: str | None = None, keep_open: tuple[int, ...] = ()) -> str:
        assert (Path(script).name, after, keep_open) == ("batch.sh", "14", ())
        raise self.error


@pytest.fixture
def job_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDir:
    """An attempt was made, was interrupted, and made progress."""
    monkeypatch.setattr(allocation, "OUTAGE", 1.5)
    monkeypatch.setattr(allocation.Allocation, "_one_attempt", lambda _: None)
    folder = tmp_path / "jobs/walk-7f3k"
    (folder / "attempts/001").mkdir(parents=True)
    outcome = {"outcome": "interrupted", "cause": "time", "progress": True}
    (folder / "attempts/001/outcome.json").write_text(json.dumps(outcome))
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
