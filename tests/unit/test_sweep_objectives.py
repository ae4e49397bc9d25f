"""Sweeps with several metrics at once."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.checks import Malformed
from dray.cli.sweep import goals_of
from dray.config.reading import Document
from dray.errors import UsageError
from dray.launcher.sweep_checks import require_objectives
from dray.launcher.sweep_exchange import result_of
from dray.launcher.sweep_views import with_objectives
from dray.node.sweeps import asking, optuna_question
from dray.node.sweeps.study import Study as StudyOnNode
from dray.node.sweeps.study import result_in
from dray.node.sweeps.trial import watched
from dray.sweep import file, options, space, table
from dray.sweep.export import optuna, points, tables, to_mlflow
from dray.sweep.objectives import beats, by_metric, fronts
from dray.sweep.study import Objective, Stop, Study, Trial
from dray.testing import FakeCluster
from tests.unit.test_sweep_on_several import Pair, pair
from tests.unit.test_sweeping import begin

__all__ = ["pair"]  # a fixture
GOALS = (Objective("Train/reward", "max"), Objective("energy", "min"))
SPACE = space.whole([space.from_flag("lr=0..1:float")])
STUDY = Study(
    id="s",
    space=SPACE,
    sampler="optuna:NSGAIISampler",
    metric="Train/reward",
    objectives=GOALS,
    created=1.7e9,
)
RECORD: Any = STUDY.to_dict()


def trial(number: int, *values: float | None, state: str = "done", repeats: int = 1) -> Trial:
    return Trial(
        number=number,
        configuration=number // repeats,
        job=f"s.{number}",
        values={"lr": 0.5},
        state=state,
        value=values[0],
        objectives=values,
        step=10,
    )


TRIALS = (
    trial(0, 5.0, 5.0),
    trial(1, 9.0, 8.0),
    trial(2, 1.0, 1.0),
    trial(3, 5.0, 6.0),  # beaten by 0
    trial(4, 4.0, 7.0),  # beaten by 0 and 3
    trial(5, 99.0, None),
    trial(6, 99.0, math.nan),
    trial(7, 7.0, None, state="running"),
)


# -- what is asked for ----------------------------------------------------------------------------


def test_a_mode_for_all_or_one_for_each() -> None:
    assert goals_of(("a", "b"), options.modes("max,min")) == (
        Objective("a", "max"),
        Objective("b", "min"),
    )
    assert goals_of(("a", "b"), options.modes("min")) == (
        Objective("a", "min"),
        Objective("b", "min"),
    )
    assert goals_of((), ("max",)) == (Objective("", "max"),)
    with pytest.raises(UsageError, match="--mode max,min is for 2 metrics, and there is 1"):
        goals_of(("a",), ("max", "min"))
    with pytest.raises(ValueError, match="'most' is none of max, min"):
        options.modes("max,most")


def test_a_file_has_lists() -> None:
    text = '[sweep]\nmetric = ["a", "b"]\nmode = ["max", "min"]\n[sweep.space]\nx = [1, 2]\n'
    read = file.read_sweep(Document(Path("sweep.toml"), text.encode()))
    assert read.settings["sweep.metric"] == ("a", "b")
    assert read.settings["sweep.mode"] == ("max", "min")
    one = text.replace('["a", "b"]', '"a"').replace('["max", "min"]', '"min"')
    read = file.read_sweep(Document(Path("sweep.toml"), one.encode()))
    assert (read.settings["sweep.metric"], read.settings["sweep.mode"]) == (("a",), ("min",))


@pytest.mark.parametrize(
    ("changed", "pattern", "why"),
    [
        ({"sampler": "tpe"}, None, "tpe learns from one metric, and there are 2 metrics"),
        ({"sampler": "optuna:CmaEsSampler,sigma0=0.1"}, None, "learns from one metric"),
        ({"stop": Stop("asha", first=3)}, None, "--stop asha compares trials by one metric"),
        ({"stop": Stop("pbt", first=3)}, None, "--stop pbt compares trials by one metric"),
        ({"objectives": GOALS[:1] * 2}, None, "name each metric once"),
        ({"objectives": tuple(Objective(str(n)) for n in range(11))}, None, "10 at most"),
        ({}, "loss: (.*)", "metrics.pattern reads one metric"),
    ],
)
def test_what_needs_one_metric_is_refused(changed: Any, pattern: str | None, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        require_objectives(STUDY._replace(**changed), pattern)


@pytest.mark.parametrize("sampler", ["optuna:TPESampler", "random", "quasi", "grid"])
def test_other_samplers_are_not_refused(sampler: str) -> None:
    require_objectives(STUDY._replace(sampler=sampler), None)
    require_objectives(STUDY._replace(sampler="tpe", objectives=(), stop=Stop("asha")), "x")


def test_a_study_is_written_and_read_back() -> None:
    assert Study.from_dict(json.loads(json.dumps(RECORD))) == STUDY
    older = {key: one for key, one in RECORD.items() if key != "objectives"}
    assert Study.from_dict(older).goals == (Objective("Train/reward", "max"),)
    for wrong in ([{"metric": "a"}], [{"metric": "a", "mode": "up"}], [1], "ab", [{}] * 11):
        with pytest.raises(Malformed):
            Study.from_dict({**RECORD, "objectives": wrong})
    with pytest.raises(Malformed, match="same name"):
        Study.from_dict({**RECORD, "objectives": [GOALS[0]._asdict()] * 2})


# -- on the node ----------------------------------------------------------------------------------


def test_all_metrics_are_followed() -> None:
    assert watched({"metrics": {"main": ["other"]}}, RECORD) == [  # type: ignore[typeddict-item]
        "Train/reward",
        "energy",
        "other",
    ]


def test_losses_are_means_over_repeats_of_each_metric() -> None:
    results: Any = {
        0: {"state": "done", "objectives": [1.0, 10.0]},
        1: {"state": "done", "objectives": [2.0, 20.0]},
        2: {"state": "failed"},
        4: {"state": "done", "objectives": [1.0, "nan"]},
        6: {"state": "done", "objectives": [1.0, None]},
        8: {"state": "done", "value": 3.0},  # of an older dray
        10: {"state": "running", "objectives": [1.0, 1.0]},
        12: {"state": "done", "objectives": [1.0]},
    }
    found = asking.vectors_of({**RECORD, "repeats": 2}, results)
    assert found == {0: [-1.5, 15.0], 1: None, 2: None, 3: None, 6: None}
    single: Any = STUDY._replace(objectives=(), mode="min").to_dict()
    assert asking.vectors_of(single, {0: {"state": "done", "value": 3.0}}) == {0: [3.0]}


def test_optuna_is_told_all_of_them() -> None:
    trials: Any = {one: {"values": {"lr": 0.5}, "by": ""} for one in range(3)}
    results: Any = {0: {"state": "done", "objectives": [1.0, 2.0]}, 1: {"state": "failed"}}
    asked = optuna_question.question(RECORD, 3, trials, results)
    assert asked["metrics"] == 2
    assert [one["losses"] for one in asked["trials"]] == [[-1.0, 2.0], None, None]
    assert [one["state"] for one in asked["trials"]] == ["done", "failed", "running"]


@pytest.mark.parametrize(
    "wrong",
    [5, "ab", [[1.0]], ["inf"], [True], [10**400], [1.0] * 11, {"0": 1.0}, [{}], [math.inf]],
)
def test_values_that_are_none_are_as_if_never_told(wrong: Any, tmp_path: Path) -> None:
    assert result_in({"state": "done", "objectives": wrong}) == {"state": "done"}
    study = StudyOnNode(str(tmp_path), "s")
    study.begin(RECORD, {"id": "s", "first": 0, "count": 2, "at_once": None})
    study.hear({"results": {"5": {"state": "done", "objectives": wrong, "value": 1.0}}})
    assert asking.vectors_of(RECORD, study.results()) == {}
    kept = [1.0, None, "nan"]
    assert result_in({"state": "done", "objectives": kept}) == {"state": "done", "objectives": kept}


@pytest.mark.parametrize(
    "changed",
    [
        {"objectives": [1]},
        {"objectives": "ab"},
        {"objectives": [{"metric": "a"}]},
        {"objectives": [{"metric": 1, "mode": "max"}]},
        {"space": [{"name": "a", "kind": "choice", "values": [1], "when": {"b": 1}}]},
        {"space": [{"name": "a", "kind": "choice", "values": [1], "when": [1]}]},
    ],
)
def test_a_damaged_sweep_is_none(changed: Any, tmp_path: Path) -> None:
    study = StudyOnNode(str(tmp_path), "s")
    study.begin(RECORD, {"id": "s", "first": 0, "count": 2, "at_once": None})
    Path(study.file).write_text(json.dumps({**RECORD, **changed}))
    assert StudyOnNode(str(tmp_path), "s").record() is None
    older = {key: one for key, one in RECORD.items() if key != "objectives"}
    Path(study.file).write_text(json.dumps(older))
    assert StudyOnNode(str(tmp_path), "s").record() == older


# -- between clusters -----------------------------------------------------------------------------


def test_all_values_are_carried_to_other_clusters(pair: Pair) -> None:
    sweep = pair.start(trials=4, objectives=GOALS, metric="Train/reward", sampler="random")
    begin(pair.two, sweep, 2, f"{sweep}-2.0")
    pair.two.end(f"{sweep}-2.0", "done")
    told: Any = {"state": "done", "value": 7.0, "objectives": [7.0, "nan"], "step": 9}
    pair.two.sweeps[sweep]["results"]["2"] = told
    found = next(one for one in pair.sweeping.look(sweep).trials if one.number == 2)
    assert found.objectives[0] == 7.0
    assert math.isnan(found.objectives[1] or 0.0)
    (carried,) = pair.told(pair.one, sweep)["results"].values()
    assert carried["objectives"] == [7.0, "nan"]
    assert carried["value"] == 7.0


@pytest.mark.parametrize(
    "wrong", [[7.0], [7.0, 1.0, 2.0], "77", [[7.0], 1.0], [7.0, "x"], {"a": 1.0}, [7.0, 10**400]]
)
def test_a_cluster_that_tells_something_else_hides_no_trial(pair: Pair, wrong: Any) -> None:
    sweep = pair.start(trials=4, objectives=GOALS, metric="Train/reward", sampler="random")
    two: FakeCluster = pair.two
    begin(two, sweep, 2, f"{sweep}-2.0")
    two.end(f"{sweep}-2.0", "done")
    two.sweeps[sweep]["results"]["2"] = {"state": "done", "value": 7.0, "objectives": wrong}
    found = next(one for one in pair.sweeping.look(sweep).trials if one.number == 2)
    assert found.value is None
    assert not any(found.objectives)
    (carried,) = pair.told(pair.one, sweep)["results"].values()
    assert "objectives" not in carried
    assert "value" not in carried


def test_one_metric_has_no_list_of_values() -> None:
    single = STUDY._replace(objectives=())
    assert with_objectives(single, trial(0, 1.0, 2.0)).objectives == ()
    running = trial(0, 3.0, state="running")._replace(objectives=())
    assert with_objectives(STUDY, running).objectives == (3.0, None)
    assert result_of(trial(0, 0.0, None))["objectives"] == [0.0, None]
    assert "objectives" not in result_of(running)


# -- the Pareto front -----------------------------------------------------------------------------


FEW = st.integers(0, 6)


@given(
    st.lists(st.tuples(FEW, FEW, st.integers(0, 2)), max_size=40)
    | st.lists(st.tuples(FEW, FEW), max_size=40)
)
def test_fronts_are_what_they_are_by_definition(found: list[tuple[float, ...]]) -> None:
    places = fronts(tuple(found))
    for place in range(max(places, default=-1) + 1):
        left = [one for at, one in enumerate(found) if places[at] >= place]
        for at, one in enumerate(found):
            if places[at] >= place:
                is_beaten = any(beats(other, one) for other in left)
                assert is_beaten == (places[at] > place)


def test_best_is_the_front_and_says_so() -> None:
    shown = table.best(STUDY, TRIALS, 100)
    assert shown.header[:5] == ("TRIAL", "reward", "energy", "STEP", "STATE")
    assert [row[0] for row in shown.rows] == [".1", ".0", ".2"]
    assert shown.rows[0][1:3] == ("9", "8")
    assert "max Train/reward, min energy" in shown.above[0]
    assert "the Pareto front, 3 of 5 trained to the end" in shown.above[1]
    assert any("1 done without a value of 'energy'" in line for line in shown.below)
    few = table.best(STUDY, TRIALS, 100, most=1)
    assert len(few.rows) == 1
    assert "-n 3 shows them" in few.below[0]


def test_status_has_a_column_for_each_and_goes_front_by_front() -> None:
    shown = table.status(STUDY, TRIALS, 100)
    assert [row[0] for row in shown.rows][:5] == [".1", ".0", ".2", ".3", ".4"]
    assert [row[1:3] for row in shown.rows][-1] == ("7", "")
    assert shown.header[shown.state_column] == "STATE"
    assert shown.rows[-1][shown.state_column] == "running"


def test_repeats_are_averaged_for_each_metric() -> None:
    study = STUDY._replace(repeats=2)
    found = [trial(0, 1.0, 10.0, repeats=2), trial(1, 3.0, 30.0, repeats=2)]
    shown = table.best(study, found, 100)
    assert shown.rows[0][1:3] == ("2 ± 1.4", "20 ± 14")
    (only,) = table.as_record(study, found)["configurations"]
    assert [one["value"] for one in only["objectives"]] == [2.0, 20.0]
    assert only["rank"] == 1


def test_by_one_metric_it_is_a_sweep_like_any_other() -> None:
    study, trials = by_metric(STUDY, TRIALS, "energy")
    assert (study.metric, study.mode, study.objectives) == ("energy", "min", ())
    assert [one.value for one in trials][:3] == [5.0, 8.0, 1.0]
    assert by_metric(STUDY, TRIALS, "")[0].metric == "Train/reward"
    with pytest.raises(UsageError, match="Did you mean 'energy'"):
        by_metric(STUDY, TRIALS, "enery")


# -- other tools ----------------------------------------------------------------------------------


def test_other_tools_get_all_of_them() -> None:
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(STUDY, TRIALS))))
    assert [(row["Train/reward"], row["energy"]) for row in rows][:2] == [
        ("5.0", "5.0"),
        ("9.0", "8.0"),
    ]
    assert "value" not in rows[0]
    record = json.loads(tables.as_json(STUDY, TRIALS))
    assert [one["rank"] for one in record["configurations"]] == [1, 1, 1, 2, 3, None, None, None]
    assert record["configurations"][6]["trials"][0]["objectives"] == [99.0, "nan"]
    lines = optuna.journal(STUDY, TRIALS)
    assert lines[0]["directions"] == [2, 1]
    told = [one for one in lines if one["op_code"] == optuna.CREATE_TRIAL]
    assert [one["values"] for one in told][:2] == [[5.0, 5.0], [9.0, 8.0]]
    assert [one["state"] for one in told][5:] == [optuna.FAIL, optuna.FAIL, optuna.RUNNING]
    plan = to_mlflow.planned(STUDY, TRIALS[0], {"energy": {"s.0": [(1, 9.0), (10, 5.0)]}})
    assert [(one["key"], one["step"], one["value"]) for one in plan.metrics] == [
        ("Train/reward", 10, 5.0),
        ("energy", 1, 9.0),
        ("energy", 10, 5.0),
    ]
    assert points.points_by_metric(STUDY, TRIALS[5], {})[1] == ("energy", [])
