"""Which pods are given up: those of a node that is gone, and none that may still be running."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.kube import lost_nodes
from dray.node.agent.status import is_silent
from dray.node.jobs import jobdir
from dray.node.jobs.jobdir import JobDir

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def pod(**metadata: object) -> dict[str, Any]:
    return {"metadata": {"name": "a-0-abcde", **metadata}}


@pytest.mark.parametrize(
    ("marked", "is_late"),
    [
        ("2027-01-15T07:59:00Z", True),
        ("2027-01-15T07:59:00", True),
        ("2027-01-15T07:59:45Z", False),  # its kubelet may still say so
        ("2027-01-15T09:00:00Z", False),
        ("", False),
        ("yesterday", False),
        (7, False),
        ({}, False),
    ],
)
def test_a_pod_is_late_long_after_its_grace(marked: object, is_late: bool) -> None:
    one = pod(deletionTimestamp=marked)
    assert lost_nodes.overdue([one, pod()], NOW) == ([one] if is_late else [])


@pytest.mark.parametrize(
    ("there", "kept"),
    [
        ([lost_nodes.TRACKING], []),
        (["somebody/else", lost_nodes.TRACKING], ["somebody/else"]),
        (None, []),
        ("text", []),
        ([7, "mine"], ["mine"]),
    ],
)
def test_the_finalizers_of_others_are_kept(there: object, kept: list[str]) -> None:
    assert lost_nodes.other_finalizers(pod(finalizers=there)) == kept


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    (tmp_path / "jobs/a-2345/attempts/001").mkdir(parents=True)
    return JobDir(str(tmp_path / "jobs/a-2345"))


def age(path: str) -> None:
    moment = time.time() - 2 * jobdir.SILENT
    os.utime(path, (moment, moment))


def write(path: str, content: dict[str, object]) -> None:
    Path(path).write_text(json.dumps(content))


def test_a_heartbeat_keeps_a_pod(job: JobDir) -> None:
    attempt = job.attempt(1)
    write(attempt.heartbeat, {"heartbeat": 1.0})
    age(attempt.path)
    assert not is_silent(job)
    age(attempt.heartbeat)
    assert is_silent(job)


def test_one_that_was_about_to_start_is_given_the_same_time(job: JobDir) -> None:
    assert not is_silent(job)
    age(job.attempt(1).path)
    assert is_silent(job)
    assert is_silent(job)  # looking is no sign of life


def test_between_two_attempts_nothing_is_lost(job: JobDir) -> None:
    write(job.attempt(1).outcome, {"outcome": "interrupted"})
    assert is_silent(job)


def test_a_job_that_has_ended_needs_no_further_pod(job: JobDir) -> None:
    write(job.attempt(1).outcome, {"outcome": "done"})
    write(job.end, {"state": "done", "reason": "", "time": 1.0})
    assert not is_silent(job)
