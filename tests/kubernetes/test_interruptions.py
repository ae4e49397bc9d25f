"""Whoever takes a pod away, the run goes on by itself from its newest checkpoint."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.pods import named_pod
from tests.kubernetes.pods import pod as described
from tests.kubernetes.training import Admin, Training

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def admin(pods: Pods) -> Admin:
    return Admin(pods)


@pytest.fixture
def schedulable(admin: Admin) -> Iterator[None]:
    """Nodes that a test drains are for others again."""
    yield
    for node in admin.cluster.nodes:
        admin.cluster.kubectl("uncordon", node)


def delete(admin: Admin, pod: dict[str, Any]) -> None:
    admin.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")


def evict(admin: Admin, pod: dict[str, Any]) -> None:
    where, name = admin.pods.namespace.name, pod["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": where},
    }
    path = f"/api/v1/namespaces/{where}/pods/{name}/eviction"
    admin.cluster.kubectl("create", "--raw", path, "--filename=-", stdin=json.dumps(eviction))


def drain(admin: Admin, pod: dict[str, Any]) -> None:
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    chosen = f"--pod-selector=dray/job={pod['metadata']['labels']['dray/job']}"
    admin.cluster.kubectl("drain", pod["spec"]["nodeName"], chosen, *flags)


@pytest.mark.parametrize("take_away", [delete, evict, drain])
@pytest.mark.usefixtures("schedulable")
def test_a_pod_is_taken_away(
    dray: Dray, pods: Pods, admin: Admin, take_away: Callable[[Admin, dict[str, Any]], None]
) -> None:
    pods.offer(dray)
    job = Training(dray, pods)
    first = job.has_saved()
    take_away(admin, first)
    second = job.has_saved(2)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    if take_away is drain:
        assert second["spec"]["nodeName"] != first["spec"]["nodeName"]
    shown = job.ends_whole()
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "done"]
    assert "SIGTERM" in shown["attempts"][0]["reason"]
    text = dray.log(job.id)
    assert text.startswith("start at ")
    assert text.endswith("finished\n")


def test_it_saves_on_request_before_it_goes(dray: Dray, pods: Pods, admin: Admin) -> None:
    pods.offer(dray)
    job = Training(dray, pods, saves="")
    delete(admin, job.starts())
    delete(admin, job.starts(2))
    shown = job.ends_whole()
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "interrupted", "done"]


def test_a_higher_priority_takes_the_place(dray: Dray, pods: Pods, admin: Admin) -> None:
    admin.cluster.priority_classes(low=100, high=1000)
    pods.offer(dray, priority_class="low", node_selector="kubernetes.io/hostname=node1")
    job = Training(dray, pods, "--gpus", "4")
    job.has_saved()
    rival = described("sleep", "600", gpus=4, node="node1", priorityClassName="high")
    admin.kubectl("create", "--filename=-", stdin=json.dumps(named_pod("rival", rival)))
    try:
        waiting = wait_for(lambda: is_waiting(dray, job.id), 60)
        assert waiting["attempts"][0]["outcome"] == "interrupted"
        assert "no GPU is free" in waiting["reason"]
        assert f"{job.id} " in dray("ps").stdout
    finally:
        admin.kubectl("delete", "pod", "rival", "--force")
    assert len(job.ends_whole()["attempts"]) == 2


def test_a_suspended_job_waits_and_goes_on(dray: Dray, pods: Pods, admin: Admin) -> None:
    pods.offer(dray)
    job = Training(dray, pods)
    job.has_saved()
    suspend(admin, job.id, "true")
    waiting = wait_for(lambda: is_waiting(dray, job.id), 60)
    assert waiting["reason"] == "suspended"
    suspend(admin, job.id, "false")
    shown = job.ends_whole()
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "done"]


def suspend(admin: Admin, job: str, whether: str) -> None:
    change = f'--patch={{"spec": {{"suspend": {whether}}}}}'
    admin.kubectl("patch", "job", admin.job_name(job), change)


def is_waiting(dray: Dray, job: str) -> dict[str, Any] | None:
    shown = dray.show(job)
    return shown if shown["state"] == "queued" and shown["reason"] else None


@pytest.mark.kubernetes_long
def test_one_that_is_interrupted_again_and_again_is_not_slowed_down(
    dray: Dray, pods: Pods, admin: Admin
) -> None:
    """Kubernetes' own back-off would grow to minutes, and give up after six."""
    pods.offer(dray)
    job = Training(dray, pods, goal=200)
    for attempt in range(1, 8):
        delete(admin, job.has_saved(attempt))
    shown = job.ends_whole()
    assert len(shown["attempts"]) == 8


def test_a_job_that_was_deleted_in_kubernetes_is_not_shown_as_running(
    dray: Dray, pods: Pods, admin: Admin
) -> None:
    pods.offer(dray)
    job = Training(dray, pods)
    job.has_saved()
    admin.kubectl("delete", "job", admin.job_name(job.id))
    hour_ago = time.time() - 3600  # what was submitted just now may not be there yet
    os.utime(dray.job_dir(job.id) / "scheduler.json", (hour_ago, hour_ago))
    shown = wait_for(lambda: is_over(dray, job.id), 60)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled in Kubernetes")
    dray("resume", job.id)
    assert job.ends_whole()["attempts"][0]["outcome"] == "interrupted"


def is_over(dray: Dray, job: str) -> dict[str, Any] | None:
    shown = dray.show(job)
    return shown if shown["state"] not in ("queued", "running") else None
