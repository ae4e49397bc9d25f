"""The loop around attempts, at a site that does nothing but loop, as a pod's would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.node.attempt import loop
from dray.node.jobs.jobdir import AttemptDir, JobDir
from dray.node.jobs.policy import Decision

JOB: dict[str, Any] = {
    "resume": {"checkpoint": "*.json", "grace": 1, "backoff": 0},
    "command": ["true"],
    "outputs": [],
    "retries": 1,
    "resumed_after": 0,
}
CRASH = {"outcome": "failed", "reason": "exit code 1", "exit_code": 1, "progress": True}
PREEMPTED = {"outcome": "interrupted", "cause": "signal", "reason": "preempted", "progress": True}
DONE = {"outcome": "done", "reason": ""}


class Pod(loop.Site):
    """Attempts whose outcomes are known."""

    name = "the cluster"
    lost = "its pod is gone"

    def __init__(self, *outcomes: dict[str, Any]) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[str] = []

    def supervise(self, attempt: AttemptDir) -> None:
        self.calls.append(f"attempt {attempt.number}")
        Path(attempt.outcome).write_text(json.dumps(self.outcomes.pop(0)))

    def end_leftovers(self) -> None:
        self.calls.append("end leftovers")

    def before_end(self) -> None:
        self.calls.append("before end")

    def after_end(self) -> None:
        self.calls.append("after end")


@pytest.fixture
def job_dir(tmp_path: Path) -> JobDir:
    (tmp_path / "jobs/walk-7f3k").mkdir(parents=True)
    return JobDir(str(tmp_path / "jobs/walk-7f3k"))


def run(job_dir: JobDir, pod: Pod) -> Decision | None:
    return loop.AttemptLoop(job_dir, JOB, pod).run()


def test_attempts_are_made_until_the_job_is_done(job_dir: JobDir) -> None:
    pod = Pod(PREEMPTED, CRASH, PREEMPTED, DONE)
    end = run(job_dir, pod)
    assert end is not None
    assert (end.state, pod.calls) == ("done", [f"attempt {n}" for n in (1, 2, 3, 4)])


def test_retries_are_counted(job_dir: JobDir) -> None:
    end = run(job_dir, Pod(CRASH, CRASH))
    assert end is not None
    assert (end.state, end.reason) == ("failed", "exit code 1; 1 retry used up")


def test_an_attempt_without_an_outcome_is_recorded_as_lost_first(job_dir: JobDir) -> None:
    Path(job_dir.attempt(1).path).mkdir(parents=True)
    pod = Pod(DONE)
    assert run(job_dir, pod) is not None
    assert pod.calls == ["end leftovers", "attempt 2"]
    assert (job_dir.attempt(1).ended() or {})["reason"] == "its pod is gone"


def test_a_stop_request_ends_the_job_before_another_attempt(job_dir: JobDir) -> None:
    Path(job_dir.stop).write_text("{}")
    pod = Pod()
    end = run(job_dir, pod)
    assert end is not None
    assert (end.state, end.reason, pod.calls) == ("stopped", "stopped on request", [])


@pytest.mark.parametrize(
    ("who", "state"), [(loop.ELSEWHERE, None), (loop.NOBODY, "stopped"), (loop.HERE, "done")]
)
def test_who_makes_the_next_attempt_is_the_sites_to_say(
    job_dir: JobDir, monkeypatch: pytest.MonkeyPatch, who: str, state: str | None
) -> None:
    monkeypatch.setattr(Pod, "arrange_next", lambda self, decision: who)
    end = run(job_dir, Pod(PREEMPTED, DONE))
    assert (end.state if end else None) == state
    if who == loop.NOBODY:
        assert end is not None
        assert end.reason == "cancelled in the cluster"


def test_an_attempt_is_due_until_it_has_begun(
    job_dir: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails meanwhile may be tried again later; what fails afterwards may not."""
    attempts = loop.AttemptLoop(job_dir, JOB, Pod(PREEMPTED))
    seen = []
    monkeypatch.setattr(
        Pod, "wait_for_turn", lambda self, decision: seen.append(attempts.is_due) or True
    )
    monkeypatch.setattr(
        Pod, "arrange_next", lambda self, decision: seen.append(attempts.is_due) or loop.ELSEWHERE
    )
    attempts.run()
    assert seen == [True, False]


def test_the_end_is_written_between_giving_up_and_letting_go(job_dir: JobDir) -> None:
    pod = Pod()
    loop.AttemptLoop(job_dir, JOB, pod).end(Decision("done"))
    assert pod.calls == ["before end", "after end"]
    assert (job_dir.ended() or {})["state"] == "done"
