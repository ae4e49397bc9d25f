"""Containers on a real Slurm of two nodes with two GPUs each: every rank has its own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from dray.node.processes.process import parents
from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import AWKWARD, RESUMABLE, parent_of
from tests.integration.test_faults import oldest_python
from tests.integration.test_nodes import TRAINER, commands_of, rank_logs

pytestmark = pytest.mark.containers

ON = ("--on", "hpc")
WIDE = (*ON, "--nodes", "2", "--gpus", "2")


@pytest.fixture
def far(dray: Dray, apptainer_on_hpc: Hpc, train_sif: Path) -> Dray:
    apptainer_on_hpc.offer(dray)
    caches = "caches = ['kit:/kit/cache']"
    dray.write("dray.toml", f'[job]\nimage = "{train_sif}"\n[job.container]\n{caches}\n')
    dray.write("train.py", TRAINER)
    return dray


def left_on(hpc: Hpc) -> list[Path]:
    return list(hpc.slurm.scratch.glob("dray-*"))


TELL = """
import json, os, sys
rank = os.environ["RANK"]
names = ("DRAY_CONTAINER", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "CLUSTER_USER_ID")
about = {name: os.environ.get(name) for name in names}
about.update(uid=os.getuid(), argv=sys.argv[1:], python=sys.executable)
about["home"] = os.listdir("/dray/home")
open(os.path.expanduser("~/mine"), "w").write(rank)
open("/kit/cache/" + rank, "w").write(rank)
json.dump(about, open(os.path.join("logs", rank + ".json"), "w"))
"""


class TestOrdinaryUser:
    @pytest.fixture
    def hpc(self, ordinary_hpc: Hpc) -> Hpc:
        return ordinary_hpc

    def test_every_rank_has_a_container(self, far: Dray, hpc: Hpc) -> None:
        far.write("tell.py", TELL)
        job = far.run(*WIDE, "--output", "logs", "--", "python3", "tell.py", *AWKWARD)
        shown = far.wait(job)
        assert shown["state"] == "done", (shown["reason"], rank_logs(far, job))
        for rank in range(4):
            path = far.job_dir(job) / f"outputs/logs/{rank}.json"
            told = json.loads(path.read_text())
            assert told["DRAY_CONTAINER"] == "apptainer"
            assert (told["LOCAL_RANK"], told["WORLD_SIZE"]) == (str(rank % 2), "4")
            assert told["CUDA_VISIBLE_DEVICES"]
            assert (told["argv"], told["home"]) == (AWKWARD, [])
            assert told["python"] == "/usr/bin/python3"
            assert str(told["uid"]) == told["CLUSTER_USER_ID"] == str(path.stat().st_uid)
        kept = far.jobs.parent / "caches/kit"
        assert {path.name for path in kept.iterdir()} == {"0", "1", "2", "3"}
        assert left_on(hpc) == []


def test_one_dead_rank_is_told_truly(far: Dray, hpc: Hpc) -> None:
    hpc.offer(far, python=oldest_python())
    script = "[ $RANK != 2 ] || exit 3; sleep 60"
    shown = far.wait(far.run(*WIDE, "--", "sh", "-c", script))
    assert shown["reason"] == "rank 2 on node2: exit code 3"
    assert (shown["state"], shown["exit_code"]) == ("failed", 3)
    assert left_on(hpc) == []


def test_a_checkpoint_is_asked_of_every_rank_and_killed_none_goes_on(far: Dray) -> None:
    flags = ("--time", "14s", "--grace", "5s", "--checkpoint-signal", "USR1", *RESUMABLE)
    job = far.run(*WIDE, *flags, "--", "python3", "train.py", "100000")
    wait_for(lambda: all(log.count("starts at") == 2 for log in rank_logs(far, job)), 60)
    inside = wait_for(lambda: len(commands_of(far, job)) == 4 and commands_of(far, job))
    about = json.loads((far.job_dir(job) / "attempts/002/attempt.json").read_text())
    os.kill(parent_of(about["pid"]), signal.SIGKILL)
    wait_for(lambda: not set(inside) & set(parents()))
    first, second = far.show(job)["attempts"][:2]
    assert (first["outcome"], first["reason"]) == ("interrupted", "time limit reached")
    assert second["from_checkpoint"] == first["checkpoint"] is not None
    outputs = far.job_dir(job) / "outputs"
    assert [(outputs / f"asked-{rank}").read_text() for rank in range(4)] == ["x"] * 4
