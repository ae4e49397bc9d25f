"""A namespace whose quota has no room for the helper: jobs bring their submission along."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import Admin
from tests.rigs.kubernetes.cluster import Kubernetes

pytestmark = pytest.mark.kubernetes

ON = ("--on", "k8s")
PYTHON = "registry.local/python:1"  # has one; the others get theirs from a helper
COUNTED = "import os; open(os.environ['DRAY_OUTPUTS'] + '/starts', 'a').write('x')"


@pytest.fixture
def space(kubernetes: Kubernetes, rig_folder: Path) -> Iterator[Pods]:
    made = kubernetes.namespace()
    yield Pods(kubernetes, made, rig_folder / "k8s")
    kubernetes.remove(made)


@contextmanager
def quota(space: Pods, **hard: str) -> Iterator[None]:
    space.cluster.add_quota(space.namespace, **hard)
    try:
        yield
    finally:
        Admin(space).kubectl("delete", "resourcequota", "quota")


def helpers(space: Pods) -> list[str]:
    """The pods that no job has."""
    text = Admin(space).kubectl("get", "pods", "--selector=!dray/job", "--output=json")
    return [one["metadata"]["name"] for one in json.loads(text)["items"]]


def test_a_job_brings_its_submission_along(dray: Dray, space: Pods) -> None:
    """From an empty volume, with the image's own Python, while the only pod is the job's."""
    space.offer(dray, image=PYTHON)
    admin = Admin(space)
    dray.write("train.py", f"print('mine', flush=True)\n{COUNTED}\n")
    go = dray.home / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)\n"
    dray.write("train.py", wait + "print('mine', os.environ['TOKEN'])\n" + COUNTED)
    with quota(space, pods="0"):
        job = dray.run(*ON, "--secret", "TOKEN", "--", "python3", "train.py", TOKEN="t0p")
        shown = wait_for(lambda: waits_for_room(dray, job), 60)
        assert "pods=1" in shown
        assert "the quota is used up" in dray("ps").stdout
        assert not dray.job_dir(job).exists()
    go.touch()
    ended = dray.wait(job)
    assert (ended["state"], len(ended["attempts"])) == ("done", 1)
    assert ended["command"] == ["python3", "train.py"]
    assert dray.log(job) == "mine t0p\n"
    assert (dray.job_dir(job) / "outputs/starts").read_text() == "x"
    (only,) = admin.listed("secrets", job)
    dray("rm", job)
    wait_for(lambda: not admin.listed("secrets,jobs,pods", job), 60)
    assert not dray.job_dir(job).exists()
    assert only["metadata"]["ownerReferences"]


def waits_for_room(dray: Dray, job: str) -> str:
    shown = dray.show(job)
    assert shown["state"] == "queued"
    return str(shown["reason"]) if "the quota is used up" in shown["reason"] else ""


def test_the_python_of_an_earlier_helper_serves(dray: Dray, space: Pods) -> None:
    """An image without Python: a helper was there once, and left one on the volume."""
    space.offer(dray)
    first = dray.run(*ON, "--", "sh", "-c", "cat code.txt")
    dray.wait(first)
    dray.write("code.txt", "mine\n")
    Admin(space).kubectl("delete", "jobs", "--all", "--wait=true")
    wait_for(lambda: not helpers(space), 60)
    with quota(space, **{"requests.cpu": "50m", "requests.memory": "1G", "limits.memory": "1G"}):
        patch = {"containers": [{"name": "job", "imagePullPolicy": "Never", "resources": {
            "requests": {"cpu": "10m"}}}]}  # fmt: skip
        space.offer(dray, image="registry.local/busybox:1", patch=json.dumps(patch))
        job = dray.run(*ON, "--memory", "64M", "--", "sh", "-c", "cat code.txt")
        wait_for(lambda: (dray.job_dir(job) / "end.json").exists(), 60)
    shown = dray.wait(job)
    assert (shown["state"], shown["reason"]) == ("done", "")
    assert dray.log(job) == "mine\n"


def test_an_image_without_python_on_an_empty_volume(dray: Dray, space: Pods) -> None:
    space.offer(dray, image="registry.local/busybox:1")
    with quota(space, pods="0"):
        job = dray.run(*ON, "--", "true")
    shown = dray.wait(job)
    assert (shown["state"], shown["attempts"]) == ("failed", [])
    assert "its image has no python3, and no helper had room" in shown["reason"]
    dray("rm", job)
    assert not Admin(space).listed("jobs", job)


def test_more_than_a_secret_can_hold(dray: Dray, space: Pods) -> None:
    (dray.project / "weights.bin").write_bytes(os.urandom(2_000_000))
    space.offer(dray, image=PYTHON)
    with quota(space, pods="0"):
        refused = dray("run", *ON, "--", "true", check=False)
        rows = json.loads(dray("ps", "--all", "--json").stdout)
    assert refused.returncode != 0
    assert "the quota is used up" in refused.stderr
    assert "Without it a job can bring 700 KB along, and this one has 1.9 MB" in refused.stderr
    assert "Free room in the quota" in refused.stderr
    assert rows == []
    assert Admin(space).kubectl("get", "jobs,secrets", "--selector=dray/job", "-o", "name") == ""


def test_it_is_stopped_before_it_started(dray: Dray, space: Pods) -> None:
    space.offer(dray, image=PYTHON)
    with quota(space, pods="0"):
        job = dray.run(*ON, "--", "sleep", "600")
        wait_for(lambda: waits_for_room(dray, job), 60)
        dray("stop", job)
        (row,) = json.loads(dray("ps", "--all", "--json").stdout)
        assert row["state"] == "stopped"
        wait_for(lambda: not Admin(space).listed("jobs,secrets", job), 60)
    assert dray.show(job)["state"] == "stopped"


def test_killed_once_the_job_is_created(dray: Dray, space: Pods) -> None:
    """The laptop does not know that the Job is there: it is found again, and runs once."""
    space.offer(dray, image=PYTHON)
    with quota(space, pods="0"):
        words = ("run", *ON, "--", "python3", "-c", COUNTED)
        token = dray.home / "killed"
        dray(*words, check=False, DRAY_FAULT=f"run:job-created@{token}")
        (row,) = json.loads(dray("ps", "--all", "--json").stdout)
    assert token.exists()
    shown = dray.wait(row["id"])
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)
    assert (dray.job_dir(row["id"]) / "outputs/starts").read_text() == "x"


def test_a_pod_that_takes_over_does_not_start_anew(dray: Dray, space: Pods) -> None:
    space.offer(dray, image=PYTHON)
    admin = Admin(space)
    count = f"{COUNTED}; import time; time.sleep(600 if os.environ['DRAY_ATTEMPT'] == '1' else 0)"
    with quota(space, pods="0"):
        job = dray.run(*ON, "--", "python3", "-c", count)
    starts = dray.job_dir(job) / "outputs/starts"
    wait_for(starts.exists, 60)
    pod = wait_for(lambda: admin.running(job))
    admin.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    shown = dray.wait(job)
    assert [one["outcome"] for one in shown["attempts"]] == ["interrupted", "done"]
    assert starts.read_text() == "xx"
