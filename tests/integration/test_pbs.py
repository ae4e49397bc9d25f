"""PBS's own ways, on the commands of slurm-wlm-torque (see tests/rigs/pbs.py)."""

from __future__ import annotations

import json
import sys

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER, python
from tests.integration.test_arrays import run_many
from tests.integration.test_slurm import ask_agent, field, queued_names, scheduler_id

pytestmark = pytest.mark.slurm

ON = ("--on", "pbs")


@pytest.fixture
def far(dray: Dray, hpc: Hpc) -> Dray:
    """A dray that knows the cluster."""
    hpc.offer_pbs(dray)
    dray.write("train.py", TRAINER)
    return dray


def test_resources_reach_the_scheduler(far: Dray, hpc: Hpc) -> None:
    flags = ("--gpus", "2", "--cpus", "3", "--memory", "600M", "--time", "90m")
    job = far.run(*ON, *flags, "--", "/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES; umask")
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "0,1\n0022\n"
    number = scheduler_id(far, job)
    assert field(hpc, number, "NumCPUs") == "3"
    assert field(hpc, number, "TimeLimit") == "01:30:00"
    assert field(hpc, number, "MinMemoryNode") == "600M"
    assert not list(hpc.slurm.scratch.glob(f"*{job}*"))


def test_what_qsub_refuses_is_quoted_and_nothing_is_left(far: Dray, hpc: Hpc) -> None:
    hpc.offer_pbs(far, queue="nosuch")
    ended = far("run", *ON, *python("pass"), check=False)
    assert ended.returncode == 7
    assert "invalid partition specified: nosuch" in ended.stderr
    assert list(far.jobs.iterdir()) == []


def test_the_plan_shows_the_batch_script(far: Dray) -> None:
    shown = far("plan", *ON, "--gpus", "1", "--time", "4h", *python("print('x y')")).stdout
    assert "#PBS -l nodes=1:ppn=1:gpus=1" in shown
    assert "#PBS -l walltime=04:00:00" in shown
    assert not far.jobs.exists()


def test_doctor_finds_queues_and_nodes(far: Dray, hpc: Hpc) -> None:
    findings = json.loads(far("doctor", "--json", "pbs").stdout)
    assert all(one["ok"] for one in findings)
    details = [one["detail"] for one in findings]
    assert "gpu: open" in details
    assert "2 nodes of 8 CPUs, 15.6 GB, 2 GPUs" in details
    hpc.offer_pbs(far, dialect="openpbs", queue="nosuch")
    ended = far("doctor", "pbs", check=False)
    assert ended.returncode == 7
    assert 'dialect = "torque"' in ended.stdout
    assert "there is no queue 'nosuch'" in ended.stdout


def test_added_with_its_dialect(far: Dray, hpc: Hpc) -> None:
    (far.home / "dray/config.toml").unlink()
    flags = ("--root", str(far.jobs.parent), "--python", sys.executable, "--queue", "gpu")
    said = far("cluster", "add", "hpc", *flags)  # a queue: it must be PBS
    assert "ok   queue" in said.stdout
    assert 'kind = "pbs"' in said.stdout
    assert 'dialect = "torque"' in said.stdout
    shown = json.loads(far("cluster", "show", "--json", "hpc").stdout)
    assert shown["capabilities"]["gpus"] == 2


def test_where_rerun_is_not_wanted_a_chain_goes_on(far: Dray, hpc: Hpc) -> None:
    hpc.offer_pbs(far, resume_with="chain")
    limits = ("--time", "4s", "--grace", "2s", "--checkpoint-signal", "USR1")
    job = far.run(*ON, *limits, *RESUMABLE, "--", sys.executable, "train.py", "80", "0.1")
    first = scheduler_id(far, job)
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert len(shown["attempts"]) >= 3
    assert scheduler_id(far, job) != first
    wait_for(lambda: job not in queued_names(hpc))


def test_a_long_name_is_cut_and_the_job_found_all_the_same(far: Dray, hpc: Hpc) -> None:
    hpc.offer_pbs(far, extra=["-h"])
    job = far.run(*ON, "--name", "a-name-that-torque-would-refuse", *python("pass"))
    assert queued_names(hpc) == [f"a-name-tha{job[-5:]}"]
    assert far.show(job)["state"] == "queued"
    far("stop", job)
    assert far.show(job)["state"] == "stopped"
    wait_for(lambda: queued_names(hpc) == [])


def test_deleted_by_somebody_else(far: Dray, hpc: Hpc) -> None:
    job = far.run(*ON, *RESUMABLE, "--", sys.executable, "train.py", "1000", "0.05")
    wait_for(lambda: "start" in far.log(job))
    hpc.pbs.call("qdel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in PBS")
    wait_for(lambda: job not in queued_names(hpc))
    assert len(far.show(job)["attempts"]) == 1


def test_deleted_before_it_ran(far: Dray, hpc: Hpc) -> None:
    hpc.offer_pbs(far, extra=["-h"])
    job = far.run(*ON, *python("pass"))
    assert far.show(job)["state"] == "queued"
    hpc.pbs.call("qdel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in PBS before it ran")


def test_deleted_while_its_batch_script_prepares(far: Dray, hpc: Hpc) -> None:
    hpc.offer_pbs(far, setup=[*hpc.pbs.setup, "echo preparing", "sleep 60"])
    job = far.run(*ON, *python("pass"))
    batch_log = far.job_dir(job) / "batch.log"
    wait_for(lambda: batch_log.exists() and "preparing" in batch_log.read_text())
    hpc.pbs.call("qdel", scheduler_id(far, job))
    shown = far.wait(job)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in PBS before it ran")


def test_an_answer_lost_after_qsub_is_found_again(far: Dray, hpc: Hpc) -> None:
    gate = far.home / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    job = far.run(*ON, *python(wait))
    number = scheduler_id(far, job)
    (far.job_dir(job) / "scheduler.json").unlink()
    plan = json.loads((far.job_dir(job) / "job.json").read_text())
    request = {"verb": "submit", "job": {**plan, "snapshot": None}, "files": {}}
    answer = ask_agent(far, hpc, request, "pbs")
    assert answer["scheduler_id"] == number
    assert queued_names(hpc).count(job) == 1
    gate.touch()
    assert len(far.wait(job)["attempts"]) == 1


def test_many_jobs_at_once(far: Dray) -> None:
    jobs = run_many(far, [[sys.executable, "-c", f"print({n})"] for n in range(3)], on="pbs")
    assert [far.wait(job)["state"] for job in jobs] == ["done"] * 3
    assert [far.log(job) for job in jobs] == ["0\n", "1\n", "2\n"]
    far("rm", *jobs)
    assert list(far.jobs.iterdir()) == []
