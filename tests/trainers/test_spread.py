"""Several ranks on two nodes of the real Slurm, preempted, or one of them killed, and compared with
a run on this machine that nobody interrupts: the same weights in the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.integration.test_nodes import commands_of, read
from tests.integration.test_slurm import scheduler_id
from tests.trainers.conftest import HERE
from tests.trainers.test_interrupted import QUIET, Summarize

pytestmark = pytest.mark.trainers

ENV = {**QUIET, "GLOO_SOCKET_IFNAME": "lo"}
STEPS = 200


class Spread(NamedTuple):
    recipe: str
    command: tuple[str, ...]
    on_two_nodes: tuple[str, ...]  # more arguments
    alone: tuple[str, ...]  # how it is started without dray
    checkpoints: str
    strike: Callable[[Dray, Hpc, str], None]
    outcome: str  # that this has
    interval: int = 20


def kill_the_second_rank(dray: Dray, _: Hpc, job: str) -> None:
    """Not the torchrun above it."""
    script = dray.show(job)["command"][1]
    ranks = [pid for pid in commands_of(dray, job, script) if b"RANK=1" in variables(pid)]
    assert len(ranks) == 1
    os.kill(ranks[0], signal.SIGKILL)


def variables(pid: int) -> list[bytes]:
    return read(pid, "environ").split(b"\0")


def preempt(dray: Dray, hpc: Hpc, job: str) -> None:
    hpc.slurm.call("scancel", "--batch", "--signal=TERM", scheduler_id(dray, job))


SPREAD = {
    "fabric": Spread(
        recipe="lightning",
        command=("scripts/lightning/fabric.py",),
        on_two_nodes=("--nodes", "2"),
        alone=("scripts/lightning/fabric.py", "--devices", "2"),
        checkpoints="checkpoints/last.ckpt",
        strike=preempt,
        outcome="interrupted",
    ),
    "torchrun": Spread(
        recipe="torchrun",
        command=("scripts/ddp.py", "--distributed"),
        on_two_nodes=(),
        alone=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               "scripts/ddp.py", "--distributed"),
        checkpoints="checkpoints/model_*.pt",
        strike=kill_the_second_rank,
        outcome="failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_on_two_nodes(
    dray: Dray, hpc: Hpc, trainers: Path, summarize: Summarize, tmp_path: Path, name: str
) -> None:
    spread = SPREAD[name]
    hpc.offer(dray)
    env = [word for pair in ENV.items() for word in ("--env", "=".join(pair))]
    flags = ("--recipe", spread.recipe, "--nodes", "2", "--retries", "3", "--backoff", "0.1s")
    command = (str(trainers / "python"), *spread.command, *spread.on_two_nodes)
    job = dray.run("--on", "hpc", *flags, *env, "--", *command)
    outputs = dray.job_dir(job) / "outputs"
    wait_for(lambda: list(outputs.glob(spread.checkpoints)), 100)
    spread.strike(dray, hpc, job)
    shown = dray.wait(job)
    assert shown["state"] == "done", (shown["reason"], dray.log(job)[-2000:])
    first, *between, last = (one["outcome"] for one in shown["attempts"])
    assert (first, last) == (spread.outcome, "done")
    # The clusters of several tests are one machine: two jobs may want the same port there.
    assert between in ([], ["failed"])
    assert shown["attempts"][-1]["from_checkpoint"]
    alone = left_alone(trainers, spread, summarize, tmp_path / "alone")
    found = summarize("loss", newest(outputs, spread), outputs)
    assert found["counter"] == alone["counter"] == STEPS
    assert found["updates"] == alone["updates"] == STEPS
    assert found["weights"] == pytest.approx(alone["weights"], rel=1e-4)
    steps = [step for part in found["series"] for step in part]
    # Written by a thread of the trainer's own: its last ones may be lacking where it was killed.
    missing = set(range(STEPS)) - set(steps)
    assert len(missing) <= spread.interval * (len(shown["attempts"]) - 1)
    assert len(steps) - STEPS <= spread.interval


def left_alone(
    trainers: Path, spread: Spread, summarize: Summarize, folder: Path
) -> dict[str, Any]:
    shutil.copytree(HERE / "project", folder)
    words = [trainers / "python", *spread.alone]
    env = {**os.environ, **ENV}
    ended = subprocess.run(words, cwd=folder, env=env, capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return summarize("loss", newest(folder, spread), folder)


def newest(folder: Path, spread: Spread) -> Path:
    return max(folder.glob(spread.checkpoints), key=lambda one: one.stat().st_mtime_ns)
