"""Pods and Jobs as tests describe them."""

from __future__ import annotations

from typing import Any

BUSYBOX = "registry.local/busybox:1"
PYTHON = "registry.local/python:1"
GPU = "nvidia.com/gpu"


def pod(
    *command: str,
    image: str = BUSYBOX,
    node: str | None = None,
    gpus: int = 0,
    claim: str | None = None,
    **fields: object,
) -> dict[str, Any]:
    """Describe a pod that runs one command, with the claim at /home."""
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": list(command),
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
        **fields,
    }
    if gpus:
        container["resources"] = {"limits": {GPU: gpus}}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    if claim:
        container["volumeMounts"] = [{"name": "home", "mountPath": "/home"}]
        spec["volumes"] = [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]
    return spec


def named_pod(name: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(name: str, spec: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, **fields, "template": {"spec": spec}},
    }
