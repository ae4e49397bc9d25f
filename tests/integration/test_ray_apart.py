"""A job on a node that does not see the root, without Ray: the driver's side and the real program
of the node, with what an actor does in between called directly. tests/ray does the same with Ray,
which needs root and time."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.ray import make_plan
from dray.job.model import JobSpec, Resources, Resume
from dray.node.attempt.loop import AttemptLoop
from dray.node.formats import files
from dray.node.jobs.jobdir import JobDir, described
from dray.node.processes import process
from dray.node.ray.apart import Apart
from dray.node.ray.driver import Waiting
from dray.node.ray.host import Host
from dray.node.ray.placing import Lost
from dray.node.schedulers.gathered import ADDRESS, NODE
from dray.programs import shipping
from tests.conftest import wait_for

COUNTING = """
import os, pathlib, sys, time
out = pathlib.Path(os.environ["DRAY_OUTPUTS"])
begin = os.environ.get("DRAY_CHECKPOINT")
first = int(pathlib.Path(begin).read_text()) if begin else 0
for step in range(first + 1, int(sys.argv[1]) + 1):
    (out / "new").write_text(str(step))
    os.rename(out / "new", out / f"model_{step}.txt")
    with (out / "steps").open("a") as steps:
        steps.write(f"{step}\\n")
    print(step, flush=True)
    time.sleep(0.3)
