"""A node that is gone takes nothing along but the time since the last checkpoint, and one that only
Kubernetes cannot reach keeps its job."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from dray.clusters.kube import lost_nodes
from dray.node.jobs import jobdir
from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import Admin, Training

pytestmark = pytest.mark.kubernetes

WAIT = 150.0  # seconds until Kubernetes has seen it, and the pod's grace is over


@pytest.fixture
def admin(pods: Pods) -> Iterator[Admin]:
    """Whatever a test does to the nodes, all of them are there for the next one."""
    admin = Admin(pods)
    yield admin
    for node in pods.cluster.nodes:
        pods.cluster.start_node(node)
        pods.cluster.kubectl("uncordon", node)


def age_heartbeat(job: Training) -> None:
    """As if nothing had been heard of it for so long."""
    path = job.dray.job_dir(job.id) / "attempts/001/heartbeat.json"
    long_ago = time.time() - 2 * jobdir.SILENT
    os.utime(path, (long_ago, long_ago))


def is_late(job: Training, name: str) -> bool:
    """Whether Kubernetes says that this pod should have ended long ago."""
    pod = next(one for one in job.admin.listed("pods", job.id) if one["metadata"]["name"] == name)
    marked = pod["metadata"].get("deletionTimestamp")
    grace_ends = datetime.fromisoformat(marked).timestamp() if marked else time.time()
    return time.time() > grace_ends + lost_nodes.LATE + 1


def next_pod(job: Training, name: str) -> dict[str, Any] | None:
    """Look at the job, as its user does now and then; give the pod that follows."""
    assert job.dray.show(job.id)["state"] in ("queued", "running")
    return job.admin.running(job.id, but=name)


@pytest.mark.kubernetes_long
def test_a_job_goes_on_elsewhere_once_its_node_is_really_gone(
    dray: Dray, pods: Pods, admin: Admin
) -> None:
    """First only the kubelet is killed: the containers run on, but Kubernetes takes them for lost.
    Then the node is switched off."""
    pods.offer(dray, node_loss="1s")
    admin.move_helper(dray, "node1")
    admin.cluster.kubectl("cordon", "node1")
    job = Training(dray, pods, "--grace", "1s", goal=900)
    name = job.has_saved()["metadata"]["name"]
    admin.cluster.kubectl("uncordon", "node1")
    admin.cluster.kill_kubelet("node2")
    wait_for(lambda: is_late(job, name), WAIT)
    before = job.steps()[-1]
    assert dray.show(job.id)["state"] == "running"
    wait_for(lambda: job.steps()[-1] > before)
    assert [one["metadata"]["name"] for one in admin.listed("pods", job.id)] == [name]

    admin.cluster.power_off("node2")
    age_heartbeat(job)
    second = wait_for(lambda: next_pod(job, name), WAIT)
    assert second["spec"]["nodeName"] == "node1"
    job.has_saved(2)
    shown = dray.show(job.id)
    assert [one["outcome"] for one in shown["attempts"]] == ["lost", None]
    assert "with its node" in shown["attempts"][0]["reason"]
    assert shown["attempts"][1]["from_checkpoint"] == shown["attempts"][0]["checkpoint"]
    steps = job.steps()
    assert len(steps) - len(set(steps)) <= 1
    assert name not in admin.kubectl("get", "pods")
    dray("stop", "--now", job.id)


def test_a_helper_whose_node_is_lost_is_replaced(dray: Dray, pods: Pods, admin: Admin) -> None:
    pods.offer(dray)
    admin.move_helper(dray, "node2")
    admin.cluster.kubectl("cordon", "node2")
    job = Training(dray, pods, goal=10)
    job.has_saved()
    admin.cluster.power_off("node2")
    shown = dray.wait(job.id)
    assert (shown["state"], shown["reason"]) == ("done", "")
    assert dray.log(job.id) == "start at 0\nfinished\n"
