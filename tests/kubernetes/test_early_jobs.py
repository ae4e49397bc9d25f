"""On an open connection the Job is created while the directory is on its way: still once, and still
nothing is left of what was refused."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import JOB, Admin
from tests.rigs.kubernetes.cluster import Kubernetes

pytestmark = pytest.mark.kubernetes

ON = ("--on", "k8s")
COUNTED = "import os; open(os.environ['DRAY_OUTPUTS'] + '/starts', 'a').write('x')"
RUN = ("run", *ON, "--", "python3", "-c", COUNTED)
CREATED, SENT = "POST /apis/batch/v1", "to submit on the standing connection"


@pytest.fixture(scope="module")
def space(kubernetes: Kubernetes, rig_folder: Path) -> Iterator[Pods]:
    """A namespace with a helper, which these tests have for themselves."""
    made = kubernetes.namespace()
    yield Pods(kubernetes, made, rig_folder / "k8s")
    kubernetes.remove(made)


@pytest.fixture
def open_pods(dray: Dray, space: Pods) -> Pods:
    """That namespace, to which a connection stands."""
    space.offer(dray)
    dray.write("train.py", "print('hello')")
    job = dray.run(*ON, "--", "true")
    dray.wait(job)
    wait_for(lambda: "on the standing connection" in dray("--verbose", "logs", job).stderr)
    return space


def jobs_of(pods: Pods) -> list[str]:
    """The names of all Jobs but the helper's."""
    text = Admin(pods).kubectl("get", "jobs", f"--selector={JOB}", "--output=name")
    return text.split()


def ends_once(dray: Dray, job: str) -> None:
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)
    assert (dray.job_dir(job) / "outputs/starts").read_text() == "x"


def test_both_are_on_their_way_at_the_same_time(dray: Dray, open_pods: Pods) -> None:
    dray.write("train.py", "print('changed')")
    submitted = dray("--verbose", *RUN)
    told = [line for line in submitted.stderr.splitlines() if CREATED in line or SENT in line]
    assert [CREATED in line for line in told] == [True, False]
    ends_once(dray, submitted.stdout.strip())


def test_a_refused_job_leaves_no_directory(dray: Dray, open_pods: Pods) -> None:
    before = {*dray.jobs.iterdir()}
    used = len(jobs_of(open_pods)) + 1
    open_pods.cluster.add_quota(open_pods.namespace, **{"count/jobs.batch": str(used)})
    refused = dray(*RUN, check=False)
    Admin(open_pods).kubectl("delete", "resourcequota", "quota")
    assert "exceeded quota" in refused.stderr
    assert {*dray.jobs.iterdir()} == before
    assert "queued" not in dray("ps").stdout


def test_a_refused_directory_leaves_no_job(dray: Dray, open_pods: Pods) -> None:
    before = jobs_of(open_pods)
    away = dray.jobs.with_name("away")
    dray.jobs.rename(away)
    dray.jobs.write_text("not a folder")
    refused = dray("--verbose", *RUN, check=False)
    assert refused.returncode != 0
    assert CREATED in refused.stderr  # it had been there
    dray.jobs.unlink()
    away.rename(dray.jobs)
    assert jobs_of(open_pods) == before
    assert "queued" not in dray("ps").stdout


def test_no_job_waits_while_code_is_sent_again(dray: Dray, open_pods: Pods) -> None:
    """The laptop remembers what it has sent; somebody has cleared it away there."""
    for name in ("packs", "snapshots"):
        shutil.rmtree(dray.jobs.with_name(name), ignore_errors=True)
    dray.write("train.py", "print('changed')")
    submitted = dray("--verbose", *RUN)
    deleted = [line for line in submitted.stderr.splitlines() if "DELETE /apis/batch" in line]
    assert len(deleted) == 1
    ends_once(dray, submitted.stdout.strip())


def test_a_pod_waits_for_its_directory(dray: Dray, open_pods: Pods) -> None:
    admin = Admin(open_pods)
    for node in admin.cluster.nodes:
        admin.cluster.kubectl("cordon", node)
    try:
        job = dray.run(*RUN[1:])
        folder = dray.job_dir(job)
        away = folder.parents[1] / "on-its-way"
        folder.rename(away)
    finally:
        for node in admin.cluster.nodes:
            admin.cluster.kubectl("uncordon", node)
    pod = wait_for(lambda: admin.running(job), 60)
    time.sleep(3)  # it has looked by then
    assert not folder.exists()
    away.rename(folder)
    ends_once(dray, job)
    assert [one["metadata"]["name"] for one in admin.listed("pods", job)] == [
        pod["metadata"]["name"]
    ]
