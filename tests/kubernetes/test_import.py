"""The YAML of a pod is read by kubectl, which needs no cluster for that."""

from __future__ import annotations

import tomllib

import pytest

from tests.conftest import Dray
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace

pytestmark = pytest.mark.kubernetes

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: me-test
  namespace: {namespace}
  labels:
    user: me
    priority: "1" # job with higher priority number takes precedence
spec:
  restartPolicy: Never # once it finishes, do not restart
  containers:
    - name: base-test
      image: registry.local/python:1
      command: ["touch", "ran"]
      volumeMounts:
        - mountPath: /labdata
          name: data
  volumes:
    - name: data
      persistentVolumeClaim:
        claimName: {claim}
---
apiVersion: v1
kind: Service
metadata: {{name: further}}
"""
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{to}: &{to} [{', '.join([f'*{of}'] * 9)}]\n"
    for of, to in zip("abcdefg", "bcdefgh", strict=True)
)


def test_a_guides_pod_becomes_a_cluster_that_runs_jobs(
    dray: Dray, kubernetes: Kubernetes, namespace: Namespace
) -> None:
    dray.env["PATH"] = f"{kubernetes.bin}:{dray.env['PATH']}"
    path = dray.write("pod.yaml", POD.format(namespace=namespace.name, claim=namespace.claim))
    printed = dray("cluster", "import", str(path)).stdout
    assert not (dray.project / "ran").exists()
    found = tomllib.loads(printed)["clusters"][namespace.name]
    assert found == {
        "kind": "kubernetes",
        "namespace": namespace.name,
        "volumes": [f"pvc:{namespace.claim}:/labdata"],
        "image": "registry.local/python:1",
        "priority": "1",
        "user": "me",
    }
    assert "# a further Service: only the first pod or Job is read" in printed
    dray("cluster", "import", "--name", "lab", "--write", str(path))
    listed = dray("cluster", "list").stdout
    assert "lab" in listed


def test_a_file_that_grows_when_it_is_read_is_refused(dray: Dray, kubernetes: Kubernetes) -> None:
    dray.env["PATH"] = f"{kubernetes.bin}:{dray.env['PATH']}"
    path = dray.write("pod.yaml", f"{ALIASES}apiVersion: v1\nkind: Pod\n")
    ended = dray("cluster", "import", str(path), check=False)
    assert ended.returncode == 2
    assert "kubectl cannot read it" in ended.stderr
