"""Many jobs in one look, of which some wait, some run and some have ended."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from dray.clusters.kube.api import NAMED
from tests.conftest import Dray, Pods, wait_for
from tests.integration.test_arrays import run_many

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


def states(dray: Dray, ids: list[str]) -> dict[str, str]:
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    return {row["id"]: row["state"] for row in rows if row["id"] in ids}
