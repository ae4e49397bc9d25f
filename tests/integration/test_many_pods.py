"""The state of many jobs of Kubernetes is asked of the agent and of the API server at once: what
both say is put together as if one had been asked after the other. The agent is the real one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.kube.looking import NAMED, Look
from dray.clusters.kube.queue import Row
from dray.clusters.kubernetes import KubernetesCluster, description
from dray.job.model import JobSpec, JobState
from dray.node.formats import files
from dray.node.jobs.arrays import ArrayDir
from dray.transport.channel import Here
from dray.transport.link import AgentLink

ARRAY = "sweep-7f3k"
IDS = [f"{ARRAY}.{index}" for index in range(NAMED + 5)]
SETTINGS = {"volumes": ["pvc:home:/home/me"], "image": "image:1", "namespace": "lab"}
WAITS = Row("waiting", "no GPU is free")


class Told:
    """An API server that says this of jobs."""

    namespace = "lab"

    def __init__(self) -> None:
        self.rows = dict.fromkeys(IDS, WAITS)
        self.surveys = 0
        self.looks: list[list[str]] = []  # of which jobs

    def survey(self, _: object, __: Sequence[str]) -> Look:
        self.surveys += 1
        waiting = {one: row for one, row in self.rows.items() if row.state == "waiting"}
        return Look(waiting, {}, {}, {})

    def look(self, _: object, ids: Sequence[str]) -> Look:
        self.looks.append(list(ids))
        return Look({one: self.rows[one] for one in ids if one in self.rows}, {}, {}, {})

    def delete_jobs(self, _: object, ids: Sequence[str]) -> None:
        assert not ids

    delete_pods = delete_jobs


class Near(KubernetesCluster):
    """Its agent is on this machine."""

    asked: int = 0

    def make_link(self) -> AgentLink:
        super().make_link()
        return AgentLink(Here(), str(self.near), sys.executable, self.kind, on_answer=self._count)

    def _count(self) -> None:
        self.asked += 1

    @property
    def near(self) -> Path:
        return Path(self.settings["near"])

    @cached_property
    def kube(self) -> Any:
        return Told()


@pytest.fixture
def cluster(tmp_path: Path) -> Near:
    near = Near("k8s", {**SETTINGS, "near": str(tmp_path / "root")}, tmp_path, tmp_path / "cache")
    near.agent.ask("ids")  # the root is there
    near.asked = 0
    return near


def submit(cluster: Near) -> ArrayDir:
    array = ArrayDir(str(cluster.near), ARRAY)
    files.make_folder(array.path)
    commands = [["true"]] * len(IDS)
    common = description(JobSpec(id=ARRAY, name="sweep", command=("true",), created=1000.0))
    files.write_json(array.job, {**common, "commands": commands})
    return array


def test_those_that_only_wait_take_one_question(cluster: Near) -> None:
    submit(cluster)
    found = cluster.queue.status(IDS, brief=True)
    assert (found.jobs, found.waiting) == ({}, dict.fromkeys(IDS, WAITS.why))
    assert (cluster.asked, cluster.kube.surveys, cluster.kube.looks) == (1, 1, [])


def test_all_others_are_asked_about_again(cluster: Near) -> None:
    runs, begun, gone, *wait = IDS
    array = submit(cluster)
    for index, attempts in ((0, 1), (1, 1)):
        job_dir = array.make_job(index)
        files.make_folder(f"{job_dir.path}/attempts/{attempts:03d}")
    cluster.kube.rows[runs] = Row("running")
    cluster.kube.rows[begun] = WAITS  # its pod was taken away: it waits for another
    del cluster.kube.rows[gone]
    found = cluster.queue.status(IDS, brief=True)
    assert found.waiting == dict.fromkeys(wait, WAITS.why)
    assert set(found.jobs) == {runs, begun, gone}
    assert found.jobs[runs].state is JobState.RUNNING
    assert found.jobs[begun].state is JobState.QUEUED
    assert (cluster.asked, cluster.kube.surveys) == (2, 1)
    assert cluster.kube.looks == [[runs, begun, gone]]
