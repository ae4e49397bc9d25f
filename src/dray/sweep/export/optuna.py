"""Writes a sweep as a journal of Optuna's: a file of JSON lines that optuna-dashboard opens, and
``optuna.storages.JournalStorage`` reads.

What Optuna would choose is a parameter there; what follows from others (formulas, tables, drawn
and fixed values) is an attribute of the trial."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dray.errors import Refused
from dray.node.formats.files import write_bytes
from dray.sweep.study import LEARNT, Parameter, Study, Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CREATE_STUDY, SET_STUDY_USER_ATTR, CREATE_TRIAL = 0, 2, 4
DIRECTIONS = {"min": 1, "max": 2}
RUNNING, COMPLETE, PRUNED, FAIL = 0, 1, 2, 3
STATES = {"running": RUNNING, "done": COMPLETE, "pruned": PRUNED}
WRITER = "dray"  # who has written a line


def write(path: Path, study: Study, trials: Sequence[Trial]) -> None:
    """Write the journal. One that Optuna has added to, that of another sweep, or anything else, is
    not replaced."""
    if path.exists() and not is_ours(path, study.id):
        raise Refused(
            f"{path} was not written by dray alone for {study.id}, and is not replaced",
            hint="Name another file.",
        )
    lines = [json.dumps(one) for one in journal(study, trials)]
    write_bytes(str(path), ("\n".join(lines) + "\n").encode(), durable=False)


def is_ours(path: Path, sweep: str) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
            is_own = all(one["worker_id"] == WRITER for one in lines)
            return not lines or (is_own and bool(lines[0]["study_name"] == sweep))
    except (ValueError, LookupError, TypeError, OSError):
        return False


def journal(study: Study, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the lines: the study, then its trials in the order of their numbers."""
    begun = sorted((one for one in trials if one.state != "queued"), key=lambda one: one.number)
    about = {"op_code": SET_STUDY_USER_ATTR, "worker_id": WRITER, "study_id": 0}
    return [
        {
            "op_code": CREATE_STUDY,
            "worker_id": WRITER,
            "study_name": study.id,
            "directions": [DIRECTIONS[one.mode] for one in study.goals],
        },
        {**about, "user_attr": {"metric": ", ".join(one.metric for one in study.goals)}},
        {**about, "user_attr": {"sampler": study.sampler}},
        *(trial_line(study, one) for one in begun),
    ]


def trial_line(study: Study, trial: Trial) -> dict[str, Any]:
    time = moment(study.created)
    state = state_of(trial)
    several = list(trial.objectives) if trial.objectives and state == COMPLETE else None
    there = [one for one in study.space if one.name in trial.values]
    places = {one.name: internal(one, trial.values[one.name]) for one in there}
    params = {name: place for name, place in places.items() if place is not None}
    rest = {name: value for name, value in trial.to_dict()["values"].items() if name not in params}
    return {
        "op_code": CREATE_TRIAL,
        "worker_id": WRITER,
        "study_id": 0,
        "datetime_start": time,
        **({"datetime_complete": time} if state != RUNNING else {}),
        "state": state,
        "value": trial.value if state == COMPLETE and several is None else None,
        "values": several,
        "distributions": {
            one.name: json.dumps(distribution(one)) for one in study.space if one.name in params
        },
        "params": params,
        "intermediate_values": {
            str(step): value for step, value in trial.rungs.items() if math.isfinite(value)
        },
        "user_attrs": {
            "job": trial.job,
            "cluster": trial.cluster,
            "configuration": trial.configuration,
            "gpu_seconds": trial.gpu_seconds,
            **({"reason": trial.reason} if trial.reason else {}),
            **rest,
        },
        "system_attrs": {},
    }


def moment(seconds: float) -> str:
    """Return a time as Optuna has it; for one that no calendar has, the first."""
    try:
        found = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        found = datetime.fromtimestamp(0, UTC)
    return found.replace(tzinfo=None).isoformat()


def state_of(trial: Trial) -> int:
    """Return Optuna's state. A trial without a number of each metric has failed there."""
    values = trial.objectives or (trial.value,)
    if trial.state == "done" and not all(one is not None and math.isfinite(one) for one in values):
        return FAIL
    return STATES.get(trial.state, FAIL)


def distribution(parameter: Parameter) -> dict[str, Any]:
    if parameter.kind == "choice":
        choices = [choice(one) for one in parameter.to_dict()["values"]]
        return {"name": "CategoricalDistribution", "attributes": {"choices": choices}}
    is_int = parameter.kind == "int"
    step = parameter.step if not is_int or parameter.step else 1
    return {
        "name": "IntDistribution" if is_int else "FloatDistribution",
        "attributes": {
            "log": parameter.log,
            "step": step,
            "low": parameter.low,
            "high": parameter.high,
        },
    }


def choice(value: Any) -> Any:
    """Return a value that Optuna can choose: lists and tables as JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def internal(parameter: Parameter, value: Any) -> float | None:
    """Return the number by which Optuna stores a value; None where it is not one of those that can
    be chosen."""
    if parameter.kind == "choice":
        same = [type(one) is type(value) and one == value for one in parameter.values]
        return same.index(True) if True in same else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if parameter.kind not in LEARNT or not is_number:
        return None
    return value if parameter.low <= value <= parameter.high else None
