"""Ray clusters on a real Kubernetes, by KubeRay's operator: started, found, used and removed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, wait_for
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace
from tests.rigs.kubernetes.kuberay_operator import KubeRay

pytestmark = [pytest.mark.kuberay, pytest.mark.xdist_group("kuberay")]

PATIENCE = 300.0
VERSION = "2.60.0"
SMALL = ("--cpus", "1", "--memory", "2G", "--head-cpus", "1", "--head-memory", "3G")
LEFT = "rayclusters,pods,services,secrets,jobs,deployments,persistentvolumeclaims"
GPU = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"


@pytest.fixture
def user(
    dray: Dray, kubernetes: Kubernetes, kuberay: KubeRay, namespace: Namespace, rig_folder: Path
) -> Dray:
    """Somebody who may start Ray clusters in a namespace, and nothing else."""
    kuberay.admit(namespace)
    return without_rights(dray, kubernetes, namespace, rig_folder)


def without_rights(
    dray: Dray, kubernetes: Kubernetes, namespace: Namespace, rig_folder: Path
) -> Dray:
    config = Path(dray.env["HOME"], ".kube/config")
    config.parent.mkdir()
    config.write_text(kubernetes.kubeconfig(namespace).read_text())
    sockets = rig_folder / "kuberay"
    sockets.mkdir(mode=0o700, exist_ok=True)
    dray.env["PATH"] = f"{kubernetes.bin}:{dray.env['PATH']}"
    dray.env["XDG_RUNTIME_DIR"] = str(sockets)
    dray.jobs = namespace.volume / "dray/jobs"
    return dray


def up(user: Dray, *flags: str, image: str = "registry.local/nothing:1") -> tuple[str, ...]:
    """The words that start the cluster 'isaac'."""
    del user
    return ("cluster", "up", "isaac", "--image", image, "--ray-version", VERSION, *SMALL, *flags)


def settings(user: Dray) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((user.home / "dray/config.toml").read_text())
    return dict(found.get("clusters", {}))


def left(cluster: Kubernetes, namespace: Namespace) -> set[str]:
    """What is in the namespace beyond what was there from the start."""
    where = f"--namespace={namespace.name}"
    listed = cluster.kubectl("get", LEFT, where, "--output=name").split()
    return set(listed) - {f"persistentvolumeclaim/{namespace.claim}"}


def test_a_ray_cluster_is_started_used_and_removed(
    user: Dray, kubernetes: Kubernetes, kuberay: KubeRay, namespace: Namespace
) -> None:
    kuberay.load_image()
    words = up(user, "--storage", f"{namespace.claim}:/home/me", image=kuberay.image)
    started = user(*words)
    assert "the head is ready" in started.stderr
    assert settings(user)["isaac"]["root"] == "/home/me/dray"
    assert "RayCluster isaac is there already" in user(*words).stderr
    other = user(*words, "--workers", "2", check=False)
    assert "replicas (1 there, 2 asked for)" in other.stderr

    wait_for(lambda: "1 of 1 workers are ready" in user("doctor", "isaac").stdout, PATIENCE)
    job = user.run("--on", "isaac", "--gpus", "1", "--", "python3", "-c", GPU)
    assert user.wait(job)["state"] == "done"
    assert user.log(job).strip().isdigit()
    token = secret_of(kubernetes, namespace)
    assert not any(token in Path(f"/proc/{pid}/cmdline").read_text() for pid in user.processes())

    long = user.run("--on", "isaac", "--", "sleep", "600")
    wait_for(lambda: user.show(long)["state"] == "running", PATIENCE)
    refused = user("cluster", "down", "isaac", check=False)
    assert refused.returncode == 4
    assert "1 of your jobs" in refused.stderr
    user("stop", long)
    user.wait(long)
    user("cluster", "down", "isaac")
    assert left(kubernetes, namespace) == set()
    assert settings(user) == {}
    assert user.job_dir(job).is_dir()


def secret_of(cluster: Kubernetes, namespace: Namespace) -> str:
    path = f"/api/v1/namespaces/{namespace.name}/secrets/isaac"
    found: str = cluster.control.get(path)["data"]["auth_token"]
    return found


def test_clusters_are_found_and_written_down(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    assert "has no RayCluster" in user("cluster", "import", "--kuberay", check=False).stderr
    user(*up(user, "--storage", f"{namespace.claim}:/home/me", "--no-wait"))
    written = settings(user)
    user("cluster", "rm", "isaac")
    found = user("cluster", "import", "--kuberay").stdout
    assert tomllib.loads(found)["clusters"] == written
    assert "# not ready: 0 of" in found
    user("cluster", "import", "--kuberay", "--write")
    assert settings(user) == written
    user("cluster", "down", "isaac")
    assert left(kubernetes, namespace) == set()


def test_an_image_that_is_not_there_is_said_at_once(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    failed = user(*up(user), check=False)
    assert failed.returncode == 7
    assert "its image cannot be pulled" in failed.stderr
    assert "Is the image's name right" in failed.stderr
    assert "its image cannot be pulled" in user("doctor", "isaac", check=False).stdout
    user("cluster", "down", "isaac")
    assert left(kubernetes, namespace) == set()


@pytest.mark.parametrize(
    ("quota", "flags", "words"),
    [
        ({"requests.cpu": "500m"}, (), "waits for room in the namespace's quota"),
        ({}, ("--head-cpus", "999"), "waits for a node for pod isaac-head"),
    ],
)
def test_what_the_head_waits_for_is_said(
    user: Dray,
    kubernetes: Kubernetes,
    namespace: Namespace,
    quota: dict[str, str],
    flags: tuple[str, ...],
    words: str,
) -> None:
    if quota:
        kubernetes.add_quota(namespace, **quota)
    late = user(*up(user, "--timeout", "20s", *flags), check=False)
    assert late.returncode == 9
    assert words in late.stderr
    user("cluster", "down", "isaac")
    assert left(kubernetes, namespace) == set()


def test_a_wish_that_kuberay_refuses_is_said(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    """What is wrong is KubeRay's word: here, two of the same name."""
    user(*up(user, "--no-wait"))
    change = {"spec": {"rayVersion": "2.9.0"}}
    where = f"--namespace={namespace.name}"
    kubernetes.kubectl(
        "patch", "raycluster", "isaac", "--type=merge", f"--patch={json.dumps(change)}", where
    )
    wait_for(lambda: "2.52" in user("doctor", "isaac", check=False).stdout, PATIENCE)
    user("cluster", "down", "isaac")
    assert left(kubernetes, namespace) == set()


