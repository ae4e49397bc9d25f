"""A machine without a scheduler through a real sshd: what is its own, and what can go wrong."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER, attempt_pid, parent_of, python

pytestmark = pytest.mark.machines

ON = ("--on", "box")
GPUS = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep({})"


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    """A dray that knows the machine, which is said to have two GPUs."""
    hpc.offer_box(dray, gpus=2)
    dray.write("train.py", TRAINER)
    return dray


def test_jobs_share_its_gpus(far: Dray) -> None:
    first = far.run(*ON, "--gpus", "2", *python(GPUS.format(600)))
    wait_for(lambda: far.show(first)["state"] == "running")
    second = far.run(*ON, "--gpus", "1", *python(GPUS.format(0)))
    shown = far.show(second)
    reason = f"next in the queue, waiting for 1 GPU: 2 of 2 taken by {first}"
    assert (shown["state"], shown["reason"]) == ("queued", reason)
    far("stop", first)
    assert far.wait(second)["state"] == "done"
    assert (far.log(first), far.log(second)) == ("0,1\n", "0\n")


def test_what_it_does_not_have_is_refused(far: Dray) -> None:
    far("doctor", "box")
    for flags in (("--gpus", "3"), ("--nodes", "2")):
        ended = far("run", *ON, *flags, *python("pass"), check=False)
        assert ended.returncode == 4
        assert "box: " in ended.stderr
    assert json.loads(far("ps", "--all", "--json").stdout) == []


def test_a_setup_that_fails_is_told_at_once_and_nothing_is_left(far: Dray, hpc: Hpc) -> None:
    hpc.offer_box(far, setup=["ls /no/such/folder"])
    ended = far("run", *ON, *python("pass"), check=False)
    assert ended.returncode == 7
    assert "setup failed: ls /no/such/folder" in ended.stderr
    assert "No such file or directory" in ended.stderr
    assert list(far.jobs.iterdir()) == []
    assert list((far.jobs.parent / "queue/tickets").iterdir()) == []


def test_doctor_tells_of_a_root_that_cannot_be_used(far: Dray, hpc: Hpc) -> None:
    hpc.offer_box(far, root="/sys/dray")
    ended = far("doctor", "box", check=False)
    assert ended.returncode == 7
    assert re.search(r"^BAD  root +hpc: .*/sys/dray", ended.stdout, re.M)


def test_a_job_that_waits_is_stopped(far: Dray) -> None:
    first = far.run(*ON, "--gpus", "2", *python("import time; time.sleep(600)"))
    second = far.run(*ON, "--gpus", "2", *python("pass"))
    far("stop", second)
    ended = far.wait(second)
    assert (ended["state"], ended["attempts"]) == ("stopped", [])
    far("stop", "--now", first)
    assert far.wait(first)["state"] == "stopped"
    wait_for(far.nothing_runs)


def test_a_lost_job_is_told_and_can_be_resumed(far: Dray) -> None:
    """Keeper and supervisor are gone, as after a restart of the machine."""
    job = far.run(*ON, *RESUMABLE, "--", "python3", "train.py", "60", "0.1", "--every")
    command = wait_for(lambda: attempt_pid(far, job))
    wait_for(lambda: any(Path(far.job_dir(job), "outputs").glob("ckpt_*.json")))
    supervisor = parent_of(command)
    for pid in (parent_of(supervisor), supervisor):
        os.kill(pid, signal.SIGKILL)
    lost = wait_for(lambda: (found := far.show(job))["state"] == "lost" and found)
    assert lost["reason"] == "its keeper is gone: killed, or the machine was restarted"
    assert re.search(r"^ +1  lost ", far("show", job).stdout, re.M)
    far("resume", job)
    ended = far.wait(job)
    assert (ended["state"], len(ended["attempts"])) == ("done", 2)
    assert "start at 0" not in far("logs", "--attempt", "2", job).stdout


def test_it_is_added_and_shown(dray: Dray, hpc: Hpc) -> None:
    hpc.offer(dray)
    root = str(hpc.host.folder(dray.home / "box-root"))
    add = ("cluster", "add", "--kind", "ssh", "--host", "hpc", "--root", root)
    assert "BAD" not in dray(*add, "box", "--gpus", "1").stderr
    assert "see to what is BAD" in dray(*add, "shared", "--share", "/no/such/folder").stderr
    shown = json.loads(dray("cluster", "show", "--json", "box").stdout)
    assert shown["kind"] == "ssh"
    assert shown["capabilities"]["gpus"] == 1
    plan = dray("plan", *ON, *python("pass")).stdout
    assert "keep '@ROOT@/jobs/" in plan
