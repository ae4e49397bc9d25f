"""The real trainers, interrupted again and again, end where one that was left alone ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.trainers.conftest import HERE

pytestmark = pytest.mark.trainers

QUIET = {"OMP_NUM_THREADS": "1"}  # two tests at a time share two cores
Summarize = Callable[[str, Path, Path], dict[str, Any]]


class Trainer(NamedTuple):
    recipe: str
    command: tuple[str, ...]
    checkpoints: str
    number: str  # in a checkpoint's name
    tag: str  # a series that has a value in every iteration
    unit: int  # of that series, for each iteration
    interval: int  # iterations between two checkpoints
    anew: bool = False  # counts from zero in every attempt
    early: bool = False  # saves an iteration's last step before it learns from it
    again: int = 0  # updates of the optimizer that a resume adds
    last: str = ""  # what is saved at the end, if it has a name of its own


def isaaclab(library: str) -> tuple[str, ...]:
    script = f"scripts/reinforcement_learning/{library}/train.py"
    return (script, "--task", "Point-Mass-v0", "--num_envs", "16", "--max_iterations", "40")


TRAINERS = {
    # An iteration is four updates; that of the checkpoint is done once more.
    "rsl_rl": Trainer(
        recipe="isaaclab/rsl_rl",
        command=isaaclab("rsl_rl"),
        checkpoints="logs/rsl_rl/*/*/model_*.pt",
        number=r"model_(\d+)",
        tag="Loss/learning_rate",
        unit=1,
        interval=5,
        again=4,
    ),
    "rl_games": Trainer(
        recipe="isaaclab/rl_games",
        command=isaaclab("rl_games"),
        checkpoints="logs/rl_games/*/*/nn/last_*.pth",
        number=r"_ep_(\d+)",
        tag="info/epochs",
        unit=256,
        interval=5,
    ),
    "skrl": Trainer(
        recipe="isaaclab/skrl",
        command=isaaclab("skrl"),
        checkpoints="logs/skrl/*/*/checkpoints/agent_*.pt",
        number=r"agent_(\d+)",
        tag="Loss / Policy loss",
        unit=16,
        interval=5,
        anew=True,
    ),
    # What it has just collected when it saves is collected again.
    "sb3": Trainer(
        recipe="isaaclab/sb3",
        command=isaaclab("sb3"),
        checkpoints="logs/sb3/*/*/model_*_steps.zip",
        number=r"model_(\d+)",
        tag="time/fps",
        unit=256,
        interval=5,
        anew=True,
        early=True,
        last="logs/sb3/*/*/model.zip",
    ),
    "lightning-trainer": Trainer(
        recipe="lightning",
        command=("scripts/lightning/trainer.py",),
        checkpoints="lightning_logs/*/checkpoints/*.ckpt",
        number=r"step=(\d+)",
        tag="loss",
        unit=1,
        interval=20,
    ),
    "lightning-fabric": Trainer(
        recipe="lightning",
        command=("scripts/lightning/fabric.py",),
        checkpoints="checkpoints/last.ckpt",
        number="",
        tag="loss",
        unit=1,
        interval=20,
    ),
}

# One group for each trainer, so that its run without interruptions is made once.
EACH = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in TRAINERS]
# What differs there is the same for all trainers: two show it.
ON_SLURM = [one for one in EACH if one.values[0] in ("rsl_rl", "lightning-trainer")]


@pytest.fixture(scope="session")
def left_alone(
    trainers: Path, summarize: Summarize, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """What a trainer comes to without interruptions, and without dray."""
    known: dict[str, dict[str, Any]] = {}

    def run(name: str) -> dict[str, Any]:
        if name not in known:
            trainer = TRAINERS[name]
            folder = tmp_path_factory.mktemp(name) / "project"
            shutil.copytree(HERE / "project", folder)
            env = {**os.environ, **QUIET}
            words = [trainers / "python", *trainer.command]
            ended = subprocess.run(words, cwd=folder, env=env, capture_output=True, timeout=300)
            assert ended.returncode == 0, ended.stderr
            known[name] = summarize(trainer.tag, last_of(folder, trainer), folder)
        return known[name]

    return run


@pytest.mark.parametrize("name", EACH)
def test_on_this_machine(
    dray: Dray, trainers: Path, name: str, left_alone: Any, summarize: Summarize
) -> None:
    how = (kill_command, preempt, kill_supervisor)
    compare(dray, "local", trainers, TRAINERS[name], how, left_alone(name), summarize)


@pytest.mark.parametrize("name", ON_SLURM)
def test_on_slurm(
    dray: Dray, hpc: Hpc, trainers: Path, name: str, left_alone: Any, summarize: Summarize
) -> None:
    hpc.offer(dray)
    how = (kill_command, preempt)
    compare(dray, "hpc", trainers, TRAINERS[name], how, left_alone(name), summarize)


def compare(
    dray: Dray,
    cluster: str,
    trainers: Path,
    trainer: Trainer,
    how: tuple[Callable[[int], None], ...],
    alone: dict[str, Any],
    summarize: Summarize,
) -> None:
    job = submit(dray, cluster, trainers, trainer)
    outputs = dray.job_dir(job) / "outputs"
    interrupt(dray, job, outputs, trainer, how)
    wait_for(lambda: dray.wait(job)["ended"], 200)
    shown = dray.show(job)
    assert shown["state"] == "done", (shown["reason"], dray.log(job)[-2000:])
    assert len(shown["attempts"]) == len(how) + 1
    starts = [one["from_checkpoint"] for one in shown["attempts"]]
    assert starts[0] is None
    assert all(starts[1:])

    found = summarize(trainer.tag, last_of(outputs, trainer), outputs)
    begun = [0]  # iterations that were done when each attempt began
    for start in starts[1:]:
        begun.append(iterations_at(start, trainer, begun[-1]) if trainer.number else -1)
    assert found["updates"] == alone["updates"] + trainer.again * len(how)
    offset = begun[-1] * trainer.unit if trainer.anew else 0
    if alone["counter"] is not None:
        assert found["counter"] + offset == alone["counter"]
    if "normalized" in alone:  # observations in the statistics; every start sees 16 more
        again = trainer.unit if trainer.early else 0
        assert found["normalized"] == alone["normalized"] + (16 + again) * len(how)
    one_series(found["series"], alone["series"][0], begun, trainer)


def submit(dray: Dray, cluster: str, trainers: Path, trainer: Trainer) -> str:
    env = [word for pair in QUIET.items() for word in ("--env", "=".join(pair))]
    flags = ("--recipe", trainer.recipe, "--retries", "9", "--backoff", "0.1s", *env)
    return dray.run("--on", cluster, *flags, "--", str(trainers / "python"), *trainer.command)


# -- interrupting -------------------------------------------------------------------------------


def interrupt(
    dray: Dray, job: str, outputs: Path, trainer: Trainer, how: tuple[Callable[[int], None], ...]
) -> None:
    """Each time after two checkpoints of the attempt's own."""
    seen: set[object] = set()
    for number, strike in enumerate(how, 1):
        path = dray.job_dir(job) / f"attempts/{number:03d}/attempt.json"
        wait_for(path.exists, 100)
        command = json.loads(path.read_text())["pid"]
        enough = len(seen) + 2
        wait_for(lambda enough=enough: see(seen, outputs, trainer) >= enough, 100)
        strike(command)


