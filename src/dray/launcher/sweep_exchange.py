"""What the clusters of a sweep are told of each other's trials. Pure.

Only what was checked here is told: a trial's parameters are of the sweep's space, and a cluster
speaks for its own trials alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from dray.sweep.study import Trial

TOLD = ("running", "done", "failed", "pruned", "stopped")  # the states of trials that have begun


def others_of(cluster: str, trials: Iterable[Trial]) -> dict[str, Any]:
    """Return what a cluster is told of the trials on others (records.OthersRecord). Of those that
    run, only what others are compared with: the rest changes at every look."""
    begun = [one for one in trials if one.cluster != cluster and one.values and one.state in TOLD]
    told = {
        "trials": {
            str(one.configuration): {"values": one.to_dict()["values"], "by": one.cluster}
            for one in begun
        },
        "results": {str(one.number): result_of(one) for one in begun},
    }
    return {**told, "mark": mark_of(told)}


def result_of(trial: Trial) -> dict[str, Any]:
    """Return a trial's result as its own cluster has it (records.ResultRecord)."""
    rungs = {str(step): finite(value) for step, value in trial.rungs.items()}
    told: dict[str, Any] = {"job": trial.job, "state": trial.state, "rungs": rungs}
    if trial.state == "running":
        return told
    if any(one is not None for one in trial.objectives):
        told["objectives"] = [in_json(one) for one in trial.objectives]
    if trial.value is not None:
        told.update(value=in_json(trial.value), step=trial.step or 0)
    return told


def in_json(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else "nan"


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def mark_of(told: dict[str, Any]) -> str:
    """Return by what the same telling is recognized."""
    import hashlib  # with OpenSSL: only here

    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:20]
