"""The real wandb, without a network: the attempts of a job are one run.

What W&B has not written when its process is killed is lost, up to 32 kB of history: so the trainer
here ends as it should when it is asked to.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for
from tests.trainers.conftest import HERE
from tests.trainers.test_interrupted import QUIET, preempt
from tests.trainers.test_killed import running

pytestmark = pytest.mark.trainers

STEPS = 200


def test_the_attempts_are_one_run_without_gaps_or_doubled_steps(dray: Dray, trainers: Path) -> None:
    variables = {**QUIET, "WANDB_MODE": "offline"}
    env = [word for pair in variables.items() for word in ("--env", "=".join(pair))]
    command = (str(trainers / "python"), "scripts/lightning/fabric.py", "--wandb")
    job = dray.run("--recipe", "lightning", *env, "--", *command, "--max_steps", str(STEPS))
    last = dray.job_dir(job) / "outputs/checkpoints/last.ckpt"
    seen = 0
    for number in (1, 2):
        pid = running(dray, job, number)
        wait_for(lambda seen=seen: last.exists() and last.stat().st_mtime_ns != seen, 60)
        preempt(pid)
        running(dray, job, number + 1)
        seen = last.stat().st_mtime_ns
    shown = dray.wait(job)
    assert shown["state"] == "done", dray.log(job)
    assert len(shown["attempts"]) == 3
    found = read(trainers, dray.job_dir(job) / "outputs")
    assert [one["run"] for one in found] == [job] * 3
    assert [step for one in found for step in one["steps"]] == list(range(STEPS))


def read(trainers: Path, outputs: Path) -> list[dict[str, list[int]]]:
    words = [trainers / "python", HERE / "wandb_files.py", outputs]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, list[int]]] = json.loads(ended.stdout)
    return found
