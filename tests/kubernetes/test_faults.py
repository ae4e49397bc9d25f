"""What Kubernetes refuses, or ends, is told in words that say what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import JOB, Admin, kill_first_process
from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes

pytestmark = pytest.mark.kubernetes


@pytest.fixture(scope="module")
def space(kubernetes: Kubernetes, rig_folder: Path) -> Iterator[Pods]:
    """A namespace whose rules the tests change; each puts them back."""
    made = kubernetes.namespace()
    yield Pods(kubernetes, made, rig_folder / "k8s")
    kubernetes.remove(made)


def told(dray: Dray, job: str) -> dict[str, Any] | None:
    """What is shown of a job that waits for a reason which is not only that it is new."""
    shown = dray.show(job)
    return shown if shown["reason"] not in ("", "its pod is being made ready") else None


# -- memory ---------------------------------------------------------------------------------------


def test_memory_that_is_used_up_is_named(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    grow = "print('growing', flush=True); x = [bytearray(1 << 20) for _ in range(2000)]"
    job = dray.run("--on", "k8s", "--memory", "128M", "--", "python3", "-c", grow)
    shown = dray.wait(job)
    assert shown["state"] == "failed"
    assert "out of memory" in shown["reason"]
    assert "128.0 MB" in shown["reason"]
    assert len(shown["attempts"]) == 1
    assert dray.log(job) == "growing\n"


# Uses nearly all of the container's memory, and no more.
HOLD = """
import os, time
top = "/sys/fs/cgroup/memory"
def read(name):
    return open(os.path.join(top, name)).read()
limit, held = int(read("memory.limit_in_bytes")), []
while True:
    about = dict(line.split() for line in read("memory.stat").splitlines())
    used = int(read("memory.usage_in_bytes")) - int(about["total_inactive_file"])
    if used > 0.94 * limit:
        break
    held.append(b"x" * (1 << 20))