def test_a_cluster_ends_when_its_time_is_up(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    """All but the claim, and nobody has to be there."""
    flags = ("--no-wait", "--ttl", "1h", "--mlflow", "--mlflow-size", "1M")
    user(*up(user, *flags))
    there = left(kubernetes, namespace)
    assert {"job.batch/isaac-timer", "deployment.apps/isaac-mlflow"} < there
    change = json.dumps({"spec": {"activeDeadlineSeconds": 1}})
    where = f"--namespace={namespace.name}"
    kubernetes.kubectl("patch", "job", "isaac-timer", f"--patch={change}", where)
    claim = {"persistentvolumeclaim/isaac-mlflow"}
    wait_for(lambda: left(kubernetes, namespace) == claim, PATIENCE)
    user("cluster", "down", "isaac", "--data")
    assert left(kubernetes, namespace) == set()
    assert settings(user) == {}


def test_claims_are_kept_unless_they_are_to_go(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    words = up(user, "--no-wait", "--mlflow")
    user(*words)
    kept = user("cluster", "down", "isaac").stderr
    assert "PersistentVolumeClaim isaac-mlflow is kept" in kept
    assert left(kubernetes, namespace) == {"persistentvolumeclaim/isaac-mlflow"}
    assert "PersistentVolumeClaim isaac-mlflow is there already" in user(*words).stderr
    user("cluster", "down", "isaac", "--data")
    assert left(kubernetes, namespace) == set()


def test_a_cluster_of_somebody_else_is_left_alone(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    plan = json.loads(user(*up(user, "--plan")).stdout)
    del plan["items"][0]["metadata"]["labels"]
    kubernetes.create(*plan["items"])
    refused = user(*up(user), check=False)
    assert "dray has not made it" in refused.stderr
    user("cluster", "import", "--kuberay", "--write")
    kept = user("cluster", "down", "isaac", check=False)
    assert kept.returncode == 4
    assert "raycluster.ray.io/isaac" in left(kubernetes, namespace)


@pytest.mark.usefixtures("kuberay")
def test_rights_that_are_missing_are_named(
    dray: Dray, kubernetes: Kubernetes, namespace: Namespace, rig_folder: Path
) -> None:
    somebody = without_rights(dray, kubernetes, namespace, rig_folder)
    refused = somebody(*up(somebody), check=False)
    assert refused.returncode == 7
    assert "rayclusters of ray.io in namespace" in refused.stderr
    listed = somebody("cluster", "import", "--kuberay", check=False)
    assert "You may not list rayclusters of ray.io" in listed.stderr
