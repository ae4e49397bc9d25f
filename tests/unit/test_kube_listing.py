"""Lists of more objects than one answer holds."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dray.clusters.kube import listing
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.situation import KubernetesSituation
from dray.transport.kube_api import Api, Reply
from dray.transport.kubectl import Kubectl

GPU = "nvidia.com/gpu"
PLACE = Place("lab", "/lab/dray", "lena")


def pod(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{number}", "labels": {"user": "ada"}},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {GPU: "1"}}}]},
        "status": {"phase": "Running"},
    }


NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {GPU: "9000"}}}


class Server(Api):
    """An API server with 1,700 pods that have a GPU each, and one node."""

    def __init__(self, **answers: Reply) -> None:
        super().__init__(Kubectl("lab"))
        self.answers = answers  # in the place of its own, by what continues the list
        self.asked: list[str] = []

    def ask(self, method: str, path: str, thing: Any = None, *, accept: str = "") -> Reply:
        del method, thing, accept
        self.asked.append(path)
        place, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        mark = query.get("continue", ["0 /&="])[0]
        if place == "/api/v1/nodes":
            return Reply(200, {"items": [NODE]})
        if mark in self.answers:
            return self.answers[mark]
        start, most = int(mark.split()[0]), int(query["limit"][0])
        more = f"{start + most} /&=" if start + most < 1700 else ""
        pods = [pod(number) for number in range(start, min(start + most, 1700))]
        return Reply(200, {"metadata": {"continue": more}, "items": pods})


def situation(server: Server) -> KubernetesSituation:
    return KubernetesSituation(Cluster(server), {}, PLACE)


def test_a_long_queue_is_read_to_its_end() -> None:
    server = Server()
    view = situation(server).view()
    assert len(view.entries) == len({one.number for one in view.entries}) == 1700
    assert (view.pools[0].total, view.pools[0].free) == (9000, 7300)
    assert view.remarks == ()
    assert all("limit=500" in path for path in server.asked)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(410, {"message": "the provided continue parameter is too old"}),
        Reply(200, {"metadata": {"continue": "x" * 5000}, "items": []}),
    ],
)
def test_what_is_not_listed_is_said(answer: Reply) -> None:
    view = situation(Server(**{"1000 /&=": answer})).view()
    assert len(view.entries) == 1000
    assert view.remarks == (
        "the API server did not list all pods: what is counted is of the first 1,000",
    )


def test_a_list_without_end_is_given_up() -> None:
    again = Reply(200, {"metadata": {"continue": "500 /&="}, "items": [pod(1)]})
    server = Server(**{"500 /&=": again})
    view = situation(server).view()
    assert len(server.asked) == listing.MOST_PAGES + 2
    assert "did not list all pods" in view.remarks[0]
