"""Which trials go on, and from what the sampler learns where some are ended early."""

from __future__ import annotations

import math
from typing import Any

from dray.node.sweeps import asking, trial
from dray.node.sweeps.stopping import Points, newly_passed, rungs_of, why_not_on

ASHA: Any = {"rule": "asha", "first": 100, "factor": 3, "total": 1500}
MEDIAN: Any = {"rule": "median", "first": 100, "factor": 3, "total": None}


def curve(*points: tuple[int, float | None]) -> Points:
    found = Points()
    for step, value in points:
        found.add(step, value)
    return found


def test_a_level_is_the_mean_of_the_last_tenth() -> None:
    points = curve(*((step, float(step)) for step in range(1, 101)))
    assert points.level() == 95.5
    assert points.level(50) == 48.0
    assert curve((5, 2.0)).level() == 2.0
    assert curve().level() is None
    assert math.isnan(curve((1, None)).level() or 0.0)


def test_steps_that_are_trained_again_replace_the_earlier_ones() -> None:
    points = curve((10, 1.0), (20, 9.0), (30, 9.0), (20, 2.0))
    assert points.steps == [10, 20]
    assert points.values == [1.0, 2.0]


def test_rungs() -> None:
    assert rungs_of(ASHA) == [100, 300, 900]
    assert rungs_of({"rule": "asha", "total": 2700}) == [100, 300, 900]
    assert rungs_of({"rule": "asha", "total": 5}) == [1, 3]
    assert rungs_of(MEDIAN)[:3] == [100, 300, 900]
    assert rungs_of(None) == []


def test_a_rung_is_passed_once_and_only_with_points_before_it() -> None:
    points = curve(*((step, 1.0) for step in range(50, 350, 50)))
    assert newly_passed(ASHA, points, []) == [100, 300]
    assert newly_passed(ASHA, points, [100]) == [300]
    by_itself: Any = {"rule": "asha", "total": 2700}
    assert newly_passed(by_itself, points, []) == []  # fewer than ten points
    many = curve(*((step, 1.0) for step in range(10, 350, 10)))
    assert newly_passed(by_itself, many, []) == [100, 300]


def test_asha_keeps_the_best_third() -> None:
    others = [float(one) for one in range(16)]
    assert why_not_on(ASHA, "max", 300, 14.5, others) == ""
    assert why_not_on(ASHA, "max", 300, 3.25, others) == (
        "pruned at step 300: 3.25 is not among the best third of 17"
    )
    assert why_not_on(ASHA, "min", 300, 0.5, others) == ""
    assert why_not_on(ASHA, "min", 300, 14.5, others)
    assert why_not_on(ASHA, "max", 100, 1.0, []) == ""
    assert why_not_on(ASHA, "max", 100, math.nan, [1.0])
    assert why_not_on(ASHA, "max", 100, 1.0, [math.nan]) == ""


def test_the_median_needs_others() -> None:
    assert why_not_on(MEDIAN, "max", 100, 0.0, [1.0] * 4) == ""
    reason = why_not_on(MEDIAN, "max", 100, 0.0, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert reason == "pruned at step 100: 0 is worse than 3, the median of 5"
    assert why_not_on(MEDIAN, "max", 100, 3.0, [1.0, 2.0, 3.0, 4.0, 5.0]) == ""
    assert why_not_on(MEDIAN, "min", 100, 4.0, [1.0, 2.0, 3.0, 4.0, 5.0])


# -- what is told to the sampler --------------------------------------------------------------

STUDY: Any = {
    "id": "s",
    "space": [{"name": "x", "kind": "float", "low": 0, "high": 1}],
    "sampler": "tpe",
    "seed": 1,
    "mode": "max",
    "repeats": 1,
}


def done(value: Any) -> Any:
    return {"state": "done", "value": value}


def test_losses_of_repeats_are_their_mean_and_failures_count() -> None:
    study: Any = {**STUDY, "repeats": 2}
    results: Any = {
        0: done(1.0),
        1: done(3.0),
        2: done(5.0),
        4: {"state": "failed"},
        6: done("nan"),
        8: {"state": "running", "value": 9.0},
        10: done(None),
    }
    assert asking.losses_of(study, results) == {0: -2.0, 1: -5.0, 2: None, 3: None}
    assert asking.losses_of({**study, "mode": "min"}, results)[0] == 2.0
    assert asking.failures(results) == 1


def test_a_configuration_with_a_failed_repeat_has_failed() -> None:
    results: Any = {0: done(9.0), 1: {"state": "failed", "value": 9.0}, 2: done(1.0), 3: done(1.0)}
    study: Any = {**STUDY, "repeats": 2}
    assert asking.losses_of(study, results) == {0: None, 1: -1.0}


def test_where_trials_are_pruned_one_rung_is_told() -> None:
    study: Any = {**STUDY, "stop": ASHA}
    results: Any = {
        number: {"state": "pruned", "value": 99.0, "rungs": {"100": float(number)}}
        for number in range(12)
    }
    results[3]["rungs"]["300"] = 7.0
    results[12] = done(500.0)
    losses = asking.losses_of(study, results)
    assert losses == {number: -float(number) for number in range(12)}  # not the end, nor rung 300
    results.update({number: done(float(number)) for number in range(20, 30)})
    assert set(asking.losses_of(study, results)) == {12, *range(20, 30)}


def test_a_fifth_is_chosen_without_the_model_where_trials_are_pruned() -> None:
    study: Any = {**STUDY, "stop": ASHA}
    share = sum(asking.explores(study, number) for number in range(1000))
    assert 150 < share < 250
    assert not any(asking.explores(STUDY, number) for number in range(100))


def test_who_chose_is_written_down() -> None:
    trials: Any = {n: {"values": {"x": n / 20}} for n in range(20)}
    results: Any = {n: done(float(n)) for n in range(20)}
    assert asking.choose(STUDY, 0, {}, {})["by"] == "start-up"
    chosen = asking.choose(STUDY, 20, trials, results)
    assert chosen["by"] == "tpe"
    assert chosen["values"]["x"] > 0.5  # where the large values are
    for name in ("random", "quasi"):
        assert asking.choose({**STUDY, "sampler": name}, 3, trials, results)["by"] == name
    running = asking.choose(STUDY, 20, {**trials, 30: {"values": {"x": 0.9}}}, results)
    assert running["by"] == "tpe"


def test_what_a_pattern_reads_is_not_taken_for_the_metric_of_a_condition() -> None:
    job: Any = {"metrics": {"pattern": r"reward: ([-0-9.e]+)", "main": []}}
    study: Any = {"metric": "", "stop_if": ["loss > 5"]}
    assert trial.watched(job, study) == ["reward", "loss"]
    assert trial.watched(job, {**study, "metric": "score"}) == ["score", "loss", "reward"]
    assert trial.watched({"metrics": {"main": []}}, study) == ["loss"]
