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
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dray.clusters.ray import make_plan
from dray.job.model import JobSpec, Resources, Resume
from dray.node.attempt.loop import AttemptLoop
from dray.node.formats import files
from dray.node.jobs import following
from dray.node.jobs.jobdir import JobDir, described
from dray.node.processes import process
from dray.node.ray import driver, placing, refusals
from dray.node.ray.apart import Apart
from dray.node.ray.driver import Waiting
from dray.node.ray.host import Host
from dray.node.ray.placing import Lost
from dray.node.schedulers import ray_view
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
        self.addresses = ["127.0.0.1"]
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


class Named(Here):
    """A node by its address; one that is full has a file where a folder should be."""

    def __init__(self, rooted: Rooted, address: str, is_full: bool) -> None:
        super().__init__(rooted.folder / f"scratch-{address}-{os.urandom(4).hex()}")
        self.addresses = [address]
        if is_full:
            self.scratch /= "full"
            self.scratch.write_text("no room")

    def __enter__(self) -> Named:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_ready(self) -> bool:
        return True

    def start(self) -> list[str]:
        return self.addresses

    def sees(self, *_: object) -> bool:
        return False


class Placed:
    """Nodes as Ray gives them: always the first one, unless another is asked for by name."""

    def __init__(self, rooted: Rooted, monkeypatch: pytest.MonkeyPatch, **full: bool) -> None:
        self.rooted = rooted
        self.full = full
        self.given: list[str] = []
        self.reasons: list[str] = []
        monkeypatch.setattr(driver, "Turn", self.turn)
        monkeypatch.setattr(driver, "fitting", lambda *_: list(full))
        monkeypatch.setattr(driver, "wanted_in_words", lambda *_: "waiting for 1 CPU")
        self.driver = driver.Driver(rooted.job_dir.path, None)
        monkeypatch.setattr(self.driver, "pause", self.look)

    def turn(self, _ray: Any, _job: Any, wanted: Sequence[str]) -> Named:
        self.given.append([*wanted, *self.full][0])
        turn = Named(self.rooted, self.given[-1], self.full[self.given[-1]])
        self.rooted.turns.append(turn)
        return turn

    def look(self, _seconds: float) -> None:
        """See what people are told while the job waits."""
        self.driver._show(None, described(self.rooted.job_dir))
        seen = ray_view.read(self.rooted.job_dir.path) or {}
        self.reasons += [why for _, why in seen.values()]

    def care(self) -> dict[str, Any]:
        """Have the driver care for the job until its end."""
        (work,) = self.driver._works(described(self.rooted.job_dir))
        self.driver.active.append(work)
        work.care()
        end: Any = self.rooted.job_dir.ended()
        return dict(end)


