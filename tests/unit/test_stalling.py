"""When a command is taken for hung."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dray.node.attempt import stalling
from dray.node.attempt.checkpoint_watch import CheckpointWatch
from dray.node.attempt.stalling import LONGEST_GAP, Stall
from dray.node.jobs.jobdir import JobDir
from dray.node.metrics import sources

ALLOWED = 60.0
RULES = {"checkpoint": "model_*.pt", "number": r"model_(\d+)", "signal": None, "args": []}
DESCRIPTION: dict[str, Any] = {"command": ["train"], "outputs": [], "resume": RULES}


class Attempt:
    """An attempt with a clock, of which the files are written by hand."""

    def __init__(self, place: Path, seconds: float | None) -> None:
        self.now = 1000.0
        self.looks = 0
        self.dir = JobDir(str(place / "jobs/job-1"))
        self.attempt = self.dir.attempt(1)
        self.outputs = Path(self.dir.outputs)
        self.outputs.mkdir(parents=True)
        self.log = Path(self.attempt.log)
        self.log.parent.mkdir(parents=True)
        self.log.touch()
        self.metrics = sources.Watch(DESCRIPTION, self.dir.outputs, self.attempt)
        self.checkpoints = CheckpointWatch(self.dir, self.attempt, DESCRIPTION, [])
        self.stall = Stall(seconds, self.attempt, self.metrics, self.checkpoints, self.look_closely)

    def look_closely(self) -> None:
        self.looks += 1
        self.metrics.look(last=True)
        self.checkpoints.look()

    def hangs(self, seconds: float) -> bool:
        """Let time go by, second for second; return whether the command counts as hung by then."""
        found = False
        for _ in range(int(seconds)):
            self.now += 1
            found = self.stall.is_reached() or found
        return found

    def report(self, step: int) -> None:
        line = f'{{"attempt": 1, "step": {step}, "time": 0.0, "values": {{"loss": 1.0}}}}\n'
        with (self.outputs / sources.REPORTS).open("a") as file:
            file.write(line)


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    made = Attempt(tmp_path, ALLOWED)
    monkeypatch.setattr(stalling, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_a_command_that_shows_nothing_hangs(attempt: Attempt) -> None:
    assert not attempt.hangs(ALLOWED - 1)
    assert attempt.hangs(20)


def test_nothing_hangs_unless_somebody_says_so(attempt: Attempt) -> None:
    attempt.stall.seconds = None
    assert not attempt.hangs(10_000)


def test_output_of_any_rank_is_progress(attempt: Attempt) -> None:
    ranks = Path(attempt.attempt.path, "ranks")
    ranks.mkdir()
    for log in (attempt.log, ranks / "3.log", attempt.log, ranks / "3.log"):
        assert not attempt.hangs(ALLOWED - 15)
        with log.open("a") as file:
            file.write("epoch\n")
    assert attempt.hangs(ALLOWED + 20)


def test_metrics_and_checkpoints_are_progress_though_nobody_has_looked_for_them(
    attempt: Attempt,
) -> None:
    """As in a huge folder of outputs, which is searched once an hour."""
    for step in range(1, 4):
        assert not attempt.hangs(30)
        attempt.report(step)
        assert not attempt.hangs(30)
        (attempt.outputs / f"model_{step}.pt").write_bytes(b"weights")
    assert attempt.looks
    assert attempt.hangs(2 * ALLOWED + 20)


def test_time_in_which_the_node_slept_does_not_count(attempt: Attempt) -> None:
    assert not attempt.hangs(10)
    attempt.now += 8 * 3600
    assert not attempt.stall.is_reached()
    assert not attempt.hangs(ALLOWED - LONGEST_GAP - 15)
    assert attempt.hangs(ALLOWED)


def test_a_disk_that_does_not_answer_says_nothing_of_the_command(attempt: Attempt) -> None:
    assert not attempt.hangs(10)
    os.unlink(attempt.log)
    assert not attempt.hangs(10_000)
    attempt.log.touch()
    assert attempt.hangs(2 * ALLOWED)
