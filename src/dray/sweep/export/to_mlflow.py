"""Writes a sweep to an MLflow server: one run for each trial, found again by the job's id.

A point of a curve is stamped with the sweep's time and its own step, so the same point logged again
is the same point: an export can be repeated, and was never half done."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from types import MappingProxyType

from dray.node.sweeps.filling import text_of
from dray.records import NamedTuple
from dray.sweep import mlflow
from dray.sweep.export.points import Curves, metric_name, points_of
from dray.sweep.study import Study, Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SWEEP, JOB = "dray.sweep", "dray.job"
STATUS = {"done": "FINISHED", "failed": "FAILED", "running": "RUNNING"}
LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000
NOT_A_NAME = re.compile(r"[^\w\-. :/]")  # characters that MLflow has in no name


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
    curves: Curves = MappingProxyType({}),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write each trial that has begun to an experiment, and return how many there are."""
    begun = [one for one in trials if one.state != "queued"]
    place = server.ensure_experiment(experiment or study.id)
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
    known: dict[str, mlflow.Run],
) -> None:
    before = known.get(plan.tags[JOB])
    if before is None:
        own = {key: plan.tags[key] for key in (SWEEP, JOB)}
        run = server.create(experiment, plan.name, int(study.created * 1000), own)
    else:
        run = before.id
    for batch in mlflow.batches(plan.params, plan.tags, plan.metrics):
        server.log(run, batch)
    if before is None or before.status != plan.status:
        server.update(run, plan.status)


def planned(study: Study, trial: Trial, curves: Curves) -> Planned:
    """Plan the run of a trial, purely."""
    tag, start = name_of(metric_name(study)), int(study.created * 1000)
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
        status=STATUS.get(trial.state, "KILLED"),
        params={
            name_of(name): text_of(value, False)[:LONGEST_PARAMETER]
            for name, value in trial.values.items()
        },
        tags=tags,
        metrics=[
            {"key": tag, "value": as_json(value), "timestamp": start + step, "step": step}
            for step, value in points_of(trial, curves)
        ],
    )


def name_of(name: str) -> str:
    return NOT_A_NAME.sub("_", name)[:250]


def as_json(value: float) -> float | str:
    """Return a number; what is none as MLflow's text for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