def test_another_node_is_preferred_to_one_that_cannot_take_files(
    rooted: Rooted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooted.submit(replace(JOB, command=(sys.executable, "-c", "pass")))
    placed = Placed(rooted, monkeypatch, a=True, b=False)
    assert placed.care()["state"] == "done"
    assert placed.given == ["a", "b"]
    (reason,) = placed.reasons
    assert reason.startswith("a could not take its files: [Errno 20] Not a directory")


def test_a_job_that_no_node_can_take_is_given_up(
    rooted: Rooted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooted.submit(JOB)
    placed = Placed(rooted, monkeypatch, a=True, b=True)
    end = placed.care()
    assert end["state"] == "failed"
    assert end["reason"].startswith("no node could take its files, tried 20 times on 2 nodes; ")
    assert "[Errno 20] Not a directory" in end["reason"]
    assert placed.given == ["a", "b"] * refusals.MOST_TRIES
    assert "(tried 2 times so far)" in placed.reasons[1]
    assert not rooted.job_dir.numbers()


def test_a_job_that_is_stopped_while_no_node_takes_it_is_stopped(
    rooted: Rooted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooted.submit(JOB)
    placed = Placed(rooted, monkeypatch, a=True)
    monkeypatch.setattr(
        placed.driver, "pause", lambda _: files.write_json(rooted.job_dir.stop, {"now": True})
    )
    assert placed.care()["state"] == "stopped"
    assert placed.given == ["a"]


def test_refusals_are_counted_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusals.Refusals()
    assert found.preferred("abc") == []
    found.add("a", "full")
    assert [found.preferred("abc") for _ in range(3)] == [["b", "c"], ["c", "b"], ["b", "c"]]
    assert found.preferred("a") == []
    for _ in range(refusals.MOST_TRIES):
        found.add("a", "full")
    assert found.end("ab") == ""
    assert found.end("a") == found.end("")
    assert found.end("a").endswith("on 1 node; the last one: a could not take its files: full")
    monkeypatch.setattr(refusals, "AVOIDED", 0.0)
    assert found.preferred("abc") == [], "somebody may have tidied up"
    found.forget()
    assert (found.end("a"), found.why()) == ("", "")


def test_nodes_are_asked_for_by_name_where_they_are_wanted() -> None:
    class Known:
        def nodes(self) -> list[dict[str, Any]]:
            whole = {"Resources": {"CPU": 8.0, "GPU": 1.0}, "Alive": True}
            return [
                {**whole, "NodeManagerAddress": "10.0.0.1"},
                {**whole, "NodeManagerAddress": "10.0.0.2", "Alive": False},
                {**whole, "NodeManagerAddress": "10.0.0.3", "Resources": {"CPU": 8.0}},
            ]

    job: Any = replace(JOB, resources=Resources(cpus=2, gpus=1)).to_dict()
    assert placing.fitting(Known(), job) == ["10.0.0.1"]
    assert placing.fitting(None, job) == []
    assert placing.bundles_of({"CPU": 1.0}, 2, []) == [{"CPU": 1.0}] * 2
    assert placing.bundles_of({"CPU": 1.0}, 2, ["a"]) == [
        {"CPU": 1.0, "node:a": 0.001},
        {"CPU": 1.0},
    ]
    assert len(placing.bundles_of({"CPU": 1.0}, 1, ["a", "b"])) == 1


class Resourceful:
    """A Ray of one node, of which all is free."""

    have: ClassVar = {"CPU": 2.0, "GPU": 1.0, "memory": 4.0 * 2**30, "accelerator_type:T4": 1.0}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.have, "NodeManagerAddress": "10.0.0.1"}]

    def cluster_resources(self) -> dict[str, float]:
        return self.have

    available_resources = cluster_resources


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"cpus": 1}, "1 CPU; free in the whole cluster: 2 of 2 CPUs"),
        ({"cpus": 1, "memory": 9 << 30}, "1 CPU, 9.0 GB of memory, which Ray has no node for now"),
        (
            {"cpus": 1, "gpus": 1.0, "gpu_type": "A100"},
            "1 GPU of type A100, 1 CPU, which Ray has no node for now",
        ),
        (
            {"cpus": 1, "gpus": 1.0, "gpu_type": "T4"},
            "1 GPU of type T4, 1 CPU; free in the whole cluster: 1 of 1 GPUs, 2 of 2 CPUs",
        ),
        (
            {"cpus": 2, "nodes": 2},
            "2 CPU on each of 2 nodes, which Ray has too few nodes for now",
        ),
    ],
)
def test_people_are_told_what_a_job_waits_for(resources: dict[str, Any], told: str) -> None:
    job: Any = {"resources": {"gpus": 0.0, "nodes": 1, **resources}, "launch": "srun"}
    assert placing.wanted_in_words(Resourceful(), job) == f"waiting for {told}"


def test_a_job_that_comes_after_others_says_so(
    rooted: Rooted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooted.submit(replace(JOB, after={"first-2345.0-1": "any"}))
    placed = Placed(rooted, monkeypatch, a=False)
    (work,) = placed.driver._works(described(rooted.job_dir))
    monkeypatch.setattr(following, "state_of", lambda *_: "running")

    def look(_seconds: float) -> None:
        placed.look(0.0)
        placed.driver.is_ending = True

    monkeypatch.setattr(driver, "time", SimpleNamespace(sleep=look))
    placed.driver.active.append(work)
    work.care()
    assert placed.reasons == ["comes after first-2345.0, first-2345.1"]


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
