"""Who looks at the volume where no helper is: the pod of a job that runs. And volumes that only one
node, or one pod, can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import Admin
from tests.rigs.kubernetes.cluster import Kubernetes
from tests.rigs.kubernetes.objects import made

pytestmark = pytest.mark.kubernetes

ON = ("--on", "k8s")
# A node has as many CPUs as the machine of the tests: there is room for several on one.
SMALL = {
    "containers": [
        {"name": "job", "imagePullPolicy": "Never", "resources": {"requests": {"cpu": "10m"}}}
    ]
}
STAYS = ("sh", "-c", "echo here; echo 7 > $DRAY_OUTPUTS/result; sleep 600")


@pytest.fixture
def space(kubernetes: Kubernetes, rig_folder: Path) -> Iterator[Pods]:
    made = kubernetes.namespace()
    yield Pods(kubernetes, made, rig_folder / "k8s")
    kubernetes.remove(made)


@pytest.fixture
def admin(space: Pods) -> Admin:
    return Admin(space)


def end_helper(dray: Dray, admin: Admin) -> None:
    wait_for(dray.nothing_runs)
    admin.kubectl("delete", "jobs", "--selector=!dray/job", "--wait=true")
    wait_for(lambda: admin.helper() is None, 60)


def helpers(admin: Admin) -> list[Any]:
    """All that there are of it, also those that wait."""
    text = admin.kubectl("get", "jobs,pods", "--selector=!dray/job", "--output=json")
    found: list[Any] = json.loads(text)["items"]
    return found


def running(dray: Dray, admin: Admin, job: str) -> dict[str, Any]:
    log = dray.job_dir(job) / "attempts/001/log"
    wait_for(lambda: log.exists() and "here" in log.read_text(), 60)
    pod: dict[str, Any] = wait_for(lambda: admin.running(job))
    return pod


# -- a job's own pod ------------------------------------------------------------------------------


def test_the_pod_of_a_job_answers(dray: Dray, space: Pods, admin: Admin) -> None:
    space.offer(dray)
    job = dray.run(*ON, "--", *STAYS)
    running(dray, admin, job)
    end_helper(dray, admin)
    for _ in range(2):  # on a connection of its own, and on the one that is then left open
        assert dray.show(job)["state"] == "running"
        assert dray.log(job) == "here\n"
    dray("pull", job, "there")
    assert (dray.project / "there/result").read_text() == "7\n"
    second = dray.run(*ON, "--", "true")
    assert dray.wait(second)["state"] == "done"
    assert helpers(admin) == []
    dray("stop", job)  # ends who was asked: then a helper is needed
    assert dray.show(job)["state"] == "stopped"
    assert dray.log(job) == "here\n"
    assert helpers(admin) != []


def test_no_shell_is_needed_for_it(dray: Dray, space: Pods, admin: Admin) -> None:
    """The image has one program, and no Python either."""
    space.offer(dray)
    job = dray.run(*ON, "--image", "registry.local/pause:1", "--", "/pause")
    wait_for(lambda: dray.show(job)["state"] == "running", 60)
    end_helper(dray, admin)
    assert dray.show(job)["state"] == "running"
    assert helpers(admin) == []
    dray("stop", "--now", job)


def test_a_pod_that_is_gone_meanwhile(dray: Dray, space: Pods, admin: Admin) -> None:
    """The connection that is left open leads nowhere: somebody else is asked."""
    space.offer(dray)
    job = dray.run(*ON, "--", *STAYS)
    pod = running(dray, admin, job)
    end_helper(dray, admin)
    assert dray.show(job)["state"] == "running"
    admin.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=1")
    assert dray.show(job)["state"] in ("running", "queued")
    assert dray("logs", "--attempt", "1", job).stdout == "here\n"
    dray("stop", "--now", job)


# -- volumes for one node, or one pod -------------------------------------------------------------


def add_claim(space: Pods, name: str, mode: str, storage: str = "") -> Path:
    """A claim of this mode on a folder of its own."""
    folder = space.namespace.volume / name
    folder.mkdir()
    folder.chmod(0o777)
    common = {"accessModes": [mode], "storageClassName": storage}
    volume: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if not storage:  # else it is found by its class
        volume["claimRef"] = {"namespace": space.namespace.name, "name": name}
    claim = {"resources": {"requests": {"storage": "1Gi"}}}
    where = space.namespace.name
    space.cluster.create(
        made("v1", "PersistentVolume", f"{where}-{name}", spec=common | volume),
        made("v1", "PersistentVolumeClaim", name, where, spec=common | claim),
    )
    return folder


@pytest.fixture
def once(dray: Dray, space: Pods) -> Iterator[Path]:
    """dray's folder, on a claim that is ReadWriteOnce."""
    folder = add_claim(space, "once", "ReadWriteOnce")
    space.offer(dray, volumes=["pvc:once:/home/me"], patch=json.dumps(SMALL))
    dray.jobs = folder / "dray/jobs"
    yield folder
    space.cluster.kubectl("delete", "pv", f"{space.namespace.name}-once", "--wait=false")


