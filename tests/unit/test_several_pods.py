"""Jobs on several nodes of a Kubernetes cluster: what is asked of it, and what is read from it."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.kube import manifest
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.queue import Row, row_of
from dray.clusters.kubernetes import find_problem, make_plan
from dray.job.model import JobSpec, Resources
from dray.node.attempt.attempt_lock import AttemptLock
from dray.node.attempt.end_requests import EndRequests
from dray.node.formats import files, leases
from dray.node.jobs import trouble
from dray.node.jobs.jobdir import JobDir

WIDE = JobSpec(
    id="walk-7f3k",
    name="walk",
    command=("python", "train.py"),
    launch="srun",
    resources=Resources(nodes=3, gpus=4),
)
PLACE = Place(namespace="lab", root="/home/me/dray", user="me")
SETTINGS = {"volumes": ["pvc:home:/home/me"], "image": "train:1"}


def test_as_many_pods_as_nodes_each_with_its_own_gpus() -> None:
    spec = manifest.job_manifest(WIDE, SETTINGS, PLACE)["spec"]
    assert (spec["parallelism"], spec["completions"]) == (3, 3000)
    assert spec["maxFailedIndexes"] == 3000
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 1}]}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    told = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert told["DRAY_POD_ADDRESS"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert told["DRAY_NODE"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_no_more_completions_than_the_api_takes() -> None:
    huge = replace(WIDE, resources=Resources(nodes=500))
    assert manifest.job_manifest(huge, SETTINGS, PLACE)["spec"]["completions"] == 100_000


def test_the_plan_says_that_pods_are_started_one_by_one() -> None:
    (note,) = make_plan(WIDE, "lab", SETTINGS, PLACE).notes
    assert "one by one" in note
    assert make_plan(WIDE, "lab", SETTINGS, PLACE._replace(scheduler="kai")).notes == (note,)
    assert make_plan(WIDE, "lab", SETTINGS, PLACE._replace(scheduler="kueue")).notes == ()


def test_a_command_that_is_started_once_is_refused() -> None:
    assert find_problem(WIDE, SETTINGS, {}) is None
    problem = find_problem(replace(WIDE, launch="none"), SETTINGS, {})
    assert problem is not None
    assert "other pods" in problem.what


@pytest.mark.parametrize(
    ("pods", "row"),
    [
        (["Running", "Running"], Row("running")),
        (["Running", "Pending"], Row("waiting", "no GPU is free")),
        (["Running", "ContainerCreating"], Row("waiting", "no GPU is free")),
        (["Running", "Terminating"], Row("running")),
        (["Running", "Error"], Row("running")),
        (["Terminating", "Terminating"], Row("ending")),
    ],
)
def test_a_job_runs_once_all_its_pods_do(pods: list[str], row: Row) -> None:
    assert row_of("Running", pods, "no GPU is free") == row


@pytest.fixture
def job_dir(tmp_path: Path) -> JobDir:
    (tmp_path / "jobs/walk-7f3k").mkdir(parents=True)
    return JobDir(str(tmp_path / "jobs/walk-7f3k"))


@pytest.mark.parametrize("leased", [False, True])
def test_one_pod_has_the_lock_and_the_next_gets_it(
    job_dir: JobDir, monkeypatch: pytest.MonkeyPatch, leased: bool
) -> None:
    monkeypatch.setattr(leases, "are_needed", lambda _: leased)
    monkeypatch.setattr(files.Lock, "leased", leased)
    first, second = AttemptLock(job_dir), AttemptLock(job_dir)
    assert first.take_if_free()
    assert not second.take_if_free()
    first.leave()
    assert second.take_if_free()
    second.leave()


def test_a_pod_of_a_node_where_another_waits_does_not_keep_it_out(
    job_dir: JobDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks are seen on one node only, a lease decides: the lock is not kept without it."""
    monkeypatch.setattr(leases, "are_needed", lambda _: True)
    monkeypatch.setattr(files.Lock, "leased", True)
    elsewhere = leases.Lease(job_dir.alive)
    assert elsewhere.take()
    first, second = AttemptLock(job_dir), AttemptLock(job_dir)
    assert not first.take_if_free()
    elsewhere.release()
    assert second.take_if_free()
    second.leave()


def test_a_signal_counts_for_more_than_the_loss_of_another_pod(job_dir: JobDir) -> None:
    """Whoever is told to end itself makes no further attempt, whichever it heard of first."""
    timing: Any = type("Timing", (), {"grace": 5.0})
    attempt: Any = job_dir.attempt(1)
    allotment = type("Allotment", (), {"is_gone": None})
    limit: Any = type("Limit", (), {"allotment": allotment})
    anything: Any = None
    requests = EndRequests(job_dir, attempt, timing, limit, anything)
    requests.by_departure("walk-7f3k-1")
    assert requests.current is not None
    assert (requests.current.outcome, requests.current.cause) == ("interrupted", trouble.LOST)
    requests.by_signal(signal.SIGTERM)
    assert requests.current.cause == "signal"
    requests.by_departure("walk-7f3k-2")
    assert requests.current.cause == "signal"
