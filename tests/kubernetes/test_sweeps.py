"""Sweeps on Kubernetes: trials are Jobs, and one whose pod is taken away keeps its parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.integration.test_sweeps import RESUMES, TRAINER, status, trials
from tests.kubernetes.training import Admin

pytestmark = pytest.mark.kubernetes

COMMAND = ("--", "python3", "train.py", "reward={reward}")


@pytest.fixture
def near(dray: Dray, pods: Pods) -> Dray:
    dray.write("train.py", TRAINER)
    pods.offer(dray)
    return dray


def start(dray: Dray, *words: str) -> str:
    began = dray("sweep", "start", "--on", "k8s", "--metric", "reward", *RESUMES, *words)
    return began.stdout.strip()


def test_three_trials(near: Dray) -> None:
    space = ("--trials", "3", "--seed", "1", "--space", "reward=1.0..9.0")
    sweep = start(near, *space, *COMMAND)
    near("wait", "--timeout", "100s", sweep)
    found = trials(near, sweep)
    assert [one["state"] for one in found] == ["done"] * 3
    best = json.loads(near("sweep", "best", "--json", sweep).stdout)["configurations"]
    rewards = [one["value"] for one in best]
    assert len(set(rewards)) == 3
    assert rewards == sorted(rewards, reverse=True)
    near("sweep", "add", sweep, "1")
    near("wait", "--timeout", "100s", sweep)
    assert len(trials(near, sweep)) == 4
    near("rm", sweep)
    assert not (near.jobs.parent / "sweeps" / sweep).exists()


def test_a_trial_whose_pod_is_taken_away_keeps_its_parameters(near: Dray, pods: Pods) -> None:
    admin = Admin(pods)
    space = ("--trials", "1", "--space", "reward=1.0..9.0")
    sweep = start(near, *space, "--grace", "2s", *COMMAND, "how=slow")
    job = f"{sweep}.0"
    outputs = near.job_dir(job) / "outputs"
    wait_for(lambda: (outputs / "model_1.txt").exists(), 90)
    pod = wait_for(lambda: admin.running(job))
    admin.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    shown = near.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "done"]
    first, second = seen(outputs)
    assert first == second
    assert status(near, sweep)["configurations"][0]["value"] == first["reward"]


def seen(outputs: Path) -> list[dict[str, float]]:
    """The parameters that each attempt was given."""
    return [json.loads(line) for line in (outputs / "params.txt").read_text().splitlines()]


def test_a_job_that_comes_after_another_says_so(dray: Dray, pods: Pods) -> None:
    """Kubernetes has nothing to tell of it: its pod runs."""
    pods.offer(dray)
    first = dray.run("--on", "k8s", "--", "sleep", "600")
    second = dray.run("--on", "k8s", "--after", first, "--", "true")
    wait_for(lambda: Admin(pods).running(second), 60)
    shown = dray.show(second)
    assert (shown["state"], shown["reason"]) == ("queued", f"comes after {first}")
    assert f"comes after {first}" in dray("why", second).stdout
    dray("stop", "--now", first)
    assert dray.wait(second)["state"] == "stopped"
