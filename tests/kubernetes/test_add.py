"""A namespace becomes a cluster: what the kubeconfig and the namespace show need not be said."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Pods
from tests.kubernetes.pods import PYTHON, named_pod, pod
from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace
from tests.rigs.kubernetes.kueue_manager import Kueue

pytestmark = pytest.mark.kubernetes

ADD = ("cluster", "add", "lab", "--kind", "kubernetes", "--agent-image", PYTHON)


@pytest.fixture
def user(dray: Dray, kubernetes: Kubernetes, namespace: Namespace, rig_folder: Path) -> Dray:
    """Somebody with a kubeconfig where kubectl looks for one, and nothing else."""
    config = Path(dray.env["HOME"], ".kube/config")
    config.parent.mkdir()
    config.write_text(kubernetes.kubeconfig(namespace).read_text())
    sockets = rig_folder / "k8s-add"
    sockets.mkdir(mode=0o700, exist_ok=True)
    dray.env["PATH"] = f"{kubernetes.bin}:{dray.env['PATH']}"
    dray.env["XDG_RUNTIME_DIR"] = str(sockets)
    return dray


def settings(user: Dray) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((user.home / "dray/config.toml").read_text())
    return dict(found["clusters"]["lab"])


def second_claim(namespace: Namespace) -> objects.Object:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return objects.made("v1", "PersistentVolumeClaim", "data", namespace.name, spec=spec)


def test_nothing_is_asked_where_there_is_one_of_everything(
    user: Dray, namespace: Namespace
) -> None:
    ended = user(*ADD, "--test")
    assert settings(user) == {
        "kind": "kubernetes",
        "context": "test",
        "namespace": namespace.name,
        "volumes": ["pvc:home:/home"],
        "agent_image": PYTHON,
    }
    assert f"volumes: pvc:home:/home (the only claim of namespace {namespace.name})" in ended.stderr
    assert "context: test (the current one)" in ended.stderr
    assert "is done" in ended.stderr  # the test job


def test_another_current_context_changes_nothing(user: Dray) -> None:
    user(*ADD)
    config = Path(user.env["HOME"], ".kube/config")
    changed = config.read_text().replace("current-context", "was-current-context")
    config.write_text(changed)
    job = user.run("--on", "lab", "--image", PYTHON, "--", "echo", "still there")
    assert user.wait(job)["state"] == "done"
    assert user.log(job) == "still there\n"


def test_of_several_claims_one_has_to_be_chosen(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    kubernetes.create(second_claim(namespace))
    ended = user(*ADD, check=False)
    assert ended.returncode == 2
    assert f"namespace {namespace.name} has 2 claims" in ended.stderr
    assert "--volumes: pvc:data:/data, pvc:home:/home" in ended.stderr
    assert not (user.home / "dray/config.toml").exists()
    user(*ADD, "--volumes", "pvc:home:/home/me")
    assert settings(user)["volumes"] == ["pvc:home:/home/me"]


def test_a_claim_is_mounted_where_other_pods_mount_it(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    spec = pod("true", claim=namespace.claim)
    spec["containers"][0]["volumeMounts"][0]["mountPath"] = "/labdata"
    described = named_pod("other", spec)
    described["metadata"]["namespace"] = namespace.name
    kubernetes.create(described)
    user(*ADD)
    assert settings(user)["volumes"] == ["pvc:home:/labdata"]


def test_where_root_is_forbidden_a_user_id_is_chosen(
    user: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubernetes.kubectl("label", "namespace", namespace.name, label)
    unseen = user(*ADD, "--no-check", "--volumes", "pvc:home:/home", "--uid", "2345")
    assert settings(user)["uid"] == 2345, unseen.stderr
    rules = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]
    role = objects.made("rbac.authorization.k8s.io/v1", "Role", "look", namespace.name, rules=rules)
    kubernetes.create(role)
    account = f"--serviceaccount={namespace.name}:{objects.USER}"
    where = f"--namespace={namespace.name}"
    kubernetes.kubectl("create", "rolebinding", "look", "--role=look", account, where)
    ended = user(*ADD, "--replace", "--test")
    assert settings(user)["uid"] == 1000
    assert "uid: 1000 (the namespace forbids root" in ended.stderr


@pytest.mark.xdist_group("kueue")
def test_a_queue_of_kueue_is_taken(user: Dray, namespace: Namespace, kueue: Kueue) -> None:
    kueue.admit(namespace)
    kueue.add_queue(namespace, "lab", cpu="1")
    user(*ADD)
    found = settings(user)
    assert (found["scheduler"], found["queue"]) == ("kueue", "lab")
    user(*ADD, "--scheduler", "default", "--replace")
    assert "queue" not in settings(user)


def test_what_a_namespace_lacks_is_told(user: Dray, kubernetes: Kubernetes) -> None:
    ended = user(*ADD, "--namespace", "default", check=False)
    assert ended.returncode == 2
    assert "you may not list the claims of namespace default" in ended.stderr
    assert "--volumes: pvc:CLAIM:/path" in ended.stderr
    ended = user(*ADD, "--context", "elsewhere", check=False)
    assert "the kubeconfig has no context 'elsewhere'" in ended.stderr
    assert "It has test." in ended.stderr


def test_an_image_is_named_by_the_job(user: Dray) -> None:
    user(*ADD)
    ended = user("run", "--on", "lab", "--", "true", check=False)
    assert "a pod needs an image, and none is named" in ended.stderr
    shown = json.loads(user("cluster", "show", "--json", "lab").stdout)
    assert shown["kind"] == "kubernetes"


def test_an_image_is_told_whose_account_it_is(user: Dray) -> None:
    account = ("--user", "lis", "--uid", "1234", "--gid", "1235", "--group", "LAB-unit")
    user(*ADD, *account)
    names = ("USER", "USER_ID", "GROUP_NAME", "GROUP_ID")
    shown = " ".join(f"$CLUSTER_{one}" for one in names)
    job = user.run(
        "--on", "lab", "--image", PYTHON, "--", "sh", "-c", f"echo {shown}; id -u; id -g"
    )
    assert user.wait(job)["state"] == "done"
    assert user.log(job) == "lis 1234 LAB-unit 1235\n1234\n1235\n"


def test_its_settings_are_shown_as_they_are_written(dray: Dray, pods: Pods) -> None:
    """What it has is not known, and nothing is said of it."""
    pods.offer(dray)
    shown = dray("cluster", "show", "k8s").stdout
    home = f"pvc:{pods.namespace.claim}:/home/me host:{dray.home}:{dray.home}"
    assert f"\nvolumes     {home}\n" in shown
    assert "\nagent_image registry.local/python:1\n" in shown
    assert "CPUs" not in shown
