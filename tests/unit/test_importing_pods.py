"""A pod's description and a script of Run:ai are read as they are meant, and never run."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.config import editing, migration
from dray.config.migration import pods, runai
from dray.config.migration.found import Found, Text
from dray.errors import ConfigError, UsageError

CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "registry.example.org/lab/base:cpu",
    "command": ["/opt/lab/setup_and_run_command.sh", "cd /data && python job.py"],
    "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "32Gi", "cpu": "2500m"}},
    "env": [
        {"name": "CLUSTER_USER", "value": "lis"},
        {"name": "CLUSTER_USER_ID", "value": "123456"},
        {"name": "CLUSTER_GROUP_NAME", "value": "LAB-unit"},
        {"name": "CLUSTER_GROUP_ID", "value": "11166"},
        {"name": "TORCH_HOME", "value": "/data/models"},
        {"name": "WANDB_API_KEY", "value": "hunter2"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ],
    "volumeMounts": [
        {"name": "src", "mountPath": "/src", "readOnly": True},
        {"name": "data", "mountPath": "/data"},
        {"name": "nfs", "mountPath": "/nfs"},
        {"name": "host", "mountPath": "/scratch"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "conf", "mountPath": "/conf"},
    ],
    "ports": [{"containerPort": 8888}],
}
SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [CONTAINER],
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "dedicated", "value": "lab", "effect": "NoSchedule"}],
    "imagePullSecrets": [{"name": "regcred"}],
    "hostNetwork": True,
    "schedulerName": "theirs",
    "activeDeadlineSeconds": 14400,
    "volumes": [
        {"name": "src", "persistentVolumeClaim": {"claimName": "pv-src"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "pv-data"}},
        {"name": "nfs", "nfs": {"server": "files", "path": "/export"}},
        {"name": "host", "hostPath": {"path": "/mnt/scratch"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        {"name": "conf", "configMap": {"name": "c"}},
    ],
}
METADATA = {
    "name": "lis-test",
    "namespace": "lab",
    "labels": {"user": "lis", "priority": "1", "kueue.x-k8s.io/queue-name": "gpu", "team": "x"},
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": METADATA, "spec": SPEC}

SCRIPT = """#!/bin/bash
MY_WORK_DIR="/data/home/lis"
MY_IMAGE="registry.example.org/lab/ml:cuda10"
CLUSTER_USER=lis # find this by running `id -un`
CLUSTER_USER_ID=142034
TODAY=$(touch ran)
arg_job_name="$CLUSTER_USER-$1"
arg_gpu=$2
arg_cmd=$3
echo "Job [$arg_job_name]"
runai submit $arg_job_name \\
\t-i $MY_IMAGE -p lab --gpu $arg_gpu --cpu 4 \\
\t--pvc runai-pv-data1:/data1 --pvc runai-pv-data2:/data2 \\
\t--large-shm --node-pools big \\
\t-e CLUSTER_USER=$CLUSTER_USER -e CLUSTER_USER_ID=$CLUSTER_USER_ID \\
\t-e TORCH_HOME="/data2/models" -e WANDB_API_KEY=hunter2 \\
\t--command -- /opt/lab/setup_and_run_command.sh "cd $MY_WORK_DIR && $arg_cmd"
sleep 1
"""


def read(description: object) -> Found:
    return pods.read(Text("pod.json", json.dumps(description)), {})


def test_a_pod_becomes_a_cluster_and_a_job() -> None:
    found = read(POD)
    assert (found.name, found.kind) == ("lab", "kubernetes")
    assert found.cluster == {
        "namespace": "lab",
        "volumes": [
            "pvc:pv-src:/src:ro",
            "pvc:pv-data:/data",
            "nfs:files:/export:/nfs",
            "host:/mnt/scratch:/scratch",
        ],
        "image": "registry.example.org/lab/base:cpu",
        "scheduler": "kueue",
        "queue": "gpu",
        "priority": "1",
        "user": "lis",
        "node_selector": {"pool": "gpu"},
        "tolerations": ["dedicated=lab:NoSchedule"],
        "uid": 123456,
        "gid": 11166,
        "group": "LAB-unit",
        "shm": "8G",
        "pull_secrets": ["regcred"],
        "labels": {"team": "x"},
    }
    assert found.job == {
        "job.env": {"TORCH_HOME": "/data/models"},
        "job.resources.gpus": 1,
        "job.resources.cpus": 3,
        "job.resources.memory": "32G",
        "job.resources.time": "14400s",
    }
    notes = "\n".join(found.notes)
    assert "hunter2" not in notes
    for said in (
        "WANDB_API_KEY",
        "FROM",
        "schedulerName",
        "hostNetwork",
        "configMap",
        "ports",
        "python job.py",
    ):
        assert said in notes, said
    assert "context: the current one is used" in notes  # the file names none


def test_what_is_printed_is_toml() -> None:
    found = read(POD)
    table = editing.cluster_table("lab", "kubernetes", found.cluster, found.notes)
    text = f"{table}\n{editing.job_tables(found.job)}"
    parsed = tomllib.loads(text)
    assert parsed["clusters"]["lab"]["node_selector"] == {"pool": "gpu"}
    assert parsed["job"]["env"] == {"TORCH_HOME": "/data/models"}


def test_a_job_has_its_pod_inside() -> None:
    template = {"metadata": {"labels": {"user": "me"}}, "spec": SPEC}
    spec = {"backoffLimit": 2, "template": template, "managedBy": "them"}
    found = read({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec})
    assert (found.name, found.cluster["user"]) == ("kubernetes", "me")
    assert "spec.backoffLimit: dray does this itself" in found.notes
    assert any(one.startswith("spec.managedBy: has no counterpart") for one in found.notes)


def test_the_pods_own_identity_comes_before_that_of_variables() -> None:
    context = {"runAsUser": 7, "runAsGroup": 8, "supplementalGroups": [9], "fsGroup": 10}
    found = read({**POD, "spec": {**SPEC, "securityContext": context}})
    assert [found.cluster[key] for key in ("uid", "gid", "groups")] == [7, 8, [9]]
    assert any("fsGroup" in one for one in found.notes)


def test_a_command_that_may_hold_a_secret_is_not_shown() -> None:
    container = {**CONTAINER, "command": ["sh", "-c", "TOKEN=hunter3 python job.py"]}
    found = read({**POD, "spec": {**SPEC, "containers": [container, {"name": "sidecar"}]}})
    assert "hunter3" not in "\n".join(found.notes)
    assert "container sidecar: a job has one container" in found.notes


def test_runai_one_is_read_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runai_one.sh").write_text(SCRIPT)
    found = migration.read(tmp_path / "runai_one.sh")
    assert list(tmp_path.iterdir()) == [tmp_path / "runai_one.sh"]
    assert (found.name, found.kind) == ("lab", "kubernetes")
    assert found.cluster == {
        "namespace": "runai-lab",
        "volumes": ["pvc:runai-pv-data1:/data1", "pvc:runai-pv-data2:/data2"],
        "image": "registry.example.org/lab/ml:cuda10",
        "user": "lis",
        "uid": 142034,
    }
    assert found.job == {"job.env": {"TORCH_HOME": "/data2/models"}, "job.resources.cpus": 4}
    notes = "\n".join(found.notes)
    assert "hunter2" not in notes
    for said in ("--gpu $2", "--node-pools big", "--large-shm", "cd /data/home/lis && $3"):
        assert said in notes, said


def test_words_that_no_shell_would_take_are_told() -> None:
    text = Text("one.sh", "runai submit x -i 'image\n")
    assert runai.recognises(text)
    with pytest.raises(ConfigError, match=r"No closing quotation in the words of runai submit"):
        runai.read(text, {})


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "content",
    [
        '{"apiVersion": "v1",\n"kind": "Pod"\n, "x": ' + DEEP,
        '{"apiVersion": "v1",\n"kind": "Pod"\n',
        '{"apiVersion": "v1", "items": [\n"kind": "Pod",\n]}',
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pod.json"
    path.write_text(content)
    with pytest.raises((ConfigError, UsageError)):
        migration.read(path)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted({*SPEC, *CONTAINER, *pods.FIELDS, "securityContext"})), value=ANY)
def test_a_pod_of_any_shape_is_read(key: str, value: object) -> None:
    """Whatever stands where something is expected, settings stay such that they can be read."""
    container = {**CONTAINER, key: value}
    found = read({**POD, "spec": {**SPEC, key: value, "containers": [container]}})
    text = editing.cluster_table("lab", "kubernetes", found.cluster, found.notes)
    tomllib.loads(f"{text}\n{editing.job_tables(found.job)}")


@pytest.mark.parametrize("digits", ["²", "1" * 5000])
def test_a_number_in_other_digits_is_none(digits: str) -> None:
    env = [{"name": "CLUSTER_USER_ID", "value": digits}]
    found = read({**POD, "spec": {"containers": [{**CONTAINER, "env": env}]}})
    assert "uid" not in found.cluster
    script = Text("x.sh", f"runai submit --run-as-uid {digits}\n")
    assert "uid" not in runai.read(script, {}).cluster


ENDLESS = {
    "empty lines": "apiVersion: v1\n" + "\n" * 200_000,
    "many objects": '{"apiVersion": 1,\n"kind": "Pod"\n}' + "{}" * 100_000,
    "many words": "runai submit " + "a " * 120_000,
}


@pytest.mark.hostile
@pytest.mark.parametrize("content", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_long_file_is_read_in_one_go(tmp_path: Path, content: str) -> None:
    """Reading each part anew from the beginning would take hours."""
    path = tmp_path / "pod"
    path.write_text(content)
    program = "import sys, pathlib, dray.config.migration as m; m.read(pathlib.Path(sys.argv[1]))"
    words = [sys.executable, "-c", program, str(path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0 or "UsageError" in ended.stderr
