"""What a job's files and its scheduler say together: no file is needed to put them together."""

from __future__ import annotations

from typing import Any

import pytest

from dray.node.jobs import states
from dray.node.jobs.states import FileFacts, Trace
from tests.unit.test_trouble import JOB

ENDED = {"number": 1, "outcome": "interrupted", "cause": "signal", "ended": 5.0}
UNDER_WAY = {"number": 1, "outcome": None}
WAITING = {"id": "14", "state": "waiting", "why": "Priority", "start": ""}
RUNNING = {"id": "14", "state": "running", "why": "", "start": ""}


def facts(*attempts: dict[str, Any], silence: float | None = None, **more: Any) -> FileFacts:
    told: dict[str, Any] = {"description": JOB, "end": None, **more}
    return FileFacts("walk-7f3k", "job.json", attempts=list(attempts), silence=silence, **told)


def trace(
    *numbers: str, submitting: bool = False, stop: bool = False, said: str = "", why: str = ""
) -> Trace:
    return Trace(submitting, stop, list(numbers), said, why)


@pytest.mark.parametrize(
    ("said_by_files", "queued", "may_be_queued", "state"),
    [
        (facts(), WAITING, False, "queued"),
        (facts(), None, True, "queued"),
        (facts(UNDER_WAY), RUNNING, False, "running"),
        (facts(UNDER_WAY), WAITING, False, "queued"),  # it was requeued
        (facts(UNDER_WAY, silence=1.0), WAITING, False, "running"),  # the queue's answer is old
        (facts(UNDER_WAY, silence=1.0), None, False, "running"),
        (facts(UNDER_WAY, end={"state": "done"}), RUNNING, False, "done"),
    ],
)
def test_files_tell_what_happened_and_the_queue_whether_it_goes_on(
    said_by_files: FileFacts, queued: Any, may_be_queued: bool, state: str
) -> None:
    record = states.merge(said_by_files, queued, may_be_queued, None, "Slurm")
    assert record["state"] == state


@pytest.mark.parametrize(
    ("said_by_files", "left", "state", "reason"),
    [
        (facts(), trace(submitting=True), "queued", "being submitted"),
        (facts(), trace("14", stop=True), "stopped", "stopped on request"),
        (facts(), trace(), "lost", "it was never handed to Slurm"),
        (facts(), trace("14", said="no such file"), "failed", "its batch script ended"),
        (facts(ENDED), trace("14"), "stopped", "cancelled in Slurm"),
        (facts(UNDER_WAY), trace("14"), "lost", "its batch job is gone"),
        (facts(UNDER_WAY), trace("14", why="killed"), "lost", "its keeper is gone: killed"),
        (facts(), trace("14", why="killed"), "lost", "its keeper is gone before it ran: killed"),
        (facts(), trace("14", said="no disk", why="killed"), "failed", "its batch script ended"),
    ],
)
def test_a_job_that_left_the_queue_without_an_end(
    said_by_files: FileFacts, left: Trace, state: str, reason: str
) -> None:
    assert states.is_silent(said_by_files)
    record = states.merge(said_by_files, None, False, left, "Slurm")
    assert record["state"] == state
    assert record["reason"].startswith(reason)


def test_the_books_tell_more_than_a_guess() -> None:
    record = states.merge(facts(UNDER_WAY), None, False, trace("14_3", "14"), "Slurm")
    assert states.unexplained([record]) == ["14_3", "14"]
    states.explain([record], {"14_3": {"state": "stopped", "reason": "cancelled in Slurm"}})
    assert (record["state"], record["reason"]) == ("stopped", "cancelled in Slurm")
    assert "trace" not in record
