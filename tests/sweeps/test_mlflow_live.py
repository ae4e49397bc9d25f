"""Trials tell a real MLflow server of themselves, from their nodes, while they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dray.errors import NotFound
from dray.sweep import mlflow
from tests.conftest import Dray, wait_for
from tests.integration.test_sweeps import trials
from tests.sweeps.test_tools import runs_by_job

pytestmark = [pytest.mark.sweeps, pytest.mark.xdist_group("sweeps")]

# Reports twenty steps. "slow" waits behind half of them until a file is there, "crash" fails.
TRAINER = """
import os, sys, time
import dray.training as t
own = dict(word.split("=", 1) for word in sys.argv[1:])
for step in range(1, 21):
    t.report(step=step, reward=float("nan") if step == 3 else step / 20)
    while own["how"] == "slow" and step == 10 and not os.path.exists(own["gate"]):
        time.sleep(0.1)
sys.exit(3 if own["how"] == "crash" else 0)
"""


ENDS = (
    ("FINISHED", "done", {"how": "ends"}),
    ("FAILED", "failed", {"how": "crash"}),
    ("FINISHED", "done", {"how": "slow"}),
)


def found_on(server: mlflow.Server, experiment: str) -> dict[str, mlflow.Run]:
    try:
        return runs_by_job(server, experiment)
    except NotFound:
        return {}


def test_trials_tell_while_they_run_and_an_export_adds_nothing(
    dray: Dray, mlflow_server: str, tmp_path: Path
) -> None:
    dray.write("train.py", TRAINER)
    server, gate = mlflow.Server(mlflow_server, {}), tmp_path / "gate"
    server.ensure_experiment("live robots")  # its first answer takes long
    flags = ("--sampler", "grid", "--space", "how=ends,crash,slow", "--metric", "reward")
    flags += ("--mlflow", mlflow_server, "--mlflow-experiment", "live robots")
    words = (*flags, "--", sys.executable, "train.py", f"gate={gate}")
    started = dray("sweep", "start", *words)
    sweep = started.stdout.strip()
    assert f"told to {mlflow_server}" in started.stderr

    def half_told() -> bool:
        run = found_on(server, "live robots").get(f"{sweep}.2")
        if run is None or run.status != "RUNNING" or "reward" not in run.metrics:
            return False
        return len(list(server.history(run.id, "reward"))) == 10

    wait_for(half_told, 200.0)
    gate.write_text("")
    dray("wait", "--timeout", "100s", sweep, check=False)
    assert [one["state"] for one in trials(dray, sweep)] == ["done", "failed", "done"]
    runs = runs_by_job(server, "live robots")
    before = {job: steps_of(server, one) for job, one in runs.items()}
    for number in (one for one in range(3) if heard_the_end(dray, f"{sweep}.{one}")):
        run = runs[f"{sweep}.{number}"]
        assert (run.status, run.tags["dray.state"], run.params) == ENDS[number]
        assert before[f"{sweep}.{number}"] == list(range(1, 21))
    dray("sweep", "export", sweep, "--mlflow", mlflow_server)
    again = runs_by_job(server, "live robots")
    assert {job: again[job].id for job in runs} == {job: one.id for job, one in runs.items()}
    assert [again[f"{sweep}.{one}"].status for one in range(3)] == [one[0] for one in ENDS]
    assert again[f"{sweep}.1"].tags["dray.reason"] == "exit code 3"
    for one in again.values():  # what was told already is not there twice
        steps = steps_of(server, one)
        assert len(steps) == len(set(steps))


def steps_of(server: mlflow.Server, run: mlflow.Run) -> list[int]:
    return sorted(point.step for point in server.history(run.id, "reward"))


def heard_the_end(dray: Dray, job: str) -> bool:
    """Whether the server has answered in time when the trial ended, as its log tells: on a busy
    machine it may not have. That is what an export is for."""
    log = dray.jobs / job / "dray.log"
    return not log.exists() or "was not told how the trial has ended" not in log.read_text()
