"""Jobs of the version before: seen, followed, stopped, resumed, pulled and removed by this one.

The version before is taken from this repository's own history, and really run.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.conftest import Dray, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER

BEFORE = "0296b2f7a7e7e4115aa5d47a310de40ad5b7a542"
TOP = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    packed = subprocess.run(
        ["git", "-c", f"safe.directory={TOP}", "archive", BEFORE, "src"],
        cwd=TOP,
        capture_output=True,
        check=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class Both:
    """One home and one project, and both versions of the program."""

    def __init__(self, dray: Dray, sources: Path, on: tuple[str, str]) -> None:
        self.dray = dray
        self.sources = sources
        self.on = on

    def submit(self, *arguments: str) -> str:
        """Submit a job by the version before."""
        ended = self.dray("run", *self.on, *arguments, PYTHONPATH=str(self.sources))
        return ended.stdout.strip()

    def wait(self, job: str) -> None:
        self.dray("wait", job, check=False, PYTHONPATH=str(self.sources))


@pytest.fixture(params=["local", "hpc"])
def both(request: pytest.FixtureRequest, dray: Dray, sources: Path) -> Both:
    dray.write("train.py", TRAINER)
    if request.param == "hpc":
        request.getfixturevalue("hpc").offer(dray)
    env = {**dray.env, "PYTHONPATH": str(sources)}
    where = [sys.executable, "-c", "import dray; print(dray.__file__)"]
    found = subprocess.run(where, env=env, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(sources))  # not this version once more
    return Both(dray, sources, ("--on", request.param))


def train(steps: int, pause: float, *more: str) -> list[str]:
    return [*RESUMABLE, "--", "python3", "train.py", str(steps), str(pause), *more]


def test_an_ended_job_is_seen_pulled_and_removed(both: Both, tmp_path: Path) -> None:
    dray = both.dray
    job = both.submit("--name", "early", *train(3, 0.01, "--every"))
    both.wait(job)
    (listed,) = json.loads(dray("ps", "--all", "--json").stdout)
    assert (listed["id"], listed["state"]) == (job, "done")
    shown = dray.show(job)
    assert (shown["name"], shown["exit_code"], len(shown["attempts"])) == ("early", 0, 1)
    assert dray.log(job).splitlines() == ["start at 0", "finished"]
    dray("pull", job, str(tmp_path / "home"))
    assert (tmp_path / "home/steps").read_text() == "1\n2\n3\n"
    assert json.loads((tmp_path / "home/ckpt_3.json").read_text()) == {"step": 3}
    dray("rm", job)
    assert json.loads(dray("ps", "--all", "--json").stdout) == []


def test_a_running_job_is_followed_to_its_end(both: Both) -> None:
    job = both.submit(*train(60, 0.1, "--every"))
    wait_for(lambda: both.dray.show(job)["state"] == "running")
    assert both.dray.wait(job)["state"] == "done"
    assert both.dray.log(job).splitlines() == ["start at 0", "finished"]


def test_a_running_job_is_stopped_and_resumed(both: Both, tmp_path: Path) -> None:
    dray = both.dray
    job = both.submit(*train(150, 0.1, "--every"))
    home = tmp_path / "home"

    def has_saved() -> bool:
        return "start at 0" in dray.log(job) and bool(
            dray("pull", job, str(home)) and list(home.glob("ckpt_*.json"))
        )

    wait_for(has_saved)
    dray("stop", job)
    assert dray.wait(job)["state"] == "stopped"
    dray("resume", job)
    assert dray.wait(job)["state"] == "done"
    last = dray("logs", "--attempt", "2", job).stdout.splitlines()
    assert last[0] != "start at 0"
    assert last[-1] == "finished"
    dray("pull", job, str(home))
    steps = {int(step) for step in (home / "steps").read_text().split()}
    assert steps == set(range(1, 151))


def test_a_failed_job_is_resumed(both: Both) -> None:
    dray = both.dray
    job = both.submit("--retries", "0", *train(6, 0.01, "--every", "--crash-at=4"))
    both.wait(job)
    shown = dray.show(job)
    assert (shown["state"], shown["exit_code"]) == ("failed", 7)
    dray("resume", job)
    assert dray.wait(job)["state"] == "done"
    assert dray("logs", "--attempt", "2", job).stdout.splitlines() == ["start at 4", "finished"]
