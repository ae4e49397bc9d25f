"""Samplers that are asked outside dray, in the Python of the trial's command."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.node.attempt.inquiry import FOLDER, Inquiry
from dray.node.jobs.jobdir import JobDir
from dray.node.sweeps.optuna_question import NoAnswer
from tests.conftest import Dray, Hpc
from tests.integration.test_sweeps import PYTHON, TRAINER, trials, wait_until_all_are_done

FLAGS = ("--metric", "reward", "--space", "reward=0..1:float", "--sampler", "optuna:TPESampler")
# Stands in for a Python with Optuna, to see what is asked, and to answer as Optuna never would.
STAND_IN = """#!{python}
import json, os, sys
if sys.argv[1:] != ["-m", "dray_node", "ask-optuna"]:
    os.execv({python!r}, [{python!r}] + sys.argv[1:])
asked = json.load(open("question.json"))
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
assert sorted(os.listdir(".")) == ["log", "question.json"]
known = len(asked["trials"])
{act}
"""


def stand_in(dray: Dray, act: str) -> str:
    path = dray.project.parent / "python-with-optuna"
    path.write_text(STAND_IN.format(python=PYTHON, act=act))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def here(dray: Dray) -> Dray:
    dray.write("train.py", TRAINER)
    return dray


def test_optuna_is_told_all_metrics(here: Dray) -> None:
    """Of those that have ended, and are asked for one after the other."""
    here.write("train.py", TRAINER.replace("reward=reward)", "reward=reward, cost=reward * 2)"))
    answer = "{'values': {'reward': known / 8}}"
    seen = here.project.parent / "seen.jsonl"
    act = f"print(json.dumps(asked), file=open({str(seen)!r}, 'a'))"
    python = stand_in(here, f"{act}\njson.dump({answer}, open('answer.json', 'w'))")
    more = ("--metric", "cost", "--mode", "max,min", "--trials", "3", "--at-once", "1")
    sweep = start(here, python, *more)
    wait_until_all_are_done(here, sweep)
    asked = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [one["metrics"] for one in asked] == [2, 2, 2]
    assert [one["losses"] for one in asked[2]["trials"]] == [[-0.0, 0.0], [-0.125, 0.25]]


def start(dray: Dray, python: str, *flags: str) -> str:
    words = ("--on", "local", *FLAGS, *flags, "--", python, "train.py")
    return dray("sweep", "start", *words).stdout.strip()


def test_the_commands_own_python_is_asked(here: Dray, hpc: Hpc) -> None:
    """On Slurm, and with what trials before have told."""
    hpc.offer(here)
    answer = "{'values': {'reward': known / 8}, 'attrs': {'n': known}}"
    python = stand_in(here, f"json.dump({answer}, open('answer.json', 'w'))")
    words = ("--on", "hpc", *FLAGS, "--trials", "3", "--at-once", "1", "--", python, "train.py")
    sweep = here("sweep", "start", *words).stdout.strip()
    wait_until_all_are_done(here, sweep)
    assert [one["values"]["reward"] for one in trials(here, sweep)] == [0.0, 0.125, 0.25]
    assert [one["value"] for one in trials(here, sweep)] == [0.0, 0.125, 0.25]
    kept = json.loads((here.jobs.parent / "sweeps" / sweep / "trials/2.json").read_text())
    assert kept == {"values": {"reward": 0.25}, "by": "optuna:TPESampler", "attrs": {"n": 2}}
    assert not (here.jobs / f"{sweep}.2" / FOLDER).exists()


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("json.dump({'values': {'reward': 7}}, open('answer.json', 'w'))", "not of the space"),
        ("open('answer.json', 'w').write('[' * 10**5)", "was asked which values"),
        ("os.symlink('/proc/self/environ', 'answer.json')", "was asked which values"),
        ("os.mkfifo('answer.json')", "was asked which values"),
        ("sys.exit('it is broken')", "failed: it is broken"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_what_cannot_be_believed_ends_the_trial_before_it_starts(
    here: Dray, act: str, why: str
) -> None:
    sweep = start(here, stand_in(here, act), "--trials", "1")
    here("wait", sweep, check=False)
    (only,) = trials(here, sweep)
    assert (only["state"], only["values"]) == ("failed", {})
    assert why in only["reason"]
    assert not here.show(f"{sweep}.0")["attempts"]
    told = here("sweep", "status", sweep).stdout
    assert f"1 trial failed without parameters: {only['reason'][:40]}" in told


def test_a_python_without_optuna_is_named_and_the_trial_can_go_on_later(here: Dray) -> None:
    sweep = start(here, PYTHON, "--trials", "1")
    here("wait", sweep, check=False)
    (only,) = trials(here, sweep)
    assert f"{PYTHON} has no Optuna: install it there, or name another Python" in only["reason"]
    assert "--sampler-python" in only["reason"]


def make_job(tmp_path: Path) -> tuple[JobDir, Any]:
    place = JobDir(str(tmp_path / "jobs" / "sweep-1.0"))
    os.makedirs(place.path)
    job: Any = {"command": [PYTHON], "env": {}, "folder": "", "resume": {"grace": 1.0}}
    return place, job


def test_one_that_never_answers_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    place, job = make_job(tmp_path)
    noted = tmp_path / "pids"
    script = f"setsid sleep 1000 & echo $! $$ > {noted}; sleep 1000"
    with pytest.raises(NoAnswer, match="has not answered for 1 seconds"):
        Inquiry(place, job, dict(os.environ), patience=1.0)(["sh", "-c", script], {})
    for pid in map(int, noted.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert os.listdir(place.path) == ["outputs"]


def test_what_a_killed_inquiry_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    place, job = make_job(tmp_path)
    left = Path(place.path, FOLDER)
    left.mkdir()
    (left / "answer.json").write_text('{"values": {"from": "before"}}')
    words = [sys.executable, "-c", "import shutil; shutil.copy('question.json', 'answer.json')"]
    assert Inquiry(place, job, dict(os.environ))(words, {"asked": 1}) == {"asked": 1}
