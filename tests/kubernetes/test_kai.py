"""Jobs that KAI places: they share GPUs, and wait for what their queue may have."""

from __future__ import annotations

import json
import os

import pytest

from dray.clusters.kube import kueue
from dray.clusters.kube.api import Cluster
from dray.transport.kube_api import Api
from dray.transport.kubectl import Kubectl
from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.test_queues import PATIENCE, PYTHON, is_in, offer
from tests.kubernetes.training import Admin
from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes, find_addition
from tests.rigs.kubernetes.kai_scheduler import DEFINITIONS, Kai

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kai")]
GPU = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True)"
HOLDING = f"{GPU}; import time; time.sleep(600)"
# Two of them have room on one node, and with that on one GPU.
SMALL = json.dumps(
    {
        "containers": [
            {
                "name": "job",
                "imagePullPolicy": "Never",
                "resources": {"requests": {"cpu": "100m"}},
            }
        ]
    }
)
HALF = ("--on", "k8s", "--gpus", "0.5", "--", PYTHON, "-c")


def gpu_of(dray: Dray, pods: Pods, job: str) -> str:
    """The GPU that a job says it has, once KAI has placed it."""
    wait_for(lambda: is_in(dray, job, "running"), PATIENCE)
    pod = Admin(pods).running(job)
    assert pod is not None
    assert pod["spec"]["schedulerName"] == "kai-scheduler"
    assert pod["metadata"]["annotations"]["gpu-fraction"] == "0.5"
    return wait_for(lambda: dray.log(job).strip(), PATIENCE)


def test_jobs_share_a_gpu_and_wait_once_their_queue_has_all_that_it_may_have(
    dray: Dray, pods: Pods, kai: Kai
) -> None:
    kai.add_queue("lab", gpus=1)
    offer(pods, dray, "lab", scheduler="kai", priority_class="train", patch=SMALL)
    first = dray.run(*HALF, HOLDING)
    gpu = gpu_of(dray, pods, first)
    second = dray.run(*HALF, HOLDING)
    assert gpu_of(dray, pods, second) == gpu
    assert kai.reserved() == [gpu]

    third = dray.run(*HALF, GPU)
    full = "its queue has all that it may have (Kubernetes says: lab quota has reached the"
    wait_for(lambda: (is_in(dray, third, "queued") or "").startswith(full), PATIENCE)
    dray("stop", first)
    assert dray.wait(third)["state"] == "done"
    assert dray.log(third) == f"{gpu}\n"
    dray("stop", second)
    assert dray.wait(second)["state"] == "stopped"


@pytest.mark.usefixtures("kai")
def test_a_queue_that_is_not_there_is_named(dray: Dray, pods: Pods) -> None:
    offer(pods, dray, "nowhere", scheduler="kai")
    lost = dray.run(*HALF, GPU)
    wait_for(lambda: is_in(dray, lost, "queued") == "its queue is not there", PATIENCE)
    dray("stop", lost)
    assert dray.wait(lost)["state"] == "stopped"


def test_a_definition_of_kueues_that_kai_brings_along_is_not_kueue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KAI did so until its version 0.12."""
    bare = Kubernetes(nodes=0)
    try:
        bare.start()
        monkeypatch.setenv("PATH", f"{bare.bin}:{os.environ['PATH']}")
        admin = Kubectl("default", "", str(bare.admin))
        there = Cluster(Api(admin, bare.folder / "no-proxy"))
        assert there.facts()["schedulers"] == []
        bare.create(objects.definition(kueue.GROUP, "Topology", "topologies"))
        bare.kubectl("create", f"--filename={find_addition('kai') / DEFINITIONS}")
        wait_for(lambda: there.facts()["schedulers"])
        assert there.facts()["schedulers"] == ["kai"]
        # The version that the group prefers has queues, and no pod groups.
        assert there.facts()["versions"] == {"scheduling.run.ai": "v2alpha2"}
    finally:
        bare.stop()
