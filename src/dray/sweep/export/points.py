"""The points of a trial's curve that are known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.node.sweeps.mlflow import ANY_METRIC
from dray.sweep.study import Study, Trial

Curves = Mapping[str, Sequence[tuple[int, float]]]  # (step, value), by the job's id


def points_by_metric(
    study: Study, trial: Trial, curves: Mapping[str, Curves]
) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return each metric of the sweep with its points. ``curves`` are by the metric's name."""
    return [
        (goal.metric or ANY_METRIC, points_of(trial.by_metric(at), curves.get(goal.metric, {})))
        for at, goal in enumerate(study.goals)
    ]


def points_of(trial: Trial, curves: Curves) -> list[tuple[int, float]]:
    """Return the curve of a trial: as it was brought along, else where it was compared; and its
    last value, where the curve does not reach so far."""
    found = dict(curves.get(trial.job) or trial.rungs)
    if trial.value is not None and trial.step is not None:
        found.setdefault(trial.step, trial.value)
    return sorted(found.items())
