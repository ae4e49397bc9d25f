"""dray shell --on CLUSTER: a session of one's own, from its start to its end."""

from __future__ import annotations

import json
import signal

import pytest

from tests.conftest import Dray
from tests.sessions.conftest import WAITING, Inside, Open, jobs, settled
from tests.sessions.test_shell import ask, begin, leave

pytestmark = pytest.mark.sessions


def test_a_session_ends_with_its_shell(dray: Dray, on: str, opened: Open) -> None:
    dray.write("code.txt", "of the project")
    shell = opened("--on", on, "--cpus", "1")
    job = settled(shell)
    ask(shell, "echo $DRAY_JOB_ID", job)
    ask(shell, "cat code.txt; echo", "of the project")
    shell.sendline("exit 3")
    assert leave(shell) == 3
    assert dray.wait(job)["state"] == "done"
    assert "its last shell has ended" in dray.log(job)


def test_who_gives_up_waiting_ends_it(dray: Dray, opened: Open) -> None:
    dray.configure("[clusters.local]\ngpus = 1\n")
    holder = dray.run("--gpus", "1", "--", "python3", "-c", WAITING)
    shell = opened("--gpus", "1")
    shell.expect("is queued")
    shell.sendintr()
    assert leave(shell) == 130
    (mine,) = [one for one in jobs(dray) if one["id"] != holder]
    assert mine["state"] == "stopped"


def test_a_killed_laptop(dray: Dray, opened: Open) -> None:
    """The shell is still there for who comes back; the session ends by itself if nobody does."""
    shell = opened("--on", "local", "--idle", "8s")
    job = settled(shell)
    ask(shell, "MINE=kept; echo set", "set")
    shell.kill(signal.SIGKILL)
    shell.close()
    again = Inside(dray, job).shell()
    again.expect_exact("back in the shell that was left")
    ask(again, "echo [$MINE]", "[kept]")
    again.kill(signal.SIGKILL)
    again.close()
    assert dray.wait(job)["state"] == "done"
    assert "it was idle for 8 s" in dray.log(job)


def test_a_laptop_that_is_killed_while_it_waits(dray: Dray, opened: Open) -> None:
    dray.configure("[clusters.local]\ngpus = 1\n")
    holder = dray.run("--gpus", "1", "--", "python3", "-c", WAITING)
    shell = opened("--gpus", "1", "--idle", "3s")
    shell.expect("is queued")
    shell.kill(signal.SIGKILL)
    shell.close()
    (mine,) = [one["id"] for one in jobs(dray) if one["id"] != holder]
    (dray.jobs / holder / "outputs/end").touch()
    assert dray.wait(mine)["state"] == "done"
    assert "nobody came in" in dray.log(mine)


def test_two_laptops(dray: Dray, opened: Open) -> None:
    """The session goes on until the last shell has ended."""
    first = opened("--on", "local")
    job = settled(first)
    second = begin(Inside(dray, job))
    ask(first, "touch here; echo made", "made")
    ask(second, "ls here", "here")
    first.sendline("exit")
    assert leave(first) == 0
    ask(second, "sleep 2; echo still", "still")
    assert dray.show(job)["state"] == "running"
    second.sendline("exit")
    assert leave(second) == 0
    assert dray.wait(job)["state"] == "done"


def test_those_in_it_are_told_before_it_ends(opened: Open) -> None:
    shell = opened("--on", "local", "--idle", "6s")
    settled(shell)
    shell.expect("dray: nothing was run or typed for a while: the session ends in")
    shell.expect("the attempt has ended")


def test_a_job_like_a_session(dray: Dray, opened: Open) -> None:
    """It has the session's settings, today's code, and a name, a command and limits of its own."""
    shell = opened("--on", "local", "--cpus", "1", "--env", "MINE=1", "--time", "1h")
    job = settled(shell)
    refused = dray("run", "--like", job, check=False)
    assert refused.returncode == 2
    assert "is a session" in refused.stderr
    dray.write("train.py", "import os; print('mine is', os.environ['MINE'])")
    made = dray.run("--like", job, "--", "python3", "train.py")
    assert made.startswith("train-")
    assert dray.wait(made)["state"] == "done"
    assert "mine is 1" in dray.log(made)
    spec = json.loads((dray.jobs / made / "job.json").read_text())
    assert (spec["resources"]["cpus"], spec["resources"]["time"]) == (1, 3600)
    assert spec["limits"]["total_time"] is None
    of_session = json.loads((dray.jobs / job / "job.json").read_text())
    assert of_session["limits"]["total_time"] == 3600
    shell.sendline("exit")
    leave(shell)


def test_what_does_not_go_together(dray: Dray, opened: Open) -> None:
    shell = opened("some-job", "--gpus", "1")
    shell.expect("some-job is there already")
    assert leave(shell) == 2
    ended = dray("shell", "--on", "local", check=False)
    assert ended.returncode == 2
    assert "needs a terminal" in ended.stderr
    assert jobs(dray) == [], "nothing was submitted for somebody without a terminal"
