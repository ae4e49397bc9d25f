"""What is written down of an attempt that nobody saw the end of."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dray.node.attempt.command import Command
from dray.node.attempt.outcomes import record_lost
from dray.node.formats import files
from dray.node.jobs.jobdir import AttemptDir, JobDir

JOB: dict[str, Any] = {"outputs": ["logs"], "resume": {"checkpoint": "*.json", "grace": 1}}


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDir:
    job_dir = JobDir(str(tmp_path / "root/jobs/walk-7f3k"))
    os.makedirs(job_dir.outputs)
    attempt = job_dir.attempt(1)
    os.makedirs(attempt.path)
    return attempt


def lose(attempt: AttemptDir) -> dict[str, Any]:
    job_dir = JobDir(os.path.dirname(os.path.dirname(attempt.path)))
    record_lost(job_dir, JOB, 1, "its node died")
    return attempt.record()


@pytest.mark.parametrize("ahead", [-600, 0, 600])
@pytest.mark.parametrize("saved", [-10, 10])
def test_progress_is_told_by_the_clock_of_the_file_system(
    attempt: AttemptDir, ahead: int, saved: int
) -> None:
    """The node's own clock may be minutes off."""
    files.write_json(attempt.attempt, {"started": time.time() + ahead})
    checkpoint = Path(attempt.path).parents[1] / "outputs/ckpt.json"
    checkpoint.write_text("{}")
    at = os.stat(attempt.attempt).st_mtime + saved
    os.utime(checkpoint, (at, at))
    assert lose(attempt)["progress"] == (saved > 0)


def test_one_that_was_lost_before_its_command_started_made_none(attempt: AttemptDir) -> None:
    (Path(attempt.path).parents[1] / "outputs/ckpt.json").write_text("{}")
    assert lose(attempt)["progress"] is False


def test_a_tree_that_cannot_be_cleared_is_no_reason_to_stop(attempt: AttemptDir) -> None:
    work = Path(attempt.path).parents[1] / "work"
    work.mkdir()
    (work / "made-by-the-command").write_text("x")
    Path(attempt.left).write_text("in the way of what is to be kept")
    lost = lose(attempt)
    assert (lost["outcome"], lost["left"]) == ("lost", [])


def test_a_command_that_cannot_be_killed_has_an_end_all_the_same(tmp_path: Path) -> None:
    """It hangs in the kernel: no process of a test can be made to."""
    command = Command(JobDir(str(tmp_path)), {"resume": {"grace": 1}}, {}, str(tmp_path / "log"))
    command.pid = 1
    assert command.end() == {"exit_code": None, "signal": None, "reason": "it could not be killed"}
