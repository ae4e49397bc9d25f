"""What the tests put on a cluster for a user, as an administrator would: pure, nothing is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Object = dict[str, Any]

USER = "user"
CLAIM = "home"
ALL = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
LOOK = ("get", "list", "watch")
# What somebody is given who may use a namespace, and nothing beyond it.
RULES = [
    {"apiGroups": groups, "resources": resources, "verbs": list(verbs)}
    for groups, resources, verbs in (
        ([""], ["pods", "services", "secrets", "configmaps"], ALL),
        ([""], ["pods/log", "pods/status", "events", "resourcequotas", "limitranges"], LOOK),
        ([""], ["persistentvolumeclaims"], LOOK),
        (
            [""],
            ["pods/exec", "pods/attach", "pods/portforward", "pods/eviction"],
            ("get", "create"),
        ),
        (["batch"], ["jobs"], ALL),
        (["batch"], ["jobs/status"], LOOK),
    )
]


def made(version: str, kind: str, name: str, namespace: str = "", **fields: object) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def namespace(name: str, folder: Path) -> list[Object]:
    """A namespace with a claim that is bound to a folder which all nodes see."""
    common = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeMode": "Filesystem",
    }
    volume = {
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder), "type": "Directory"},
        "claimRef": {"namespace": name, "name": CLAIM},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    claim = {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    return [
        made("v1", "Namespace", name),
        made("v1", "PersistentVolume", name, spec=common | volume),
        made("v1", "PersistentVolumeClaim", CLAIM, name, spec=common | claim),
    ]


def user(namespace: str) -> list[Object]:
    """Somebody who may use this namespace and nothing else."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": USER, "namespace": namespace}
    role = {"apiGroup": group, "kind": "Role", "name": USER}
    return [
        made("v1", "ServiceAccount", USER, namespace),
        made(f"{group}/v1", "Role", USER, namespace, rules=RULES),
        made(f"{group}/v1", "RoleBinding", USER, namespace, subjects=[subject], roleRef=role),
    ]


def quota(namespace: str, hard: dict[str, str]) -> Object:
    return made("v1", "ResourceQuota", "quota", namespace, spec={"hard": hard})


def priority_class(name: str, value: int) -> Object:
    return made("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
