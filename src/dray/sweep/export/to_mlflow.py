"""Writes a sweep to an MLflow server: one run for each trial, found again by the job's id.

A point of a curve is stamped with the sweep's time and its own step, so the same point logged again
is the same point: an export can be repeated, and was never half done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dray.node.sweeps.mlflow import (
    JOB,
    KILLED,
    LONGEST_TAG,
    STATUS,
    SWEEP,
    batches,
    metrics_of,
    params_of,
)
from dray.records import NamedTuple
from dray.sweep import mlflow
from dray.sweep.export.points import Curves, points_by_metric
from dray.sweep.study import Study, Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Planned(NamedTuple):
    """What the run of a trial is to hold."""

    name: str
    status: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: list[dict[str, Any]]


def export(
    server: mlflow.Server,
    study: Study,
    trials: Sequence[Trial],
    experiment: str = "",
    curves: Mapping[str, Curves] = MappingProxyType({}),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write each trial that has begun to an experiment, and return how many there are."""
    begun = [one for one in trials if one.state != "queued"]
    place = server.ensure_experiment(experiment or study.experiment or study.id)
    found = server.runs(place, f"tags.`{SWEEP}` = '{study.id}'")
    known = {one.tags.get(JOB, ""): one for one in found}
    for done, trial in enumerate(begun):
        write(server, place, study, planned(study, trial, curves), known)
        progress(done + 1, len(begun))
    return len(begun)


def write(
    server: mlflow.Server,
    experiment: str,
    study: Study,
    plan: Planned,
    runs: dict[str, mlflow.Run],
) -> None:
    before = runs.get(plan.tags[JOB])
    if before is None:
        own = {key: plan.tags[key] for key in (SWEEP, JOB)}
        run = server.create(experiment, plan.name, int(study.created * 1000), own)
    else:
        run = before.id
    known = before.params if before else {}  # which never change there
    params = {key: value for key, value in plan.params.items() if key not in known}
    for batch in batches(params, plan.tags, plan.metrics):
        server.log(run, batch)
    if before is None or before.status != plan.status:
        server.update(run, plan.status)


def planned(study: Study, trial: Trial, curves: Mapping[str, Curves]) -> Planned:
    """Plan the run of a trial, purely."""
    job = trial.job or f"{study.id}.{trial.number}"
    tags = {
        SWEEP: study.id,
        JOB: job,
        "dray.configuration": str(trial.configuration),
        "dray.cluster": trial.cluster,
        "dray.state": trial.state,
        "dray.gpu_seconds": f"{trial.gpu_seconds:g}",
    }
    if trial.reason:
        tags["dray.reason"] = trial.reason[:LONGEST_TAG]
    return Planned(
        name=job,
        status=STATUS.get(trial.state, KILLED),
        params=params_of(trial.values),
        tags=tags,
        metrics=[
            one
            for name, points in points_by_metric(study, trial, curves)
            for one in metrics_of(name, study.created, points)
        ],
    )
