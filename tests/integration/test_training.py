"""A trainer that uses dray.training, which is installed nowhere, on real clusters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.transport import zipapp
from tests.conftest import Dray, wait_for

BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")  # has no dray

TRAINER = """
import json, sys, time
import dray.training as t

start = t.resume_path()
step = json.load(open(start))["step"] if start else 0
while step < int(sys.argv[1]):
    time.sleep(0.1)
    step += 1
    t.report(step=step, reward=step * 0.5, loss=1 / step)
    if t.should_checkpoint():
        with t.save_atomically(f"{t.outputs()}/ckpt_{step}.json") as path:
            json.dump({"step": step}, open(path, "w"))
"""
ASKED = ("--checkpoint", "ckpt_*.json", "--checkpoint-signal", "USR2")


@pytest.fixture(params=["local", "hpc"])
def on(request: pytest.FixtureRequest, dray: Dray) -> tuple[str, str]:
    dray.write("train.py", TRAINER)
    if request.param == "hpc":
        request.getfixturevalue("hpc").offer(dray)
    return ("--on", str(request.param))


def test_a_trainer_saves_when_asked_and_goes_on(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, *ASKED, "--", BASE_PYTHON, "train.py", "60")
    metrics = dray.job_dir(job) / "outputs/metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 5)
    dray("stop", job)
    shown = dray.wait(job)
    assert shown["state"] == "stopped"
    assert shown["attempts"][0]["checkpoint"].startswith("ckpt_")
    dray("resume", job)
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 2)
    assert shown["attempts"][1]["from_checkpoint"] == shown["attempts"][0]["checkpoint"]


def test_the_path_of_the_command_stays_its_own(dray: Dray) -> None:
    """The library comes last, and the modules of the work tree are found first."""
    dray.write("dray_node.py", "whose = 'mine'")
    dray.write("show.py", "import dray_node, os; print(dray_node.whose, os.environ['PYTHONPATH'])")
    job = dray.run("--env", "PYTHONPATH=/a:/b", "--", BASE_PYTHON, "show.py")
    dray.wait(job)
    whose, _, path = dray.log(job).strip().partition(" ")
    assert whose == "mine"
    assert path == f"/a:/b:{dray.jobs.parent}/node/{zipapp.name()}"


def old_pythons() -> list[str]:
    versions = Path.home() / ".pyenv/versions"
    found = [path / "bin/python" for minor in (8, 9) for path in versions.glob(f"3.{minor}.*")]
    return [str(path) for path in found]


@pytest.mark.parametrize("python", old_pythons() or [BASE_PYTHON])
def test_an_old_python_has_it_too(dray: Dray, python: str) -> None:
    dray.write("train.py", TRAINER)
    app = zipapp.install(dray.home / "root")
    env = {"PYTHONPATH": str(app), "DRAY_OUTPUTS": str(dray.home), "PATH": os.defpath}
    subprocess.run([python, "train.py", "2"], cwd=dray.project, env=env, check=True)
    assert len((dray.home / "metrics.jsonl").read_text().splitlines()) == 2
