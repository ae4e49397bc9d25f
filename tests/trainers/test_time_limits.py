"""Real trainers that a time limit ends on the real Slurm, again and again until they are done: one
that only saves now and then, and one that saves when it is asked. How many limits that takes
depends on the machine; that one is not enough is made sure by how long a step takes at least."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.trainers.test_interrupted import QUIET, TRAINERS, Summarize, last_of

pytestmark = pytest.mark.trainers

LIMIT = 30  # seconds
ITERATIONS, NAP = 60, LIMIT / 60 / 16  # an iteration has 16 steps
STEPS = 1400  # each takes a fiftieth of a second, at least


def run(dray: Dray, hpc: Hpc, *words: str, **env: str) -> tuple[str, list[dict[str, Any]]]:
    hpc.offer(dray)
    variables = {**QUIET, **env}.items()
    more = [word for pair in variables for word in ("--env", "=".join(pair))]
    job = dray.run("--on", "hpc", "--time", f"{LIMIT}s", *more, *words)
    shown = wait_for(lambda: (shown := dray.wait(job))["ended"] and shown, 300)
    assert shown["state"] == "done", (shown["reason"], dray.log(job)[-2000:])
    attempts: list[dict[str, Any]] = shown["attempts"]
    assert len(attempts) > 1
    assert {one["outcome"] for one in attempts[:-1]} == {"interrupted"}
    for one, following in pairwise(attempts):
        assert following["from_checkpoint"] == one["checkpoint"]
    return job, attempts


def test_one_that_saves_periodically(
    dray: Dray, hpc: Hpc, trainers: Path, summarize: Summarize
) -> None:
    trainer = TRAINERS["rsl_rl"]
    words = ("--recipe", trainer.recipe, "--", str(trainers / "python"), *trainer.command)
    more = ("--max_iterations", str(ITERATIONS))
    job, attempts = run(dray, hpc, *words, *more, POINT_MASS_NAP=str(NAP))
    reasons = {one["reason"] for one in attempts[:-1]}
    assert reasons == {"time limit: ended after the last checkpoint that fits"}
    outputs = dray.job_dir(job) / "outputs"
    found = summarize(trainer.tag, last_of(outputs, trainer), outputs)
    again = len(attempts) - 1  # the iteration of a checkpoint is done once more
    assert found["updates"] == 4 * (ITERATIONS + again)
    steps = [step for part in found["series"] for step in part]
    # Written by a thread of the trainer's own: its last ones may be lacking where it was ended.
    assert len(set(range(ITERATIONS)) - set(steps)) <= again * trainer.interval
    assert len(steps) <= ITERATIONS + again * (1 + trainer.interval)


def test_one_that_saves_on_request(dray: Dray, hpc: Hpc, trainers: Path) -> None:
    asked = ("--checkpoint", "checkpoints/*.ckpt", "--checkpoint-signal", "USR1")
    command = (str(trainers / "python"), "callbacks/with_lightning.py", str(STEPS))
    job, attempts = run(dray, hpc, *asked, "--", *command)
    assert {one["reason"] for one in attempts[:-1]} == {"time limit reached"}
    assert "Requeued SLURM job" not in dray.log(job), "Lightning has done what is dray's to do"
    lines = (dray.job_dir(job) / "outputs/metrics.jsonl").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    assert {one["step"] for one in reports} == set(range(10, STEPS + 1, 10))
    for number, one in enumerate(attempts[:-1], 2):
        saved = int(one["checkpoint"].partition("=")[2].partition(".")[0])
        first = min(report["step"] for report in reports if report["attempt"] == number)
        assert first == saved - saved % 10 + 10