"""
JOB = JobSpec(
    id="train-7f3k",
    name="train",
    command=(sys.executable, "-c", COUNTING, "1000"),
    resources=Resources(cpus=1),
    resume=Resume(checkpoint="model_*.txt", number=r"model_(\d+)"),
    created=time.time(),
)


class Here:
    """What a driver knows as a turn of one node: this machine, with a disk of its own."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(parents=True)
        self.scratch = scratch
        self.hosts = [Host()]
        self.is_dead = False

    def ask(self, place: int, method: str, *arguments: Any) -> Any:
        if self.is_dead:
            raise Lost("it is switched off")
        if method == "scratch":
            return str(self.scratch)
        return getattr(self.hosts[place], method)(*arguments)

    def asker(self, place: int) -> Callable[..., Any]:
        return lambda method, *arguments: self.ask(place, method, *arguments)

    def run(
        self,
        words: Sequence[str],
        variables: Sequence[Mapping[str, str]],
        log: str,
        ends: Callable[[], bool],
        look: Callable[[], None],
    ) -> list[int]:
        del ends  # nobody ends the driver
        codes: list[int] = []
        host = self.hosts[0]
        thread = threading.Thread(
            target=lambda: codes.append(host.run(list(words), dict(variables[0]), log)), daemon=True
        )
        thread.start()
        while thread.is_alive():
            look()
            if self.is_dead:
                raise Lost("it is switched off")
            thread.join(0.1)
        return codes

    def die(self) -> None:
        """Be switched off: nothing of it is left, and nothing says goodbye."""
        self.is_dead = True
        first = self.hosts[0].process.pid
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in [first, *process.descendants(first)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


class Rooted:
    """A root with one job in it, as the agent on the head leaves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        (self.root / "node").mkdir(parents=True)
        (self.root / "node" / shipping.name()).write_bytes(shipping.app().content)
        self.turns: list[Here] = []
        self.threads: list[threading.Thread] = []

    def submit(self, job: JobSpec, **more: str) -> JobDir:
        folder = self.root / "jobs" / job.id
        for name in ("attempts", "outputs"):
            (folder / name).mkdir(parents=True)
        plan = make_plan(job, "ray", {"python": sys.executable})
        for name, text in {**plan.files, **more}.items():
            (folder / name).write_text(text.replace("@ROOT@", str(self.root)))
        self.job_dir = JobDir(str(folder))
        return self.job_dir

    def take_turn(self) -> Here:
        """Place the job on a node that nobody has seen before."""
        turn: Any = Here(self.folder / f"scratch-{len(self.turns)}")
        loop = AttemptLoop(self.job_dir, described(self.job_dir), Waiting())
        apart = Apart(turn, loop, self.job_dir.batch_log, lambda: False, lambda: False)
        told = [{NODE: "here", ADDRESS: "127.0.0.1"}]

        def run() -> None:
            with suppress(Lost):
                apart.run(told)
            decision = loop.decide()
            if not turn.is_dead and not decision.again:
                loop.end(decision)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()
        self.turns.append(turn)
        return turn

    def wait(self) -> str:
        wait_for(lambda: not self.threads[-1].is_alive(), 60)
        end = self.job_dir.ended()
        return str(end["state"]) if end else ""

    def steps(self) -> list[int]:
        path = Path(self.job_dir.outputs, "steps")
        return [int(one) for one in path.read_text().split()] if path.exists() else []


@pytest.fixture
def rooted(tmp_path: Path) -> Iterator[Rooted]:
    rooted = Rooted(tmp_path)
    yield rooted
    for turn in rooted.turns:
        if turn.hosts[0].process is not None and turn.hosts[0].process.poll() is None:
            turn.die()


def test_what_a_job_writes_comes_home_and_nothing_stays(rooted: Rooted) -> None:
    code = (
        "import os, pathlib\n"
        "out = pathlib.Path(os.environ['DRAY_OUTPUTS'])\n"
        "(out / 'a').mkdir()\n"
        "(out / 'a/large').write_bytes(os.urandom(1 << 20) * 20)\n"
        "print(os.environ['API_KEY'], 'DRAY_STAND_IN' in os.environ, flush=True)\n"
        "raise SystemExit(3)\n"
    )
    job = replace(JOB, command=(sys.executable, "-c", code), secrets=("API_KEY",))
    job_dir = rooted.submit(job, **{"secrets.json": json.dumps({"API_KEY": "s3cr3t"})})
    turn = rooted.take_turn()
    assert rooted.wait() == "failed"
    (record,) = job_dir.records()
    assert record["exit_code"] == 3
    assert Path(job_dir.attempts, "001/log").read_text() == "s3cr3t False\n"
    assert Path(job_dir.outputs, "a/large").stat().st_size == 20 << 20
    assert not Path(job_dir.secrets).exists()
    assert {one.name for one in Path(job_dir.path).iterdir()} <= {
        "alive", "attempts", "batch.log", "batch.sh", "dray.log", "end.json", "job.json", "outputs",
    }  # fmt: skip
    assert list(turn.scratch.glob("*/*")) == []


def test_a_job_goes_on_on_another_node_from_what_came_home(rooted: Rooted) -> None:
    rooted.submit(JOB)
    turn = rooted.take_turn()
    wait_for(lambda: len(rooted.steps()) > 5, 60)
    turn.die()
    assert rooted.wait() == ""
    known = rooted.steps()
    assert rooted.job_dir.is_supervised() is False
    rooted.take_turn()
    wait_for(lambda: len(rooted.steps()) > len(known) + 3, 60)
    files.write_json(rooted.job_dir.stop, {"now": False})
    assert rooted.wait() == "stopped"
    first, second = rooted.job_dir.records()
    assert first["outcome"] == "lost"
    assert second["from_checkpoint"] == first["checkpoint"]
    assert sorted(set(rooted.steps())) == list(range(1, max(rooted.steps()) + 1))
    log = Path(rooted.job_dir.attempts, "002/log").read_text().split()
    assert [int(one) for one in log][-1] == max(rooted.steps())


def test_one_node_at_a_time_has_a_job(rooted: Rooted) -> None:
    job_dir = rooted.submit(JOB)
    rooted.take_turn()
    wait_for(rooted.steps, 60)
    assert job_dir.is_supervised()
    rooted.take_turn()
    time.sleep(1.0)
    assert job_dir.numbers() == [1]
    files.write_json(job_dir.stop, {"now": True})
    assert rooted.wait() == "stopped"
    assert job_dir.numbers() == [1]