def see(seen: set[object], outputs: Path, trainer: Trainer) -> int:
    """How many checkpoints there have been so far: the newest may still be being written. One
    without a number is replaced by the next, as a whole."""
    for one in outputs.glob(trainer.checkpoints):
        seen.add(one if trainer.number else one.stat().st_mtime_ns)
    return len(seen)


def kill_command(command: int) -> None:
    os.kill(command, signal.SIGKILL)


def kill_supervisor(command: int) -> None:
    os.kill(parent_of(command), signal.SIGKILL)


def preempt(command: int) -> None:
    os.kill(parent_of(command), signal.SIGTERM)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# -- comparing ----------------------------------------------------------------------------------


def last_of(outputs: Path, trainer: Trainer) -> Path:
    """The checkpoint that was written last."""
    found = outputs.glob(trainer.last or trainer.checkpoints)
    return max(found, key=lambda one: one.stat().st_mtime_ns)


def iterations_at(checkpoint: str, trainer: Trainer, begun: int) -> int:
    found = re.search(trainer.number, checkpoint)
    assert found is not None
    if trainer.anew:
        return begun + (int(found.group(1)) - trainer.early) // trainer.unit
    return int(found.group(1))


def one_series(
    parts: list[list[int]], alone: list[int], begun: list[int], trainer: Trainer
) -> None:
    """The attempts' parts make up the series of a run without interruptions; what one attempt
    repeats of the one before is an interval at most."""
    if trainer.anew:
        moved = zip(parts, begun, strict=True)
        parts = [[step + start * trainer.unit for step in part] for part, start in moved]
    # A trainer writes its values in a thread of its own, and some only after they have saved: the
    # last ones may be lacking, of one that was killed and of one that nobody interrupted.
    missing = set(alone) - {step for part in parts for step in part}
    assert len(missing) <= trainer.interval * (len(parts) - 1)
    beyond = {step for part in parts for step in part} - set(alone)
    assert len(beyond) <= trainer.interval
    assert all(step > max(alone) for step in beyond)
    for part in parts:
        assert part == list(range(part[0], part[-1] + 1, trainer.unit))
    for before, after in pairwise(parts):
        repeated = [step for step in before if step >= after[0]]
        # With that of the checkpoint itself where the trainer does it once more.
        assert len(repeated) <= trainer.interval + (trainer.again > 0 or trainer.early)
