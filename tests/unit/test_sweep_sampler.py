"""The sampler of sweeps: the same answer each time, values of the space alone, better than
chance."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import UsageError
from dray.launcher.sweep_checks import number_of
from dray.node.sweeps import sampler
from dray.node.sweeps.space import NoSuchPoint, complete, point_of, raster
from dray.sweep.space import from_flag, whole
from dray.sweep.study import Study

LR: Any = {"name": "agent.lr", "kind": "float", "low": 1e-5, "high": 1e-1, "log": True}
LAYERS: Any = {"name": "layers", "kind": "int", "low": 1, "high": 9, "step": 2}
DROP: Any = {"name": "drop", "kind": "float", "low": 0, "high": 0.5, "step": 0.1}
ACT: Any = {"name": "--act", "kind": "choice", "values": ["elu", 1, True, [64, 64]]}
SPACE: Any = [LR, LAYERS, DROP, ACT]


def loss(values: dict[str, Any]) -> float:
    """A bowl with its bottom at lr = 1e-3, five layers, no drop-out, and the second choice."""
    away = (math.log10(values["agent.lr"]) + 3) ** 2 + (values["layers"] - 5) ** 2 / 4
    return away + values["drop"] + (0.0 if values["--act"] is True else 1.0)


def played(seed: int, trials: int, suggest: Any = sampler.suggest) -> list[tuple[Any, float]]:
    told: list[tuple[Any, float]] = []
    for number in range(trials):
        values = suggest(SPACE, seed, number, told, [])
        told.append((values, loss(values)))
    return told


def test_the_same_question_has_the_same_answer() -> None:
    assert played(7, 25) == played(7, 25)
    assert played(7, 25) != played(8, 25)


@given(st.integers(0, 2**31), st.integers(0, 10**6))
def test_every_value_is_of_the_space(seed: int, number: int) -> None:
    for values in (
        sampler.at_random(SPACE, seed, number),
        sampler.spread_evenly(SPACE, seed, number),
        sampler.suggest(SPACE, seed, number, [], []),
    ):
        assert 1e-5 <= values["agent.lr"] <= 1e-1
        assert values["layers"] in (1, 3, 5, 7, 9)
        assert isinstance(values["layers"], int)
        assert values["drop"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
        assert [values["--act"]] in [["elu"], [1], [True], [[64, 64]]]
        point_of(SPACE, values)


def test_it_learns() -> None:
    """Medians of five seeds: a sampler that ignores what it is told has no better last half."""
    mine = [statistics.median(one for _, one in played(seed, 60)[30:]) for seed in range(5)]
    chance = [
        statistics.median(loss(sampler.at_random(SPACE, seed, n)) for n in range(30, 60))
        for seed in range(5)
    ]
    assert statistics.median(mine) < statistics.median(chance) / 2


def test_failures_are_avoided_and_hide_no_good_point() -> None:
    """What fails wherever there are more than five layers is soon left alone."""
    told: list[Any] = []
    for number in range(60):
        values = sampler.suggest(SPACE, 3, number, told, [])
        told.append((values, None if values["layers"] > 5 else loss(values)))
    late = [values["layers"] > 5 for values, _ in told[30:]]
    assert sum(late) < len(late) / 4


def test_nothing_but_failures_is_no_reason_to_fail() -> None:
    told = [(sampler.at_random(SPACE, 1, number), None) for number in range(30)]
    assert sampler.suggest(SPACE, 1, 30, told, [])
    nan = [(values, math.nan) for values, _ in told]
    assert sampler.suggest(SPACE, 1, 30, nan, [])


def test_a_space_of_which_nothing_is_learnt() -> None:
    fixed: Any = [{"name": "x", "kind": "fixed", "value": 3}]
    told: Any = [({"x": 3}, float(number)) for number in range(20)]
    assert sampler.suggest(fixed, 1, 20, told, []) == {"x": 3}


def test_points_of_another_space_are_left_out() -> None:
    told: Any = [({"agent.lr": 5.0, "layers": 1, "drop": 0.0, "--act": "elu"}, 0.0)] * 20
    assert sampler.suggest(SPACE, 1, 4, told, []) == sampler.spread_evenly(SPACE, 1, 4)
    with pytest.raises(NoSuchPoint):
        point_of(SPACE, {"agent.lr": 1e-3})


def test_a_grid_has_every_point_once() -> None:
    space = [LAYERS, ACT]
    found = [sampler.on_grid(space, number) for number in range(20)]
    assert sampler.grid_size(space) == 20
    assert len({repr(one) for one in found}) == 20
    assert found[0] == {"layers": 1, "--act": "elu"}
    assert found[1] == {"layers": 1, "--act": 1}
    assert raster(DROP) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    with pytest.raises(ValueError, match="no step"):
        sampler.grid_size([LR])


def test_a_grid_of_any_size_is_computed_and_not_listed() -> None:
    large: Any = {"name": "x", "kind": "int", "low": 1, "high": 10**18, "step": 3}
    fine: Any = {"name": "y", "kind": "float", "low": 0.0, "high": 1e6, "step": 1e-6}
    size = 333333333333333334 * (10**12 + 1)
    assert sampler.grid_size([large, fine]) == size
    assert sampler.on_grid([large, fine], 0) == {"x": 1, "y": 0.0}
    assert sampler.on_grid([large, fine], 10**12 + 2) == {"x": 4, "y": 1e-6}
    assert sampler.on_grid([large, fine], size - 1) == {"x": 10**18, "y": 1e6}


def test_a_grid_of_more_trials_than_a_sweep_can_have_is_refused() -> None:
    study = Study(id="", space=whole([from_flag("x=1..1000000000000:int")]), sampler="grid")
    with pytest.raises(UsageError, match="at most 1,000,000 trials") as error:
        number_of(study, None)
    assert "--trials N" in error.value.hint
    assert number_of(study, 3) == 3
    with pytest.raises(UsageError, match="at most 1,000,000 trials"):
        number_of(study._replace(sampler="random", repeats=2), 600_000)


def test_what_follows_from_others_is_found_in_the_order_of_need() -> None:
    space: Any = [
        {"name": "half", "kind": "formula", "formula": "batch // 2", "of": ["batch"]},
        {"name": "batch", "kind": "formula", "formula": "max(envs, 3) * agent.lr",
         "of": ["--envs", "agent.lr"]},
        {"name": "--envs", "kind": "choice", "values": [8, 16]},
        {"name": "agent.lr", "kind": "int", "low": 2, "high": 2},
        {"name": "rows", "kind": "table", "of": ["--envs"], "rows": [[[8], "few"], [[16], "many"]]},
        {"name": "units", "kind": "drawn", "values": [[1], [2], [3]]},
    ]  # fmt: skip
    found = complete(space, {"--envs": 16, "agent.lr": 2}, 4)
    assert found["batch"] == 32
    assert found["half"] == 16
    assert found["rows"] == "many"
    assert found["units"] == [2]
    assert list(found) == [one["name"] for one in space]


def test_quasi_random_points_lie_evenly() -> None:
    """Of 64 points in a row, every quarter of a range has its share, to within a few."""
    logs = [math.log10(sampler.spread_evenly(SPACE, 5, n)["agent.lr"]) for n in range(64)]
    counts = [sum(1 for one in logs if low <= one < low + 1) for low in (-5, -4, -3, -2)]
    assert all(12 <= one <= 20 for one in counts), counts