@pytest.mark.usefixtures("once")
def test_a_volume_for_one_node(dray: Dray, admin: Admin) -> None:
    """Jobs share a node, and ask each other; the helper makes way for them."""
    said = dray("doctor", "k8s").stdout
    assert "ReadWriteOnce: it can be on one node at a time" in said
    jobs = [dray.run(*ON, "--", *STAYS) for _ in range(3)]
    nodes = {running(dray, admin, one)["spec"]["nodeName"] for one in jobs}
    assert len(nodes) == 1
    wait_for(lambda: admin.helper() is None, 60)
    assert [dray.show(one)["state"] for one in jobs] == ["running"] * 3
    assert helpers(admin) == []
    # The one that comes does not go elsewhere when that node takes no more.
    (node,) = nodes
    admin.cluster.kubectl("cordon", node)
    try:
        late = dray.run(*ON, "--", "true")
        wait_for(lambda: "it can be on one node only" in dray.show(late)["reason"], 60)
    finally:
        admin.cluster.kubectl("uncordon", node)
    assert dray.wait(late)["state"] == "done"
    refused = dray("run", *ON, "--nodes", "2", "--launch", "srun", "--", "true", check=False)
    assert "its volume can be used on one node at a time" in refused.stderr
    dray("stop", "--now", *jobs)


@pytest.mark.usefixtures("once")
def test_the_helper_does_not_stay_with_such_a_volume(dray: Dray, admin: Admin) -> None:
    """No connection keeps it alive: a job may have to be elsewhere."""
    dray("doctor", "k8s")
    job = dray.run(*ON, "--", "true")
    assert dray.wait(job)["state"] == "done"
    assert dray.log(job) == ""
    wait_for(lambda: not helpers(admin), 100)


def test_a_volume_for_one_pod_is_refused(dray: Dray, space: Pods) -> None:
    add_claim(space, "single", "ReadWriteOncePod")
    space.offer(dray, volumes=["pvc:single:/home/me"])
    for _ in range(2):  # before and after anybody has looked
        refused = dray("run", *ON, "--", "true", check=False)
        assert refused.returncode != 0
        assert "only one pod at a time may write to its volume" in refused.stderr
        assert "ReadWriteMany" in refused.stderr
    diagnosis = dray("doctor", "k8s", check=False)
    assert diagnosis.returncode != 0
    assert "Name a claim that is ReadWriteMany" in diagnosis.stdout
    space.cluster.kubectl("delete", "pv", f"{space.namespace.name}-single", "--wait=false")


def test_a_volume_that_waits_for_its_first_pod(dray: Dray, space: Pods, admin: Admin) -> None:
    """It is bound once the helper is placed: that is no fault."""
    name = f"later-{space.namespace.name}"
    later = {"provisioner": "kubernetes.io/no-provisioner"}
    space.cluster.create(
        made("storage.k8s.io/v1", "StorageClass", name,
             volumeBindingMode="WaitForFirstConsumer", **later)
    )  # fmt: skip
    folder = add_claim(space, "later", "ReadWriteMany", name)
    space.offer(dray, volumes=["pvc:later:/home/me"])
    dray.jobs = folder / "dray/jobs"
    assert "Pending" in admin.kubectl("get", "pvc", "later")
    assert "ok   volume /home/me claim later" in dray("doctor", "k8s").stdout
    assert dray.wait(dray.run(*ON, "--", "true"))["state"] == "done"
    for kind, one in (("pv", f"{space.namespace.name}-later"), ("storageclass", name)):
        space.cluster.kubectl("delete", kind, one, "--wait=false")


@pytest.mark.usefixtures("once")
def test_nobody_holds_a_volume_that_a_pod_waits_for(dray: Dray, space: Pods, admin: Admin) -> None:
    """Looking at a job whose pod is being made ready starts no helper, which might be elsewhere."""
    mount = {"name": "more", "mountPath": "/more"}
    patch = {
        "containers": [{"name": "job", "imagePullPolicy": "Never", "volumeMounts": [mount]}],
        "volumes": [{"name": "more", "configMap": {"name": "later"}}],
    }
    space.offer(dray, volumes=["pvc:once:/home/me"], patch=json.dumps(patch))
    dray("doctor", "k8s")
    job = dray.run(*ON, "--", "true")
    wait_for(lambda: "cannot be mounted" in dray.show(job)["reason"], 60)
    wait_for(lambda: not helpers(admin), 60)
    assert dray.show(job)["state"] == "queued"
    assert "cannot be mounted" in dray("ps").stdout
    assert helpers(admin) == []
    admin.kubectl("create", "configmap", "later")
    assert dray.wait(job)["state"] == "done"
