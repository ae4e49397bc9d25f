"""How a command is spread, and when its time limit is asked for again: pure functions."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from dray.config.loading import ClusterConfig, Config, Home
from dray.description.describing import describe
from dray.job.options import GpuRequest
from dray.node.attempt.allotment import LAST_LOOK, LIMIT_LOOK, next_limit_look
from dray.node.attempt.ranks import free_port
from dray.node.processes import layout
from dray.node.processes.layout import TaskPosition


def job(launch: str, nodes: int = 2, gpus: float = 4.0, cpus: int = 8) -> dict[str, Any]:
    return {"launch": launch, "resources": {"nodes": nodes, "gpus": gpus, "cpus": cpus}}


POSITION = TaskPosition(5, 1, 1, "node2")


@pytest.mark.parametrize(
    ("spread", "tasks", "cpus"),
    [
        (job("srun"), 8, 2),
        (job("srun", gpus=0.0), 2, 8),
        (job("srun", nodes=1), 4, 2),
        (job("torchrun"), 2, 8),
        (job("none"), 1, 8),
        ({"resources": {"gpus": 4.0, "cpus": 8}}, 1, 8),  # of an older dray
    ],
)
def test_how_many_tasks(spread: dict[str, Any], tasks: int, cpus: int) -> None:
    assert (layout.tasks_of(spread), layout.cpus_per_task(spread)) == (tasks, cpus)


def test_a_rank_is_told_its_place() -> None:
    assert layout.variables(job("srun"), POSITION, "node1", 10001) == {
        "MASTER_ADDR": "node1",
        "MASTER_PORT": "10001",
        "NODE_RANK": "1",
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
    }
    assert "RANK" not in layout.variables(job("torchrun"), POSITION, "node1", 10001)


@pytest.mark.parametrize(
    ("command", "torchrun"),
    [
        (["python", "train.py", "--x"], ["python", "-m", "torch.distributed.run"]),
        (["/env/bin/python3.11", "-m", "train"], None),
        (["./train.sh", "--x"], ["torchrun"]),
        (
            ["./isaaclab.sh", "-p", "train.py"],
            ["./isaaclab.sh", "-p", "-m", "torch.distributed.run"],
        ),
    ],
)
def test_torchrun_starts_exactly_the_command(
    command: list[str], torchrun: list[str] | None
) -> None:
    words = layout.argv_at(job("torchrun"), command, POSITION, "node1", 10001)
    flags = ["--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-addr=node1"]
    start = torchrun or [command[0], "-m", "torch.distributed.run"]
    assert words == [*start, *flags, "--master-port=10001", "--no-python", *command]
    assert layout.argv_at(job("srun"), command, POSITION, "node1", 10001) == command


def test_a_port_that_is_taken_is_not_used() -> None:
    assert layout.port_for(20007) == layout.port_for(7)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port) > port


def test_the_limit_is_asked_for_rarely_and_once_before_it_is_too_late() -> None:
    assert next_limit_look(0.0, 86400.0, 30.0) == LIMIT_LOOK
    assert next_limit_look(0.0, 100.0, 30.0) == 70.0 - LAST_LOOK
    assert next_limit_look(65.0, 100.0, 30.0) == 65.0 + LIMIT_LOOK  # that was the last time
    assert next_limit_look(5.0, None, 30.0) == 5.0 + LIMIT_LOOK


USUAL = {"cpus_per_gpu": 6, "memory_per_gpu": 60 * 2**30}


@pytest.mark.parametrize(
    ("said", "cpus", "memory"),
    [
        ({"gpus": GpuRequest(2.0)}, 12, 120 * 2**30),
        ({"gpus": GpuRequest(2.0), "cpus": 3}, 3, 120 * 2**30),
        ({"gpus": GpuRequest(2.0), "memory": 2**30}, 12, 2**30),
        ({}, 1, None),
    ],
)
def test_what_is_usual_for_each_gpu(said: dict[str, Any], cpus: int, memory: int | None) -> None:
    found = describe(["true"], config(said), {}, 0.0).resources
    assert (found.cpus, found.memory) == (cpus, memory)


@pytest.mark.parametrize(
    ("nodes", "said", "launch"),
    [(1, {}, "none"), (2, {}, "srun"), (2, {"job.launch": "none"}, "none")],
)
def test_how_it_is_launched_unless_told(nodes: int, said: dict[str, str], launch: str) -> None:
    settings = config({"nodes": nodes, "gpus": GpuRequest(2.0)})
    settings = settings._replace(job={**settings.job, **said})
    assert describe(["true"], settings, {}, 0.0).launch == launch


def config(resources: dict[str, Any]) -> Config:
    return Config(
        home=Home(Path(), Path(), Path()),
        project=Path(),
        folder="",
        job={"job.on": "euler", **{f"job.resources.{key}": resources[key] for key in resources}},
        clusters={"euler": ClusterConfig("euler", "slurm", USUAL)},
    )
