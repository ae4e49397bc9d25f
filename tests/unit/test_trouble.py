"""Trouble of the node is told as such: it does not fail a command that did not start, nor one that
had finished. A real supervisor runs in a process of its own, where the errors are made up."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.node.attempt import outcomes
from dray.node.formats import files
from dray.node.jobs import policy
from dray.node.jobs.jobdir import JobDir
from dray.node.jobs.policy import Decision

JOB: dict[str, Any] = {
    "id": "walk-7f3k",
    "command": ["/bin/sh", "-c", "exit 0"],
    "folder": "",
    "snapshot": None,
    "outputs": ["logs"],
    "env": {},
    "retries": 0,
    "resumed_after": 0,
    "resources": {"memory": None, "time": None},
    "resume": {"checkpoint": None, "grace": 1, "backoff": 10, "signal": None},
}

SUPERVISE = """
import json, os, sys
from dray.node.attempt import outcomes as ledger
from dray.node.code import worktree
from dray.node.formats import files
from dray.node.processes import process
from dray.node.jobs.jobdir import JobDir
from dray.node.attempt.allotment import Allotment
from dray.node.attempt.supervisor import Supervisor

def fail(real, *names):
    def act(path, *more, **others):
        if str(path).endswith(names):
            raise OSError({number}, os.strerror({number}), str(path))
        return real(path, *more, **others)
    return act

{patch}
job_dir = JobDir(sys.argv[1])
attempt = job_dir.attempt(1)
job = json.loads(sys.argv[2])
try:
    Supervisor(job_dir, attempt, job, Allotment(None, dict(os.environ), None)).run()
except Exception as error:
    ledger.record_own_failure(job_dir, 1, error)
"""


@pytest.fixture
def job_dir(tmp_path: Path) -> JobDir:
    job_dir = JobDir(str(tmp_path / "root/jobs/walk-7f3k"))
    os.makedirs(job_dir.attempt(1).path)
    os.makedirs(job_dir.outputs)
    return job_dir


def supervise(job_dir: JobDir, patch: str, number: int, **more: Any) -> dict[str, Any]:
    code = SUPERVISE.format(patch=patch, number=number)
    words = [sys.executable, "-c", code, job_dir.path, json.dumps({**JOB, **more})]
    subprocess.run(words, check=True, timeout=60)
    return job_dir.attempt(1).record()


TROUBLES = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EMFILE]
FOLDERS = 'os.makedirs = fail(os.makedirs, "/work")\nos.mkdir = fail(os.mkdir, "/work")'
LINKS = 'os.symlink = fail(os.symlink, "/logs")'
LOG = 'os.open = fail(os.open, "/log")'
FORK = "def fork():\n    raise OSError({number}, os.strerror({number}))\nprocess.os.fork = fork"
START = (
    "def chdir(path):\n    raise OSError(11, 'no room')\nprocess.os.chdir = chdir"  # in the child
)


@pytest.mark.parametrize("number", TROUBLES)
@pytest.mark.parametrize("patch", [FOLDERS, LINKS, LOG])
def test_a_node_that_cannot_start_the_command_interrupts_it(
    job_dir: JobDir, patch: str, number: int
) -> None:
    ended = supervise(job_dir, patch, number)
    assert (ended["outcome"], ended["cause"], ended["progress"]) == ("interrupted", "node", False)
    assert ended["reason"].startswith("its node could not start it: ")
    assert os.strerror(number) in ended["reason"]


@pytest.mark.parametrize("patch", [FORK.format(number=errno.EAGAIN), START])
def test_so_does_one_without_room_for_a_process(job_dir: JobDir, patch: str) -> None:
    ended = supervise(job_dir, patch, errno.EAGAIN)
    assert (ended["outcome"], ended["cause"]) == ("interrupted", "node")


def test_a_program_that_is_missing_is_the_commands_failure(job_dir: JobDir) -> None:
    ended = supervise(job_dir, "", 0, command=["/no/such/program"])
    assert (ended["outcome"], ended["exit_code"], ended["hopeless"]) == ("failed", 127, True)


def test_a_snapshot_that_is_missing_is_hopeless(job_dir: JobDir) -> None:
    ended = supervise(job_dir, "", 0, snapshot="f" * 40)
    assert (ended["outcome"], ended["hopeless"]) == ("failed", True)
    assert "is missing" in ended["reason"]


UNREMOVABLE = 'os.unlink = fail(os.unlink, "/reserve", "/heartbeat.json", "/.dray-unpacked")'
UNREADABLE = (
    "from dray.node.checkpoints import newest as checkpoints\n"
    "def fail_always(*_):\n    raise OSError({number}, os.strerror({number}))\n"
    "checkpoints.newest = fail_always"
)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_what_cannot_be_removed_does_not_fail_a_run_that_is_done(
    job_dir: JobDir, number: int
) -> None:
    ended = supervise(job_dir, UNREMOVABLE, number)
    assert (ended["outcome"], ended["exit_code"]) == ("done", 0)


def test_checkpoints_that_cannot_be_looked_at_in_the_end_do_not(job_dir: JobDir) -> None:
    patch = UNREADABLE.format(number=errno.EIO)
    late = "real = Supervisor._start\ndef start(self):\n    real(self)\n    {}"
    patch = late.format(patch.replace("\n", "\n    ")) + "\nSupervisor._start = start"
    resume = {**JOB["resume"], "checkpoint": "*.pt"}
    ended = supervise(job_dir, patch, errno.EIO, resume=resume)
    assert (ended["outcome"], ended["exit_code"]) == ("done", 0)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_job_that_has_ended_stays_so_though_its_files_stay(
    job_dir: JobDir, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    files.write_json(job_dir.secrets, {"KEY": "value"})
    monkeypatch.setattr(files.os, "unlink", refuse)
    outcomes.end_job(job_dir, Decision("done", ""))
    assert (job_dir.ended() or {})["state"] == "done"


def test_an_outcome_is_not_overwritten_by_a_failure_after_it(job_dir: JobDir) -> None:
    attempt = job_dir.attempt(1)
    files.write_json(attempt.outcome, {"outcome": "done", "exit_code": 0})
    outcomes.record_own_failure(job_dir, 1, RuntimeError("afterwards"))
    assert attempt.record()["outcome"] == "done"


def test_own_failures_of_the_node_are_tried_again(job_dir: JobDir) -> None:
    outcomes.record_own_failure(job_dir, 1, OSError(errno.ESTALE, "Stale file handle"))
    assert job_dir.attempt(1).record()["outcome"] == "interrupted"
    assert policy.decide(JOB, job_dir.records()).again


def test_a_node_in_trouble_is_tried_three_times_with_growing_pauses() -> None:
    one = {"outcome": "interrupted", "cause": "node", "reason": "its node could not start it: full"}
    decisions = [policy.decide(JOB, [one] * count) for count in (1, 2, 3)]
    assert [(each.again, each.delay) for each in decisions] == [(True, 10), (True, 20), (False, 0)]
    assert decisions[-1].reason == one["reason"] + (
        "; given up: interrupted three times without progress"
    )
