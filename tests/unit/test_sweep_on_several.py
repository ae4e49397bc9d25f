"""A sweep over several clusters, which are only in memory."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from dray.errors import ClusterError, UsageError
from dray.launcher import Launcher
from dray.launcher.sweep_dealing import evenly, names_in
from dray.launcher.sweep_exchange import others_of
from dray.sweep.space import from_flag, whole
from dray.sweep.study import Study, Trial
from dray.testing import FakeCluster, Trouble, launcher
from tests.unit.test_sweeping import begin

TRAIN = ["python", "train.py"]
STUDY = Study(id="", space=whole([from_flag("lr=1e-5..1e-1:log"), from_flag("--act=a,b")]), seed=3)


class Pair:
    """Two clusters, and the verbs over them."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two = FakeCluster("one", array_size=4), FakeCluster("two")
        self.said: list[str] = []
        self.verbs: Launcher = launcher(folder, self.one, self.two, say=self.said.append)
        config = self.verbs.context.config
        self.verbs.context.config = config._replace(job={"job.on": "one,two"})
        self.sweeping = self.verbs.sweeping

    def start(self, trials: int = 5, **study: Any) -> str:
        return self.sweeping.start(STUDY._replace(**study), TRAIN, trials, snapshot=False)

    def told(self, cluster: FakeCluster, sweep: str) -> dict[str, Any]:
        found: dict[str, Any] = cluster.sweeps[sweep]["told"]
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def numbers(pair: Pair, sweep: str) -> dict[str, list[int]]:
    trials = pair.sweeping.look(sweep).trials
    return {name: [one.number for one in trials if one.cluster == name] for name in ("one", "two")}


def test_configurations_are_dealt_out_in_blocks(pair: Pair) -> None:
    sweep = pair.start(trials=5, repeats=3)
    assert numbers(pair, sweep) == {"one": list(range(9)), "two": list(range(9, 15))}
    assert [part["first"] for part in pair.two.sweeps[sweep]["parts"]] == [9]
    assert pair.one.sweeps[sweep]["study"] == pair.two.sweeps[sweep]["study"]
    assert pair.sweeping.sizes_of(sweep) == {"one": 9, "two": 6}
    assert pair.sweeping.known()[0].where == "one,two"
    assert pair.sweeping.add(sweep, 2) == 6
    found = numbers(pair, sweep)
    assert sorted(found["one"] + found["two"]) == list(range(21))
    assert len(set(pair.one.jobs) | set(pair.two.jobs)) == 21, "every job has an id of its own"


def test_fewer_configurations_than_clusters(pair: Pair) -> None:
    sweep = pair.start(trials=1)
    assert numbers(pair, sweep) == {"one": [0], "two": []}
    assert sweep not in pair.two.sweeps


def test_what_a_trial_has_reached_is_carried_to_the_other_cluster(pair: Pair) -> None:
    sweep = pair.start(trials=4)
    begin(pair.two, sweep, 2, f"{sweep}-2.0")
    pair.two.end(f"{sweep}-2.0", "done")
    pair.two.sweeps[sweep]["results"]["2"] = {"state": "done", "value": 7.0, "step": 9}
    pair.sweeping.look(sweep)
    told = pair.told(pair.one, sweep)
    assert told["trials"] == {"2": {"values": {"lr": 1e-3, "--act": "a"}, "by": "two"}}
    job = f"{sweep}-2.0"
    assert told["results"] == {
        "2": {"job": job, "state": "done", "rungs": {}, "value": 7.0, "step": 9}
    }
    assert pair.told(pair.two, sweep)["results"] == {}
    # What is known already is not told again.
    before = pair.one.asked.count("sweep-others")
    pair.sweeping.look(sweep)
    assert pair.one.asked.count("sweep-others") == before


def test_a_cluster_speaks_for_its_own_trials_alone(pair: Pair) -> None:
    sweep = pair.start(trials=4)
    two = pair.two.sweeps[sweep]
    two["parts"].append({"id": sweep, "first": 0, "count": 2, "at_once": None})
    two["trials"]["0"] = {"values": {"lr": 1e-2, "--act": "b"}, "by": "tpe"}
    two["results"]["0"] = {"state": "done", "value": 1e9}
    found = pair.sweeping.look(sweep)
    assert [(one.number, one.cluster, one.value) for one in found.trials] == [
        (0, "one", None), (1, "one", None), (2, "two", None), (3, "two", None),
    ]  # fmt: skip
    assert pair.told(pair.one, sweep)["results"] == {}


