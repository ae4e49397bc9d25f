"""When a session is over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from dray.node.jobs.jobdir import AttemptDir
from dray.node.sessions import holding
from dray.node.sessions.commands import OVER, command_of_session
from dray.node.sessions.holding import UNVISITED, Holding


class Session:
    """A session with a clock, and with processes whose CPU time is said."""

    def __init__(self, place: Path, idle: float | None) -> None:
        self.now, self.cpu = 1000.0, 0.0
        self.attempt = AttemptDir(str(place / "001"), 1)
        os.mkdir(self.attempt.path)
        command = command_of_session(idle)
        self.over = Path(self.attempt.path, OVER)
        self.described = holding.describe(command, self.attempt, "")
        self.holding: Holding

    def after(self, seconds: float) -> str:
        """Let time go by; return what those in it are told."""
        self.now += seconds
        return self.holding.look()

    def why(self) -> str:
        return self.over.read_text().strip() if self.over.exists() else ""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session(tmp_path, 3600.0)
    monkeypatch.setattr(holding, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(holding.process, "cpu_below", lambda pid: made.cpu)
    made.holding = Holding(made.described)
    return made


def test_nobody_comes_in(session: Session) -> None:
    assert session.after(UNVISITED - 10) == "", "there is nobody to be told"
    assert session.why() == ""
    session.after(40)
    assert session.why() == "dray: nobody came in for 15 min: it is ended"


def test_who_is_in_it_is_told_before_it_ends(session: Session) -> None:
    session.holding.is_entered()
    assert session.after(2900) == ""
    assert "the session ends in" in session.after(130)
    assert session.after(40) == "", "once"
    session.holding.is_used(session.now)
    assert session.after(3500) != "", "and once more before the next end"
    session.after(200)
    assert session.why() == "dray: it was idle for 1 h: it is ended"


def test_what_computes_is_use(session: Session) -> None:
    session.holding.is_entered()
    for _ in range(100):
        session.cpu += 10.0
        assert session.after(100) == ""
    assert session.why() == ""
    session.after(3700)
    assert "idle" in session.why()


def test_so_is_a_gpu_at_work(session: Session) -> None:
    session.holding.is_entered()
    beat = Path(session.attempt.heartbeat)
    beat.write_text(json.dumps({"gpu_use": 80.0}))
    session.after(3700)
    assert session.why() == ""
    beat.write_text(json.dumps({"gpu_use": 0.0}))
    session.after(3700)
    assert "idle" in session.why()


def test_a_disk_that_is_away_does_not_let_it_go_on_for_ever(session: Session) -> None:
    session.holding.is_entered()
    shutil.rmtree(session.attempt.path)
    session.holding.end("its last shell has ended")
    assert session.why() == ""
    os.mkdir(session.attempt.path)
    session.after(40)
    assert session.why() == "dray: its last shell has ended"


def test_the_command_waits_for_that_and_says_why(tmp_path: Path) -> None:
    attempt = tmp_path / "attempts/007"
    attempt.mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "DRAY_OUTPUTS": f"{tmp_path}/outputs", "DRAY_ATTEMPT": "7"}
    command = subprocess.Popen(command_of_session(None), env=env, stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(0.3)
    (attempt / OVER).write_text("dray: it is over\\n, \\033[1m and so on\n")
    said, _ = command.communicate(timeout=60)
    assert said == b"dray: it is over\\n, \\033[1m and so on\n"
    assert command.returncode == 0