time.sleep(600)
"""


def test_memory_that_is_used_up_is_named_though_all_were_killed(dray: Dray, pods: Pods) -> None:
    """Where the kernel ends the whole container, the next pod tells what has happened."""
    pods.offer(dray)
    dray.write("hold.py", HOLD)
    job = dray.run("--on", "k8s", "--memory", "128M", "--", "python3", "hold.py")
    beat = dray.job_dir(job) / "attempts/001/heartbeat.json"
    wait_for(lambda: beat.exists() and is_near(*json.loads(beat.read_text())["memory"]), 60)
    kill_first_process(f"{job}-0")
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("failed", 1)
    assert "out of memory, as it seems" in shown["reason"]
    assert "of 128.0 MB" in shown["reason"]


def is_near(used: int, limit: int) -> bool:
    return used > 0.9 * limit


# -- what keeps a job from starting ---------------------------------------------------------------


def test_an_image_that_cannot_be_pulled(dray: Dray, pods: Pods) -> None:
    always = {"containers": [{"name": "job", "imagePullPolicy": "Always"}]}
    pods.offer(dray, patch=json.dumps(always))
    job = dray.run("--on", "k8s", "--image", "registry.local/nothing:1", "--", "true")
    shown = wait_for(lambda: told(dray, job), 60)
    assert shown["state"] == "queued"
    assert "its image cannot be pulled" in shown["reason"]
    assert "registry.local/nothing:1" in shown["reason"]
    assert "its image cannot be pulled" in dray("ps").stdout
    dray("stop", job)
    assert dray.show(job)["state"] == "stopped"


def test_a_node_that_is_not_there(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    job = dray.run("--on", "k8s", "--gpus", "64", "--", "true")
    shown = wait_for(lambda: told(dray, job), 60)
    assert (shown["state"], shown["attempts"]) == ("queued", [])
    assert "no node that it may use is large enough" in shown["reason"]
    dray("stop", job)
    dray("rm", job)
    assert not Admin(pods).listed("jobs", job)


def test_a_claim_that_is_not_there(dray: Dray, pods: Pods) -> None:
    pods.offer(dray, volumes=["pvc:nothing:/home/me/else"])
    refused = dray("run", "--on", "k8s", "--", "true", check=False)
    assert refused.returncode != 0
    assert "its volume is not there" in refused.stderr
    assert '"nothing" not found' in refused.stderr
    assert "Traceback" not in refused.stderr
    diagnosis = dray("doctor", "k8s", check=False)
    assert "there is no claim nothing in this namespace" in diagnosis.stdout


def test_a_quota_that_is_used_up(dray: Dray, space: Pods) -> None:
    admin = Admin(space)
    space.cluster.add_quota(space.namespace, gpu="2")
    space.offer(dray)
    job = dray.run("--on", "k8s", "--gpus", "3", "--", "true")
    shown = wait_for(lambda: told(dray, job), 60)
    assert shown["state"] == "queued"
    assert "the quota is used up" in shown["reason"]
    assert "requests.nvidia.com/gpu=3" in shown["reason"]
    assert "of 2 requests.nvidia.com/gpu" in dray("doctor", "k8s").stdout
    admin.kubectl("delete", "resourcequota", "quota")
    dray("stop", job)


def test_a_quota_without_room_for_the_helper(dray: Dray, space: Pods) -> None:
    admin = Admin(space)
    admin.kubectl("delete", "jobs", "--all")
    space.cluster.add_quota(space.namespace, pods="0")
    space.offer(dray)
    diagnosis = dray("doctor", "k8s", check=False)
    admin.kubectl("delete", "resourcequota", "quota")
    assert diagnosis.returncode != 0
    assert "the helper pod does not start: the quota is used up" in diagnosis.stdout
    assert "Small jobs are submitted all the same" in diagnosis.stdout
    assert dray.wait(dray.run("--on", "k8s", "--", "true"))["state"] == "done"


def test_a_namespace_that_forbids_root(dray: Dray, space: Pods) -> None:
    admin = Admin(space)
    admin.kubectl("delete", "jobs", "--all")
    label = "pod-security.kubernetes.io/enforce"
    name = space.namespace.name
    space.cluster.kubectl("label", "namespace", name, f"{label}=restricted")
    try:
        space.offer(dray)
        refused = dray("run", "--on", "k8s", "--", "true", check=False)
        assert refused.returncode != 0
        assert "set uid for this cluster" in refused.stderr
        only_claims = [f"pvc:{space.namespace.claim}:/home/me"]
        space.offer(dray, uid=1000, gid=1000, root="/home/me/own", volumes=only_claims)
        dray.jobs = space.namespace.volume / "own/jobs"
        job = dray.run("--on", "k8s", "--", "python3", "-c", "import os; print(os.getuid())")
        assert dray.wait(job)["state"] == "done"
        assert dray.log(job) == "1000\n"
    finally:
        space.cluster.kubectl("label", "namespace", name, f"{label}-")


# -- secrets --------------------------------------------------------------------------------------


def test_a_secret_is_an_object_of_the_job_and_goes_with_it(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    admin, value = Admin(pods), "s3cret-7d1f9a"
    code = "import os; print(os.environ['TOKEN'][::-1])"
    command = ("--secret", "TOKEN", "--", "python3", "-c", code)
    shown = dray("plan", "--on", "k8s", *command, TOKEN=value)
    submitted = dray("--verbose", "run", "--on", "k8s", *command, TOKEN=value)
    job = submitted.stdout.strip()
    kept = admin.listed("secrets", job)
    owners = [one["metadata"]["ownerReferences"][0]["name"] for one in kept]
    assert owners == [admin.job_name(job)]
    ended = dray.wait(job)
    assert ended["state"] == "done", (ended["reason"], dray.log(job))
    assert dray.log(job) == value[::-1] + "\n"
    described = json.dumps([admin.listed("jobs", job), admin.listed("pods", job)])
    for text in (shown.stdout, submitted.stderr, described):
        assert value not in text
    for path in (*pods.namespace.volume.rglob("*"), *dray.home.rglob("*")):
        if path.is_file() and not path.is_symlink():
            assert value.encode() not in path.read_bytes(), path
    dray("rm", job)
    wait_for(lambda: not any(admin.listed(kind, job) for kind in ("secrets", "jobs", "pods")), 60)


def there(space: Pods) -> set[str]:
    """The jobs of the namespace, as files and as objects."""
    objects_of = {one["metadata"]["name"] for one in Admin(space).found("jobs", JOB)}
    return objects_of | {one.name for one in (space.namespace.volume / "dray/jobs").glob("[!.]*")}


# -- rights ---------------------------------------------------------------------------------------


@contextmanager
def without(space: Pods, resource: str, verb: str) -> Iterator[None]:
    """Take a right away, for a while."""
    rules = json.loads(json.dumps(objects.RULES))
    split: list[dict[str, Any]] = []
    for rule in rules:
        for one in rule["resources"]:
            verbs = [v for v in rule["verbs"] if (one, v) != (resource, verb)]
            split.append({**rule, "resources": [one], "verbs": verbs})
    admin = Admin(space)
    admin.kubectl("patch", "role", objects.USER, f"--patch={json.dumps({'rules': split})}")
    try:
        yield
    finally:
        admin.kubectl("patch", "role", objects.USER, f"--patch={json.dumps({'rules': rules})}")


@pytest.mark.parametrize(
    ("resource", "verb"), [("pods/exec", "create"), ("jobs", "create"), ("pods", "list")]
)
def test_a_right_that_is_missing_is_named(
    dray: Dray, space: Pods, resource: str, verb: str
) -> None:
    space.offer(dray)
    before = there(space)
    with without(space, resource, verb):
        diagnosis = dray("doctor", "k8s", check=False)
        assert f"{resource}: you may not {verb};" in diagnosis.stdout
        assert diagnosis.returncode != 0
        refused = dray("run", "--on", "k8s", "--", "true", check=False)
        assert refused.returncode != 0
        assert "Traceback" not in refused.stderr
        assert resource in refused.stderr
        assert "doctor" in refused.stderr or "ask its admins" in refused.stderr
    assert there(space) == before
