"""kill -9 at any moment of a run that is writing torch checkpoints: it always comes back from a
whole one, and has lost no more than an interval."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for
from tests.trainers.conftest import HERE
from tests.trainers.test_interrupted import kill_supervisor

pytestmark = pytest.mark.trainers

INTERVAL = 5  # as in saving.py
KILLS = 200
ATTEMPTS = 12
SOURCE = HERE.parents[1] / "src"


def test_the_choice_of_a_checkpoint_survives_200_kills(trainers: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    words = [trainers / "python", HERE / "kill_saving.py", tmp_path, str(KILLS), str(seed)]
    env = {**os.environ, "PYTHONPATH": f"{SOURCE}:{HERE / 'project'}"}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, (seed, ended.stderr)
    found = json.loads(ended.stdout)
    assert found["torn"] > 0, "no kill fell into a save: nothing was tested"
    assert found["steps"] > 0
    assert max(found["lost"]) <= INTERVAL, (seed, found)


def test_twelve_kills_of_a_run_under_dray(dray: Dray, trainers: Path) -> None:
    """Of the trainer, and of the supervisor beside it."""
    moments = random.Random(seed := random.randrange(1 << 30))
    flags = ("--checkpoint", "model_*.pt", "--checkpoint-number", r"model_(\d+)", "--keep", "3")
    more = ("--retries", "99", "--backoff", "0.0001s", "--saves", "periodically")
    job = dray.run(*flags, *more, "--", str(trainers / "python"), "saving.py")
    outputs = dray.job_dir(job) / "outputs"
    for number in range(1, ATTEMPTS + 1):
        command = running(dray, job, number)
        before = newest_number(outputs)
        # Two attempts without a new checkpoint would be given up, and rightly so.
        wait_for(lambda before=before: newest_number(outputs) > before, 60)
        time.sleep(moments.uniform(0.0, 0.3))
        if number % 2:
            os.killpg(command, signal.SIGKILL)
        else:
            kill_supervisor(command)
    running(dray, job, ATTEMPTS + 1)
    wait_for(lambda: len(lost_steps(outputs)) == ATTEMPTS, 60)
    (outputs / "enough").touch()
    shown = dray.wait(job)
    assert shown["state"] == "done", (seed, shown["reason"], dray.log(job)[-2000:])
    assert len(shown["attempts"]) == ATTEMPTS + 1
    assert max(lost_steps(outputs)) <= INTERVAL, (seed, lost_steps(outputs))


def running(dray: Dray, job: str, number: int) -> int:
    """The process of that attempt's command, once there is one."""
    path = dray.job_dir(job) / f"attempts/{number:03d}/attempt.json"
    wait_for(path.exists, 60)
    pid: int = json.loads(path.read_text())["pid"]
    return pid


def newest_number(outputs: Path) -> int:
    """Whether whole or not."""
    return max((int(one.stem.rpartition("_")[2]) for one in outputs.glob("model_*.pt")), default=0)


def lost_steps(outputs: Path) -> list[int]:
    path = outputs / "lost"
    return [int(line) for line in path.read_text().split()] if path.exists() else []
