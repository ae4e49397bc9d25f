"""A job is there once, whatever happens on the way to Kubernetes, and whoever asks twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.kube import names
from dray.clusters.kube.api import Cluster, Replaces
from dray.errors import Refused
from dray.node.formats.faults import KUBERNETES_MOMENTS
from dray.transport.kube_api import Api
from dray.transport.kubectl import Kubectl
from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.pods import job as described_job
from tests.kubernetes.pods import pod
from tests.kubernetes.training import Admin

pytestmark = pytest.mark.kubernetes

ON = ("--on", "k8s")
COUNTED = "import os; open(os.environ['DRAY_OUTPUTS'] + '/starts', 'a').write('x')"


def killed(dray: Dray, pods: Pods, moment: str, *flags: str, **env: str) -> str:
    """Submit a job, and be killed at this moment; give the job's id."""
    pods.offer(dray)
    dray("doctor", "k8s")
    dray.close_connections()  # on one that stands, the Job is created while the directory is sent
    wait_for(dray.nothing_runs)
    token = dray.home / "killed"
    name = moment.removeprefix("run:")
    words = ("run", *ON, "--name", name, *flags, "--", "python3", "-c", COUNTED)
    ended = dray(*words, check=False, DRAY_FAULT=f"{moment}@{token}", **env)
    assert ended.returncode == -signal.SIGKILL
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    (job,) = (str(row["id"]) for row in rows if row["name"] == name)
    return job


def starts(dray: Dray, job: str) -> str:
    return (dray.job_dir(job) / "outputs/starts").read_text()


def long_since(dray: Dray, job: str) -> None:
    """As if it had been submitted an hour ago: it is not just on its way."""
    moment = time.time() - 3600
    os.utime(dray.job_dir(job) / "scheduler.json", (moment, moment))


def test_every_moment_is_tried() -> None:
    assert KUBERNETES_MOMENTS == ("run:directory-sent", "run:job-created")


def test_killed_before_the_job_is_created(dray: Dray, pods: Pods) -> None:
    job = killed(dray, pods, "run:directory-sent")
    assert dray.show(job)["state"] == "queued"
    assert Admin(pods).listed("jobs", job) == []
    long_since(dray, job)
    shown = dray.show(job)
    assert (shown["state"], shown["attempts"]) == ("lost", [])
    dray("resume", job)
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)
    assert starts(dray, job) == "x"


def test_killed_once_the_job_is_created(dray: Dray, pods: Pods) -> None:
    job = killed(dray, pods, "run:job-created", "--secret", "TOKEN", TOKEN="s3cret")
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)
    assert starts(dray, job) == "x"
    assert len(Admin(pods).listed("jobs", job)) == 1


def test_stopped_before_it_started_and_resumed_at_once(dray: Dray, pods: Pods) -> None:
    """Its Job has the same name as the one that was deleted."""
    pods.offer(dray)
    dray("doctor", "k8s")  # the helper runs
    admin = Admin(pods)
    for node in admin.cluster.nodes:
        admin.cluster.kubectl("cordon", node)
    try:
        job = dray.run(*ON, "--", "python3", "-c", COUNTED)
        first = wait_for(lambda: admin.listed("jobs", job))[0]["metadata"]
        dray("stop", job)
        assert dray.show(job)["state"] == "stopped"
    finally:
        for node in admin.cluster.nodes:
            admin.cluster.kubectl("uncordon", node)
    dray("resume", job)
    second = admin.listed("jobs", job)[0]["metadata"]
    assert (second["name"], second["uid"] != first["uid"]) == (first["name"], True)
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)
    assert starts(dray, job) == "x"


# -- names that are taken -------------------------------------------------------------------------


@pytest.fixture
def api(pods: Pods, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    monkeypatch.setenv("PATH", f"{pods.cluster.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    kubectl = Kubectl(pods.namespace.name, kubeconfig=str(pods.config))
    return Cluster(Api(kubectl, tmp_path / "no-proxy"))


def created(name: str, moment: str) -> dict[str, Any]:
    one = described_job(name, pod("sleep", "600"), suspend=True)
    one["metadata"].update(annotations={names.CREATED: moment}, labels={names.JOB: name})
    return one


def uids(pods: Pods, name: str) -> list[str]:
    found = [one["metadata"] for one in Admin(pods).found("jobs")]
    return [one["uid"] for one in found if one["name"] == name]


def test_an_answer_that_was_lost_is_asked_for_again(api: Cluster, pods: Pods) -> None:
    api.create_jobs([created("again", "1.0")], {"a": b"secret"}, Replaces())
    (first,) = uids(pods, "again")
    api.create_jobs([created("again", "1.0")], {"a": b"secret"}, Replaces())
    assert uids(pods, "again") == [first]
    api.delete_and_wait(f"{api.jobs}/again")


def test_one_that_is_being_deleted_is_waited_for(api: Cluster, pods: Pods) -> None:
    api.create_jobs([created("going", "1.0")], {}, Replaces())
    (first,) = uids(pods, "going")
    finalizers(pods, "going", ["dray.test/held"])
    api.api.delete(f"{api.jobs}/going?propagationPolicy=Background")
    release = threading.Timer(1.0, finalizers, (pods, "going", []))
    release.start()
    api.create_jobs([created("going", "1.0")], {}, Replaces())
    release.join()
    (second,) = uids(pods, "going")
    assert second != first
    api.delete_and_wait(f"{api.jobs}/going")


def finalizers(pods: Pods, name: str, wanted: list[str]) -> None:
    change = json.dumps({"metadata": {"finalizers": wanted}})
    Admin(pods).kubectl("patch", "job", name, "--type=merge", f"--patch={change}")


def test_a_job_of_somebody_else_is_not_touched(api: Cluster, pods: Pods) -> None:
    api.create_jobs([created("taken", "1.0")], {}, Replaces())
    (theirs,) = uids(pods, "taken")
    for replaces in (Replaces(), Replaces(any=True, ended=True)):
        with pytest.raises(Refused, match="another Job has the name taken"):
            api.create_jobs([created("taken", "2.0")], {"a": b"secret"}, replaces)
    assert uids(pods, "taken") == [theirs]
    assert "taken" not in [one["metadata"]["name"] for one in Admin(pods).found("secrets")]
    api.delete_and_wait(f"{api.jobs}/taken")
