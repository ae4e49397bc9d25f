"""On a real Ray: what it gives, what it loses, and who goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Dray, RayCluster, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER
from tests.integration.test_arrays import run_many
from tests.rigs.ray import GPUS, HEAD, PATIENCE

pytestmark = pytest.mark.ray

WAIT = 120.0  # seconds until Ray has seen that a node is gone, on a busy machine
COUNTING = ("--", "python3", "train.py", "1000", "0.2", "--every")
GATE = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.05)\n"


@pytest.fixture
def ray(dray: Dray, ray_cluster: RayCluster) -> RayCluster:
    dray.write("train.py", TRAINER)
    ray_cluster.offer(dray)
    return ray_cluster


def steps(dray: Dray, job: str) -> list[str]:
    path = dray.job_dir(job) / "outputs/steps"
    return path.read_text().split() if path.exists() else []


def raw_log(dray: Dray, job: str, attempt: int = 1) -> str:
    path = dray.job_dir(job) / f"attempts/{attempt:03d}/log"
    return path.read_text() if path.exists() else ""


@contextmanager
def without_its_node(dray: Dray, ray: RayCluster, job: str) -> Iterator[None]:
    """Switch the job's node off, and wait until it goes on elsewhere from its checkpoint; the node
    is there again in the end."""
    (node,) = ray.rig.running(job)
    assert node != HEAD
    ray.rig.kill_node(node)
    try:
        wait_for(lambda: len(dray.show(job)["attempts"]) == 2, 2 * WAIT)
        first, second = dray.show(job)["attempts"]
        assert first["outcome"] == "lost"
        assert second["from_checkpoint"] == first["checkpoint"]
        yield
    finally:
        ray.rig.add_node(node)


def gate(dray: Dray, name: str) -> Path:
    return dray.home / name


# -- what a job gets ----------------------------------------------------------------------------


def test_gpus_are_shared_in_parts(dray: Dray, ray: RayCluster) -> None:
    """Two jobs with half a GPU each run side by side, and each sees one."""
    code = "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n" + GATE.format(
        str(gate(dray, "go"))
    )
    half = ("--on", "ray", "--gpus", "0.5", "--cpus", "1", "--", "python3", "-c", code)
    jobs = [dray.run(*half), dray.run(*half)]
    for job in jobs:
        wait_for(lambda job=job: raw_log(dray, job), WAIT)
    assert all(raw_log(dray, job).strip().isdigit() for job in jobs)
    gate(dray, "go").touch()
    assert [dray.wait(job)["state"] for job in jobs] == ["done", "done"]


def test_python_is_the_one_that_ray_runs_in(dray: Dray, ray: RayCluster) -> None:
    """A login shell would have put the usual places into PATH, and only these."""
    job = dray.run("--on", "ray", "--", "python", "-c", "import sys; print(sys.prefix)")
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == f"{ray.rig.bin.parent}\n"


def test_what_no_node_has_is_refused(dray: Dray, ray: RayCluster) -> None:
    dray("cluster", "check", "ray")
    for flags, why in (
        (("--gpus", "9"), f"9 GPUs asked for, and no node has more than {GPUS}"),
        (("--nodes", "2", "--launch", "none"), "has no way to its other nodes"),
        (("--nodes", "9", "--launch", "srun"), "9 nodes asked for, and Ray has 3 such nodes"),
    ):
        refused = dray("run", "--on", "ray", *flags, "--", "true", check=False)
        assert refused.returncode != 0
        assert why in refused.stderr


def test_secrets_are_nowhere_in_rays_records(dray: Dray, ray: RayCluster) -> None:
    code = "import os; print(len(os.environ['API_KEY']))"
    job = dray.run(
        "--on", "ray", "--secret", "API_KEY", "--", "python3", "-c", code, API_KEY="s3cr3t-v4lue"
    )
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == "12\n"
    assert "s3cr3t-v4lue" not in json.dumps(ray.rig.jobs())
    found = [one for one in ray.rig.logs() if b"s3cr3t-v4lue" in one.read_bytes()]
    assert [one for one in found if not one.name.endswith(".out")] == []
    assert not (dray.job_dir(job) / "secrets.json").exists()


def test_a_job_waits_longer_than_ray_would(dray: Dray, ray: RayCluster) -> None:
    """Ray fails a job of its own that waits for GPUs for so long; ours waits on, and is stopped
    while it waits."""
    code = GATE.format(str(gate(dray, "go")))
    everything = ("--on", "ray", "--gpus", str(GPUS), "--nodes", "1", "--cpus", "1", "--")
    busy = [dray.run(*everything, "python3", "-c", code) for _ in range(2)]
    for job in busy:
        wait_for(lambda job=job: dray.show(job)["attempts"], WAIT)
    late, stopped = (dray.run(*everything, "true") for _ in range(2))
    wait_for(lambda: "waiting for 2 GPU" in dray.show(late)["reason"], WAIT)
    dray("stop", stopped)
    assert dray.wait(stopped)["state"] == "stopped"
    began = time.monotonic()
    wait_for(lambda: time.monotonic() > began + PATIENCE + 5, 2 * PATIENCE)
    assert dray.show(late)["state"] == "queued"
    gate(dray, "go").touch()
    assert [dray.wait(job)["state"] for job in [*busy, late]] == ["done"] * 3


def test_an_array_has_one_driver(dray: Dray, ray: RayCluster) -> None:
    before = {one["submission_id"] for one in ray.rig.jobs()}
    ids = run_many(dray, [["echo", str(index)] for index in range(6)], on="ray")
    array = ids[0].partition(".")[0]
    dray("wait", "--timeout", "110s", array)
    assert [dray.log(one) for one in ids] == [f"{index}\n" for index in range(6)]
    drivers = {one["submission_id"] for one in ray.rig.jobs()} - before
    assert [one for one in drivers if not one.startswith("dray-link-")] == [f"dray-0-{array}"]


# -- several nodes ------------------------------------------------------------------------------


def test_a_job_on_two_nodes_goes_on_when_one_is_killed(dray: Dray, ray: RayCluster) -> None:
    """Each node has a rank; the node without the head is switched off, and another one comes."""
    code = (
        "import os, sys, time\n"
        "names = ('RANK', 'WORLD_SIZE', 'DRAY_ATTEMPT')\n"
        "print(*(os.environ[one] for one in names), flush=True)\n"
        "if os.environ['DRAY_ATTEMPT'] == '1': time.sleep(600)\n"
    )
    dray.write("ranks.py", code)
    flags = ("--nodes", "2", "--gpus", "1", "--cpus", "1", "--launch", "srun", "--retries", "2")
    job = dray.run("--on", "ray", *flags, "--backoff", "0.1s", "--", "python3", "ranks.py")
    wait_for(lambda: raw_log(dray, job) == "0 2 1\n", WAIT)
    hosts = ray.rig.running(job)
    victim = max(hosts)
    assert victim != HEAD
    ray.rig.kill_node(victim)
    ray.rig.add_node(victim)
    shown = wait_for(lambda: (one := dray.show(job))["state"] == "done" and one, 2 * WAIT)
    assert shown["attempts"][0]["outcome"] in ("lost", "interrupted")
    assert raw_log(dray, job, len(shown["attempts"])) == f"0 2 {len(shown['attempts'])}\n"


# -- losses -------------------------------------------------------------------------------------


def test_a_job_goes_on_from_its_checkpoint_when_its_node_is_killed(
    dray: Dray, ray: RayCluster
) -> None:
    job = dray.run("--on", "ray", "--gpus", str(GPUS), *RESUMABLE, *COUNTING)
    wait_for(lambda: len(steps(dray, job)) > 3, WAIT)
    with without_its_node(dray, ray, job):
        dray("stop", job)
        assert dray.wait(job)["state"] == "stopped"
        assert sorted({int(one) for one in steps(dray, job)})[0] == 1


def test_a_head_that_is_replaced_is_noticed(dray: Dray, ray: RayCluster) -> None:
    """All of Ray's records are gone with it; the job's own files are not."""
    job = dray.run("--on", "ray", *RESUMABLE, *COUNTING)
    wait_for(lambda: len(steps(dray, job)) > 3, WAIT)
    nodes = sorted(ray.rig.nodes, reverse=True)
    for node in nodes:
        ray.rig.kill_node(node)
    ray.rig.start_head()
    for node in sorted(nodes)[1:]:
        ray.rig.add_node(node)
    shown = wait_for(lambda: (one := dray.show(job))["state"] == "lost" and one, WAIT)
    assert "its head was replaced" in shown["reason"]
    dray("resume", job)
    wait_for(lambda: len(dray.show(job)["attempts"]) == 2, WAIT)
    assert dray.show(job)["attempts"][1]["from_checkpoint"]
    dray("stop", job)
    assert dray.wait(job)["state"] == "stopped"


# -- the way in, and what doctor finds ----------------------------------------------------------


def test_somebody_gets_into_a_running_job(dray: Dray, ray: RayCluster) -> None:
    code = GATE.format(str(gate(dray, "go")))
    job = dray.run("--on", "ray", "--gpus", "1", "--", "python3", "-c", code)
    wait_for(lambda: (dray.job_dir(job) / "attempts/001/door.calls").exists(), WAIT)
    words = ("sh", "-c", 'echo "$DRAY_JOB_ID $CUDA_VISIBLE_DEVICES"; exit 3')
    ended = dray("exec", job, "--", *words, check=False)
    assert ended.returncode == 3, ended.stderr
    name, gpu = ended.stdout.split()
    assert (name, gpu.isdigit()) == (job, True)
    gate(dray, "go").touch()
    assert dray.wait(job)["state"] == "done"


def test_a_job_is_looked_for_on_each_node_with_gpus(dray: Dray, ray: RayCluster) -> None:
    found = dray("cluster", "check", "ray").stdout
    nodes = [ray.rig.address_of(node) for node in sorted(ray.rig.nodes) if node != HEAD]
    assert ", ".join(nodes) + ": Ray 2." in found
    assert "a job sees one of 2 GPUs" in " ".join(found.split())
    assert "sees the root" in " ".join(found.split())
