"""What a keeper concludes from how a supervisor has ended, and when it heeds a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.node.attempt.keeper import KILLED, UNWRITTEN, reason_without_outcome
from dray.node.formats import files
from dray.node.jobs.jobdir import JobDir
from dray.node.schedulers.queue import Queue

ASKS_FOR_LONG = """
import os, sys, time
from dray.node.attempt.keeper import Keeper
from dray.node.jobs.jobdir import JobDir
from dray.node.sweeps import trial

def ask(*_):
    print("asking", flush=True)
    time.sleep(600)

trial.ask = ask
job_dir = JobDir(sys.argv[1])
Keeper(job_dir, os.open(job_dir.alive, os.O_RDWR | os.O_CREAT, 0o600), None).keep()
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", KILLED),
        ("raise OSError(28, 'No space left on device')", UNWRITTEN),
        ("import os; os._exit(0)", UNWRITTEN),
    ],
)
def test_a_full_disk_is_not_taken_for_a_kill(code: str, reason: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as supervisor:
        _, status = os.waitpid(supervisor.pid, 0)
        supervisor.returncode = status
    assert reason_without_outcome(status) == reason


def test_a_trial_is_stopped_while_it_asks_for_its_parameters(tmp_path: Path) -> None:
    job_dir = JobDir(str(tmp_path / "jobs/policy-7f3k.3"))
    Path(job_dir.path).mkdir(parents=True)
    Queue(str(tmp_path)).make()
    job = {
        "id": job_dir.id,
        "command": ["true"],
        "resources": {"cpus": 1, "gpus": 0.0, "memory": None, "nodes": 1, "time": None},
        "resume": {"grace": 1.0, "backoff": 1.0},
        "outputs": [],
        "retries": 0,
        "resumed_after": 0,
        "sweep": {"id": "policy-7f3k", "trial": 3},
    }
    files.write_json(job_dir.job, job)
    words = [sys.executable, "-c", ASKS_FOR_LONG, job_dir.path]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == b"asking\n"
            files.write_json(job_dir.stop, {"now": False})
            keeper.terminate()
            assert keeper.wait(60) == 0
        finally:
            keeper.kill()
    assert (files.read_record(job_dir.end) or {}).get("state") == "stopped"
