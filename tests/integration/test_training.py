"""A trainer that uses dray.training, which is installed nowhere, on real clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.programs import shipping
from tests.conftest import Dray, wait_for
from tests.integration.test_arrays import run_many

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
    """The library comes last, and the modules of the work tree are found first. What stands before
    the path is seen by Python itself, and not by the command."""
    dray.write("dray_node.py", "whose = 'mine'")
    dray.write("show.py", "import dray_node, sys; print(dray_node.whose, *sys.path[1:4], sep=':')")
    job = dray.run("--env", "PYTHONPATH=/a:/b", "--", BASE_PYTHON, "show.py")
    dray.wait(job)
    assert dray.log(job) == f"mine:/a:/b:{dray.jobs.parent}/node/{shipping.name()}\n"


def old_pythons() -> list[str]:
    versions = Path.home() / ".pyenv/versions"
    found = [path / "bin/python" for minor in (8, 9) for path in versions.glob(f"3.{minor}.*")]
    return [str(path) for path in found]


@pytest.mark.parametrize("python", old_pythons() or [BASE_PYTHON])
def test_an_old_python_has_it_too(dray: Dray, python: str) -> None:
    dray.write("train.py", TRAINER)
    app = shipping.install(dray.home / "root")
    env = {"PYTHONPATH": str(app), "DRAY_OUTPUTS": str(dray.home), "PATH": os.defpath}
    subprocess.run([python, "train.py", "2"], cwd=dray.project, env=env, check=True)
    assert len((dray.home / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_curve_of_all_attempts_is_shown(dray: Dray, on: tuple[str, str]) -> None:
    """What was lost with the first attempt, and done again by the second, is there once."""
    job = dray.run(*on, *ASKED, "--", BASE_PYTHON, "train.py", "1000")
    metrics = dray.job_dir(job) / "outputs/metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 5)
    dray("stop", job)
    first = dray.wait(job)
    last = first["attempts"][0]["metric"]
    assert (last["name"], last["value"]) == ("reward", last["step"] / 2)
    dray("resume", job)
    wait_for(lambda: '"attempt": 2' in metrics.read_text())
    dray("stop", job)
    shown = dray.wait(job)
    steps, values, attempts = zip(*shown["curve"]["points"], strict=True)
    assert shown["curve"]["name"] == "reward"
    assert list(steps) == list(range(1, len(steps) + 1))
    assert list(values) == [step / 2 for step in steps]
    assert sorted(attempts) == list(attempts)
    assert set(attempts) == {1, 2}
    text = dray("show", job).stdout
    assert "attempt 1" in text
    assert f"reward {values[-1]:.4g} at {steps[-1]}" in text
    (row,) = json.loads(dray("ps", "--json").stdout)
    course = row["metric"].pop("recent")
    assert row["metric"] == {"name": "reward", "value": values[-1], "step": steps[-1]}
    assert set(course) <= set(values)
    assert f"reward {values[-1]:.4g} ▁" in dray("ps").stdout


def test_a_running_job_tells_how_it_does(dray: Dray, on: tuple[str, str]) -> None:
    job = dray.run(*on, "--metric", "loss", "--", BASE_PYTHON, "train.py", "1000")
    metric = wait_for(lambda: json.loads(dray("ps", "--json").stdout)[0]["metric"], 60)
    assert (metric["name"], metric["value"]) == ("loss", 1 / metric["step"])
    dray("stop", "--now", job)
    dray.wait(job)


def test_a_value_can_be_read_from_the_log(dray: Dray) -> None:
    says = "for i in range(3): print(f'step {i * 10}: mean reward = {i / 4}, x')"
    flags = ("--metric-pattern", r"step (?P<step>\d+): mean reward = ([-0-9.e]+)")
    refused = dray("run", "--metric-pattern", "reward", "--", "true", check=False)
    assert "has no group" in refused.stderr
    job = dray.run(*flags, "--", "python3", "-c", says)
    curve = dray.wait(job)["curve"]
    assert curve == {"name": "reward", "points": [[0, 0.0, 1], [10, 0.25, 1], [20, 0.5, 1]]}


def test_jobs_that_share_a_line_show_their_lowest_and_highest_value(dray: Dray) -> None:
    commands = [["echo", f"reward: {value}"] for value in (2, -3.5, 1)]
    jobs = run_many(dray, commands, pattern="reward: ([-0-9.e]+)")
    for job in jobs:
        dray.wait(job)
    (line,) = dray("ps").stdout.splitlines()[1:]
    assert "reward -3.5 to 2 " in line


def test_a_tag_in_place_of_the_one_asked_for_is_told(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    job = dray.run("--metric", "grasped", "--", BASE_PYTHON, "train.py", "3")
    dray.wait(job)
    assert "(instead of grasped, not found)" in dray("show", job).stdout
