"""Pods of a job on several nodes, as processes of this machine: who leads, who follows, and what
becomes of the job when one of them is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.job.model import JobSpec, Resources, Resume
from dray.programs import shipping
from tests.conftest import wait_for

# Counts, and saves at each step; rank 0 alone.
TRAINER = textwrap.dedent(
    """
    import json, os, sys, time
    rank, step = os.environ["RANK"], 0
    if "--resume" in sys.argv:
        step = json.load(open(sys.argv[sys.argv.index("--resume") + 1]))["step"]
    print("rank", rank, "of", os.environ["WORLD_SIZE"], "starts at", step, flush=True)
    while step < int(sys.argv[1]):
        time.sleep(0.05)
        step += 1
        if rank == "0":
            name = os.environ["DRAY_OUTPUTS"] + f"/ckpt_{step}.json"
            open(name + ".tmp", "w").write(json.dumps({"step": step}))
            os.replace(name + ".tmp", name)
    """
)


class Team:
    """The pods of one job; each is started by hand, as the Job's controller would."""

    def __init__(self, root: Path) -> None:
        self.app = shipping.install(root)
        self.path = root / "jobs/walk-7f3k"
        self.pods: dict[str, subprocess.Popen[bytes]] = {}

    def describe(self, *command: str, **fields: Any) -> None:
        resume = Resume(checkpoint="ckpt_*.json", args=("--resume", "{checkpoint}"), grace=5.0)
        job = JobSpec(
            id=self.path.name,
            name="walk",
            command=command,
            created=1.0,
            launch="srun",
            resources=Resources(nodes=2),
            resume=resume,
            **fields,
        )
        (self.path / "outputs").mkdir(parents=True)
        about = {**job.to_dict(), "container": None, "scheduler": {"kind": "kubernetes"}}
        (self.path / "job.json").write_text(json.dumps(about))

    def start(self, name: str) -> None:
        env = {**os.environ, "HOSTNAME": name, "DRAY_POD_ADDRESS": "127.0.0.1"}
        env.pop("TMPDIR", None)
        words = [sys.executable, "-I", "-S", str(self.app), "pod", str(self.path)]
        with (self.path / f"{name}.out").open("wb") as log:
            self.pods[name] = subprocess.Popen(words, env=env, stdout=log, stderr=log)

    @property
    def attempts(self) -> int:
        return len(list((self.path / "attempts").glob("*")))

    def outcome(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.path / f"attempts/{number:03}/outcome.json").read_text()
        )
        return found

    def log(self, number: int, rank: int = 0) -> str:
        name = f"ranks/{rank}.log" if rank else "log"
        path = self.path / f"attempts/{number:03}/{name}"
        return path.read_text() if path.exists() else ""

    def end(self) -> dict[str, Any]:
        wait_for(lambda: (self.path / "end.json").exists())
        found: dict[str, Any] = json.loads((self.path / "end.json").read_text())
        return found

    def saved(self) -> bool:
        return any((self.path / "outputs").glob("ckpt_*.json"))

    def runs(self, number: int) -> bool:
        return all("starts at" in self.log(number, rank) for rank in (0, 1)) and self.saved()


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    made = Team(tmp_path / "root")
    yield made
    for pod in made.pods.values():
        pod.kill()
        pod.wait()


def python(team: Team, *words: str, **fields: Any) -> None:
    script = team.path.parent.parent / "train.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(TRAINER)
    team.describe(sys.executable, str(script), *words, **fields)


def test_whoever_comes_first_leads_and_all_end_alike(team: Team) -> None:
    python(team, "3")
    team.start("walk-0")
    wait_for((team.path / "leader.json").exists)
    assert (team.path / "leader.json").stat().st_mode & 0o777 == 0o600
    time.sleep(1)
    assert team.attempts == 0  # it waits for the other one
    team.start("walk-1")
    assert team.end()["state"] == "done"
    assert [pod.wait(30) for pod in team.pods.values()] == [0, 0]
    assert [team.log(1, rank) for rank in (0, 1)] == [
        "rank 0 of 2 starts at 0\n",
        "rank 1 of 2 starts at 0\n",
    ]
    assert not (team.path / "leader.json").exists()


def test_a_follower_that_is_told_to_end_has_the_attempt_ended_in_time(team: Team) -> None:
    python(team, "60")
    team.start("walk-0")
    wait_for((team.path / "leader.json").exists)
    team.start("walk-1")
    wait_for(lambda: team.runs(1))
    team.pods["walk-1"].terminate()
    assert team.pods["walk-1"].wait(30) == 75
    first = team.outcome(1)
    assert (first["outcome"], first["reason"]) == ("interrupted", "walk-1 is being taken away")
    team.start("walk-2")
    assert team.end()["state"] == "done"
    assert "starts at 0\n" not in team.log(2)
    assert [team.pods[name].wait(30) for name in ("walk-0", "walk-2")] == [0, 0]


@pytest.mark.parametrize("lost", ["walk-0", "walk-1"], ids=["leader", "follower"])
def test_a_pod_that_is_lost_is_replaced(team: Team, lost: str) -> None:
    python(team, "60")
    team.start("walk-0")
    wait_for((team.path / "leader.json").exists)
    team.start("walk-1")
    wait_for(lambda: team.runs(1))
    team.pods[lost].send_signal(signal.SIGKILL)
    team.start("walk-2")
    assert team.end()["state"] == "done"
    # That of a lost leader is written down by the next one.
    first = team.outcome(1)
    assert first["outcome"] in ("interrupted", "lost")
    assert "starts at 0\n" not in team.log(2)
    stayed = [pod.wait(30) for name, pod in team.pods.items() if name != lost]
    assert stayed == [0, 0]


def test_a_crash_of_one_rank_is_told_and_fails_all_pods(team: Team) -> None:
    code = "import os, sys, time; time.sleep(1); sys.exit(7 if os.environ['RANK'] == '1' else 0)"
    team.describe(sys.executable, "-c", code)
    team.start("walk-0")
    wait_for((team.path / "leader.json").exists)
    team.start("walk-1")
    end = team.end()
    assert (end["state"], end["reason"]) == ("failed", "rank 1 on walk-1: exit code 7")
    assert [pod.wait(30) for pod in team.pods.values()] == [10, 10]


def test_a_job_that_waits_for_its_nodes_can_be_stopped(team: Team) -> None:
    python(team, "60")
    team.start("walk-0")
    wait_for((team.path / "leader.json").exists)
    (team.path / "stop.json").write_text('{"now": false}')
    assert team.end()["state"] == "stopped"
    assert team.pods["walk-0"].wait(30) == 11
    assert team.attempts == 0


def test_pods_of_a_job_that_was_resumed_meanwhile_leave_it_alone(team: Team) -> None:
    python(team, "60")
    team.start("walk-0")
    wait_for((team.path / "leader.json").exists)
    team.start("walk-1")
    wait_for(lambda: team.runs(1))
    about = json.loads((team.path / "job.json").read_text())
    (team.path / "job.json").write_text(json.dumps({**about, "resumed_after": 1}))
    team.pods["walk-0"].kill()
    assert team.pods["walk-1"].wait(30) == 75
