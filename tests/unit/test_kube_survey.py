"""A look at thousands of jobs: it says which wait, and why, and nothing of those that do more."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dray.clusters.kube import queue
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.queue import Row
from dray.transport.kube_api import Api, Reply
from dray.transport.kubectl import Kubectl

PLACE = Place("lab", "/lab/dray", "lena", "default", "")


def table(*rows: tuple[str, str]) -> dict[str, Any]:
    titles = [{"name": "Name"}, {"name": "Status"}]
    return {
        "kind": "Table",
        "columnDefinitions": titles,
        "rows": [{"cells": list(row)} for row in rows],
    }


def pod(name: str, message: str) -> dict[str, Any]:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": message}
    return {"metadata": {"name": name}, "status": {"conditions": [unscheduled]}}


class Server(Api):
    """An API server with five Jobs: two wait, one of them without a pod, one runs, one has a pod
    that failed and another that waits, and one has ended."""

    def __init__(self) -> None:
        super().__init__(Kubectl("lab"))
        self.asked: list[str] = []

    def ask(self, method: str, path: str, thing: Any = None, *, accept: str = "") -> Reply:
        del thing, accept
        assert method == "GET"
        self.asked.append(path)
        if "/jobs?" in path:
            names = ("waits-2345", "refused-2345", "runs-2345", "again-2345")
            rows = [(name, "Running") for name in names]
            return Reply(200, table(*rows, ("ended-2345", "Complete")))
        if "status.phase!%3DPending" in path:
            return Reply(
                200, table(("runs-2345-0-abcde", "Running"), ("again-2345-0-abcde", "Error"))
            )
        if "status.phase%3DPending" in path:
            waits = pod("waits-2345-0-abcde", "0/2 nodes are available: 2 Insufficient memory.")
            return Reply(200, {"items": [waits, pod("again-2345-1-abcde", "")]})
        if "/events?" in path:
            about = {"name": "refused-2345"}
            said = "pods is forbidden: exceeded quota: lab"
            event = {"reason": "FailedCreate", "involvedObject": about, "message": said}
            return Reply(200, {"items": [event]})
        if "/pods?" in path:
            return Reply(200, table(("runs-2345-0-abcde", "Running")))
        raise AssertionError(path)


def test_a_survey_tells_of_those_that_have_not_started() -> None:
    server = Server()
    names = ("waits", "refused", "runs", "again", "ended", "gone")
    ids = [f"{name}-2345" for name in names]
    seen = Cluster(server).survey(PLACE, ids)
    assert set(seen.rows) == {"waits-2345", "refused-2345"}
    assert seen.rows["waits-2345"].why.startswith("no node has enough free memory")
    assert seen.rows["refused-2345"].why.startswith("the quota is used up")
    assert {row.state for row in seen.rows.values()} == {Row("waiting").state}
    assert set(seen.named) == set(ids) - {"gone-2345"}


def test_a_survey_is_one_question_of_each_kind() -> None:
    """However many jobs there are, and whatever becomes of them."""
    server = Server()
    Cluster(server).survey(PLACE, [f"job-{number}" for number in range(5000)])
    assert len(server.asked) == 4


class Crowd(Server):
    """An API server with thousands of Jobs that wait, and that lists twenty of their pods: those of
    the first in the order of their names. ``refused``: which Jobs have none."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self.jobs = sorted(f"many-2345--{number}" for number in range(3000))
        self.pods = [f"{name}-0-abcde" for name in self.jobs]
        for number in refused:
            self.pods.remove(f"many-2345--{number}-0-abcde")

    def ask(self, method: str, path: str, thing: Any = None, *, accept: str = "") -> Reply:
        labels = parse_qs(urlsplit(path).query).get("labelSelector", [""])[0].split(",")
        helper = [] if "dray/job" in labels else ["dray-agent-0123456789"]
        if "/jobs?" in path:
            answer = table(*((name, "Running") for name in [*helper, *self.jobs]))
        elif "status.phase!%3DPending" in path:
            answer = table()
        elif "status.phase%3DPending" in path:
            first = [
                pod(name, "0/2 nodes are available: 2 Insufficient cpu.") for name in self.pods
            ]
            answer = {"metadata": {"continue": "more"}, "items": first[:20]}
        else:
            return super().ask(method, path, thing, accept=accept)
        self.asked.append(path)
        return Reply(200, answer)


IDS = [f"many-2345.{number}" for number in range(3000)]


def test_the_events_of_thousands_are_left_alone_while_all_have_pods() -> None:
    server = Crowd()
    seen = Cluster(server).survey(PLACE, IDS)
    assert len(seen.rows) == 3000
    assert [path for path in server.asked if "/events?" in path] == []
    assert len([one for one in seen.rows.values() if one.why]) == 20


def test_they_are_read_where_one_of_the_first_has_no_pod() -> None:
    server = Crowd(1000)
    Cluster(server).survey(PLACE, IDS)
    assert [path for path in server.asked if "/events?" in path] != []


def test_only_what_is_asked_about_again_is_taken_from_the_servers_memory() -> None:
    """It may be behind: a job would be taken for lost that was created a moment ago."""
    server = Server()
    Cluster(server).look(PLACE, [f"job-{number}" for number in range(100)])
    assert server.asked
    assert [path for path in server.asked if "resourceVersion" in path] == []


NODES = "0/2 nodes are available: "
FULL = f"{NODES}2 Insufficient nvidia.com/gpu. preemption: {NODES}"
TAINTED = f"{NODES}2 node(s) had untolerated taint(s). preemption: {NODES}"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (f"{FULL}2 {NOT_HELPFUL}.", queue.TOO_LARGE),
        (f"{FULL}2 {NO_VICTIMS}.", "no GPU is free"),
        (f"{FULL}1 {NO_VICTIMS}, 1 {NOT_HELPFUL}.", "no GPU is free"),
        (f"{FULL}1 {NOT_HELPFUL}, 1 {NO_VICTIMS}.", "no GPU is free"),
        (f"{TAINTED}2 {NOT_HELPFUL}.", "nodes are reserved for others (taints)"),
    ],
)
def test_what_no_node_can_ever_give_is_told_from_what_is_in_use(said: str, words: str) -> None:
    assert queue.scheduling_reason(said) == f"{words} (Kubernetes says: {said})"
