"""The names of Jobs: short enough for Kubernetes, and found again."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from dray.clusters.kube.api import Cluster
from dray.clusters.kube.names import job_name, job_of_pod
from dray.clusters.kube.queue import JobState

IDS = ["a-7f3k", "sweep-7f3k.12", "x" * 40 + "-7f3k", "x" * 40 + "-7f3k.9999"]


@pytest.mark.parametrize("job_id", IDS)
@pytest.mark.parametrize("resumed", [0, 1, 99, 9999])
def test_names_fit_hostnames(job_id: str, resumed: int) -> None:
    name = job_name(job_id, resumed)
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert len(f"{name}-99999") <= 63
    assert job_of_pod(f"{name}-0-x7k2p") == name


@pytest.mark.parametrize("job_id", IDS)
def test_the_job_that_was_resumed_last_is_found(job_id: str) -> None:
    there = [JobState(job_name(job_id, resumed), "Failed") for resumed in (0, 2, 10)]
    cluster = Cluster(cast("Any", None))
    assert cluster._names([job_id], there) == {job_id: job_name(job_id, 10)}


def test_jobs_of_an_array_with_a_long_name_are_told_apart() -> None:
    names = {job_name(f"{'x' * 40}-7f3k.{index}") for index in range(1000)}
    assert len(names) == 1000