def test_one_that_does_not_answer_hides_no_other(pair: Pair) -> None:
    sweep = pair.start(trials=4)
    begin(pair.two, sweep, 2, f"{sweep}-2.0")
    pair.two.sweeps[sweep]["results"]["2"] = {"state": "running", "rungs": {"5": 1.5}}
    pair.sweeping.look(sweep)
    one = pair.one.sweeps[sweep]
    for kind in ("trials", "results"):  # as the node does with what it is told
        one[kind].update(one["told"][kind])
    pair.two.break_next("sweep", Trouble.FAIL)
    found = pair.sweeping.look(sweep)
    assert list(found.problems) == ["two"]
    assert [(one.state, dict(one.rungs)) for one in found.trials] == [
        ("queued", {}), ("queued", {}), ("running", {5: 1.5}), ("queued", {}),
    ]  # fmt: skip
    pair.two.break_next("sweep", Trouble.FAIL)
    with pytest.raises(ClusterError, match="two, which has trials of"):
        pair.sweeping.add(sweep, 1)
    pair.one.break_next("sweep", Trouble.FAIL)
    pair.two.break_next("sweep", Trouble.FAIL)
    with pytest.raises(ClusterError, match="no connection"):
        pair.sweeping.look(sweep)


def test_a_sweep_is_stopped_on_all_clusters(pair: Pair) -> None:
    sweep = pair.start(trials=4)
    assert pair.sweeping.stop(sweep, now=True) == 4
    assert pair.sweeping.look(sweep).is_closed
    assert pair.sweeping.add(sweep, 2) == 2


def test_what_one_cluster_refuses_leaves_the_others_trials(pair: Pair) -> None:
    pair.two.break_next("submit", Trouble.FAIL)
    sweep = pair.start(trials=4)
    assert numbers(pair, sweep) == {"one": [0, 1], "two": []}
    assert any("only 2 of 4 trials were submitted" in one for one in pair.said)
    assert pair.sweeping.add(sweep, 2) == 2
    assert numbers(pair, sweep)["one"] == [0, 1, 2, 3]


def test_removed_with_its_last_trial(pair: Pair) -> None:
    sweep = pair.start(trials=2)
    pair.sweeping.stop(sweep, now=True)
    pair.verbs.remove_all(pair.verbs.find_all([sweep]))
    assert pair.sweeping.known() == []


def test_how_many_run_at_once_is_divided(pair: Pair) -> None:
    with pytest.raises(UsageError, match="each has to run one"):
        pair.sweeping.start(STUDY, TRAIN, 4, at_once=1, snapshot=False)


def test_dividing() -> None:
    assert evenly(7, 3) == [3, 2, 2]
    assert names_in("euler, box") == ["euler", "box"]
    for wrong in ("a,a", "a,", ","):
        with pytest.raises(UsageError, match="once"):
            names_in(wrong)


def test_what_is_no_number_is_told_as_such() -> None:
    trial = Trial(0, 0, "s.0", "one", {"x": 1}, "done", math.nan, 3, rungs={1: math.inf, 3: 2.0})
    told = others_of("two", [trial])["results"]["0"]
    assert (told["value"], told["rungs"]) == ("nan", {"1": None, "3": 2.0})


def test_two_that_add_at_once_lose_nothing(pair: Pair, tmp_path: Path) -> None:
    sweep, more = pair.start(trials=4), []
    real = pair.one.queue.submit

    def add() -> None:
        verbs = launcher(tmp_path, pair.one, pair.two)
        verbs.sweeping.add(sweep, 2)

    def submit(plan: Any, *others: Any) -> None:
        if not more:
            more.append(threading.Thread(target=add))
            more[0].start()
            more[0].join(1.0)  # as far as it comes while this one is under way
        real(plan, *others)

    pair.one.queue.submit = submit  # type: ignore[method-assign]
    pair.sweeping.add(sweep, 2)
    more[0].join()
    jobs = {*pair.one.jobs, *pair.two.jobs}
    assert len(jobs) == 8
    assert {one.job for one in pair.sweeping.look(sweep).trials} == jobs
    assert {*pair.verbs.find_all([sweep])} == jobs


def test_an_array_that_came_to_nothing_does_not_damage_the_sweep(pair: Pair) -> None:
    sweep = pair.start(trials=4)
    pair.verbs.context.open_store().remove(f"{sweep}-2.0", f"{sweep}-2.1")
    pair.two.jobs.clear()
    pair.sweeping.add(sweep, 2)
    assert len(pair.sweeping.look(sweep).trials) == 4
