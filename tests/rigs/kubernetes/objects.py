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
    return [made("v1", "ServiceAccount", USER, namespace), *right(USER, namespace, USER, RULES)]


def right(name: str, namespace: str, account: str, rules: list[Object]) -> list[Object]:
    """What allows an account of a namespace something in it."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    return [
        made(f"{group}/v1", "Role", name, namespace, rules=rules),
        made(f"{group}/v1", "RoleBinding", name, namespace, subjects=[subject], roleRef=role),
    ]


def quota(namespace: str, hard: dict[str, str]) -> Object:
    return made("v1", "ResourceQuota", "quota", namespace, spec={"hard": hard})


def priority_class(name: str, value: int) -> Object:
    return made("scheduling.k8s.io/v1", "PriorityClass", name, value=value)


def definition(group: str, kind: str, plural: str) -> Object:
    """A kind of object that the API server keeps, whatever is in it."""
    names = {"kind": kind, "plural": plural}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    spec = {"group": group, "names": names, "scope": "Cluster", "versions": [version]}
    return made(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{group}", spec=spec
    )
