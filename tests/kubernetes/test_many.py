"""Many jobs in one look, of which some wait, some run and some have ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.kube import listing
from dray.clusters.kube.looking import NAMED
from dray.transport.kube_api import Api
from dray.transport.kubectl import Kubectl
from tests.conftest import Dray, Pods, wait_for
from tests.integration.test_arrays import run_many
from tests.kubernetes.training import Admin
from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes

pytestmark = pytest.mark.kubernetes


def test_each_is_told_as_it_is(dray: Dray, pods: Pods) -> None:
    pods.offer(dray)
    ended = dray.run("--on", "k8s", "--", "true")
    dray.wait(ended)
    sleep = ["python3", "-c", "import time; time.sleep(600)"]
    ids = run_many(dray, [sleep] * (NAMED + 5), on="k8s", gpus=4)  # a whole node each
    wanted = {"running": 2, "queued": len(ids) - 2}
    wait_for(lambda: Counter(states(dray, ids).values()) == wanted, 100)
    told = states(dray, ids)
    waiting = next(one for one in ids if told[one] == "queued")
    assert "no GPU is free" in dray.show(waiting)["reason"]
    dray("stop", *ids)
    wait_for(lambda: set(states(dray, ids).values()) == {"stopped"}, 100)
    assert states(dray, [ended]) == {ended: "done"}


@pytest.fixture
def space(kubernetes: Kubernetes, rig_folder: Path) -> Iterator[Pods]:
    made = kubernetes.namespace()
    yield Pods(kubernetes, made, rig_folder / "k8s")
    kubernetes.remove(made)


def test_all_are_taken_or_none(dray: Dray, space: Pods) -> None:
    """Those that a quota has room for would run, while their submission is told as refused."""
    space.offer(dray)
    dray("rm", dray.wait(dray.run("--on", "k8s", "--", "true"))["id"])
    space.cluster.add_quota(space.namespace, **{"count/jobs.batch": "4"})  # the helper is one
    with pytest.raises(AssertionError, match="exceeded quota"):
        run_many(dray, [["true"]] * 12, on="k8s")
    admin = Admin(space)
    wait_for(lambda: not admin.found("jobs", "dray/job"), 60)
    assert json.loads(dray("ps", "--all", "--json").stdout) == []


def test_a_list_is_read_page_by_page(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the API server's own marks, whichever way it is asked."""
    monkeypatch.setattr(listing, "PAGE", 3)
    monkeypatch.setenv("PATH", str(pods.cluster.bin), prepend=":")
    space = pods.namespace.name
    made = {f"page-{number}" for number in range(8)}
    pods.cluster.create(*(objects.made("v1", "ConfigMap", one, space) for one in made))
    api = Api(Kubectl(space, kubeconfig=str(pods.config)))

    def name(one: Mapping[str, Any]) -> str:
        return str(one["metadata"]["name"])

    listed = listing.read(api, f"/api/v1/namespaces/{space}/configmaps", name)
    assert (listed.ok, listed.is_whole) == (True, True)
    assert made <= set(listed.things)
    assert len(set(listed.things)) == len(listed.things)
    elsewhere = listing.read(api, "/api/v1/namespaces/default/configmaps", name)
    assert (elsewhere.ok, elsewhere.things) == (False, [])


def states(dray: Dray, ids: list[str]) -> dict[str, str]:
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    return {row["id"]: row["state"] for row in rows if row["id"] in ids}
