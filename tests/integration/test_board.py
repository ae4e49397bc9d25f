"""`dray board`: what a real TensorBoard shows of jobs that were interrupted, and as they grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, wait_for

# Writes with TensorBoard's own writer: a folder for each attempt, as most trainers do. The first
# attempt gets to step 9 and saves at step 5; the second one goes on from there.
TRAINER = """
import os, sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

attempt = int(os.environ["DRAY_ATTEMPT"])
folder = os.path.join(os.environ["DRAY_OUTPUTS"], "logs", "2026-11-17_07-00-%02d" % attempt)
writer = EventFileWriter(folder)

def write(step, value, tag="reward"):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
    writer.flush()

for step in (range(10) if attempt == 1 else range(6, 13)):
    write(step, 100 * attempt + step)
time.sleep(float(sys.argv[1]) if attempt == 2 else 2)  # more than two clocks may differ
if attempt == 2 and len(sys.argv) > 2:
    write(13, 1.0)
    time.sleep(float(sys.argv[2]))
sys.exit(1 if attempt == 1 else 0)
"""


class Page:
    """What TensorBoard answers to its own page."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, what: str, **query: str) -> Any:
        address = f"{self.url}data/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)

    def runs(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("plugin/scalars/tags")
        return found

    def points(self, run: str, tag: str = "reward") -> list[tuple[int, float]]:
        found = self.get("plugin/scalars/scalars", run=run, tag=tag)
        return [(step, value) for _, step, value in found]


@contextmanager
def board(dray: Dray, *arguments: str) -> Iterator[Page]:
    with dray.serving("board", "--no-browser", *arguments) as address:
        yield Page(address)


def run(dray: Dray, *arguments: str) -> str:
    dray.write("train.py", TRAINER)
    return dray.run("--retries", "1", "--", sys.executable, "train.py", *arguments)


FIRST = [(step, 100.0 + step) for step in range(6)]
WHOLE = [*FIRST, *((step, 200.0 + step) for step in range(6, 13))]


def test_attempts_are_one_run_without_what_was_trained_again(dray: Dray) -> None:
    job = run(dray, "0")
    assert dray.wait(job)["state"] == "done"
    with board(dray, job) as page:
        wait_for(lambda: job in page.runs())
        assert list(page.runs()) == [job]
        assert page.points(job) == WHOLE
    assert not [pid for pid in dray.processes() if "tensorboard" in command_of(pid)]


def test_raw_shows_what_the_trainer_made(dray: Dray) -> None:
    job = run(dray, "0")
    dray.wait(job)
    with board(dray, "--raw", job) as page:
        wait_for(lambda: len(page.runs()) == 2)
        first, second = sorted(page.runs())
        assert (first, second) == tuple(f"{job}/logs/2026-11-17_07-00-0{one}" for one in (1, 2))
        assert [step for step, _ in page.points(first)] == list(range(10))


def test_a_running_job_grows_and_a_waiting_one_comes(dray: Dray) -> None:
    job = run(dray, "8", "60")
    wait_for(lambda: len(dray.show(job)["attempts"]) == 2)
    with board(dray, job) as page:
        wait_for(lambda: job in page.runs() and len(page.points(job)) == 13, seconds=60)
        wait_for(lambda: (13, 1.0) in page.points(job), seconds=60)
    kept = dray.home / "dray" / "cache" / "board" / job
    assert len([one for one in kept.rglob("*") if one.is_file()]) == 2
    dray("stop", "--now", job)
    dray("rm", job)
    assert not kept.exists()


def test_on_a_cluster_reached_over_ssh(dray: Dray, hpc: Hpc) -> None:
    """By the agent, which sends only what the laptop does not have."""
    hpc.offer(dray)
    dray.write("train.py", TRAINER)
    job = dray.run("--on", "hpc", "--retries", "1", "--", sys.executable, "train.py", "0")
    assert dray.wait(job)["state"] == "done"
    with board(dray, job) as page:
        wait_for(lambda: job in page.runs())
        assert page.points(job) == WHOLE


def test_a_job_that_only_reports_has_no_event_files(dray: Dray) -> None:
    dray.write("train.py", "import dray.training\ndray.training.report(1, loss=0.5)\n")
    job = dray.run("--", sys.executable, "train.py")
    assert dray.wait(job)["state"] == "done"
    with board(dray, job) as page:
        assert page.runs() == {}


def test_without_tensorboard_it_says_what_to_install(dray: Dray, tmp_path: Path) -> None:
    job = dray.run("--", "true")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    env = {**dray.env, "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [str(python), "-m", "dray", "board", job]
    ended = subprocess.run(words, cwd=dray.project, env=env, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "pip install tensorboard" in ended.stderr


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


@pytest.mark.hostile
def test_a_damaged_event_file_hides_no_other(dray: Dray) -> None:
    job = run(dray, "0")
    dray.wait(job)
    bad = dray.job_dir(job) / "outputs" / "bad" / "events.out.tfevents.1.x"
    bad.parent.mkdir()
    bad.write_bytes(b"\xff" * 100)
    (bad.parent / "events.out.tfevents.2.x").symlink_to("/etc/passwd")
    with board(dray, job) as page:
        wait_for(lambda: job in page.runs())
        assert page.points(job) == WHOLE
    kept = dray.home / "dray" / "cache" / "board" / job
    assert not (kept / "bad" / "events.out.tfevents.2.x").exists()
