"""Writes a sweep for TensorBoard: one run for each trial, with its curve and its parameters.

The HParams tab shows them as a table and as parallel coordinates; repeats of a configuration are
one group there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from dray.node.formats.files import write_bytes
from dray.sweep.export import event_files
from dray.sweep.export.points import Curves, points_by_metric
from dray.sweep.study import Study, Trial
from dray.sweep.table import show_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATUS = {"done": event_files.SUCCESS, "running": event_files.RUNNING}


def write(
    folder: Path,
    study: Study,
    trials: Sequence[Trial],
    curves: Mapping[str, Curves] = MappingProxyType({}),
) -> int:
    """Write a folder for each trial that has begun, and return how many there are. Their names are
    the jobs'; what an earlier export wrote is replaced."""
    begun = [one for one in trials if one.state != "queued"]
    for one in begun:
        own = folder / run_name(study, one)
        os.makedirs(own, exist_ok=True)
        name = f"events.out.tfevents.{int(study.created)}.dray"
        write_bytes(str(own / name), content(study, one, curves), durable=False)
    return len(begun)


def run_name(study: Study, trial: Trial) -> str:
    return trial.job or f"{study.id}.{trial.number}"


def content(study: Study, trial: Trial, curves: Mapping[str, Curves]) -> bytes:
    time = study.created
    parts = [event_files.version(time)]
    group = f"{study.id} {trial.configuration}"
    parts.append(event_files.session_start(plain(trial.values), group, time))
    parts += [
        event_files.scalar(tag, value, step, time)
        for tag, points in points_by_metric(study, trial, curves)
        for step, value in points
    ]
    status = STATUS.get(trial.state, event_files.FAILURE)
    if status != event_files.RUNNING:
        parts.append(event_files.session_end(status, time))
    return b"".join(parts)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that the table can hold: numbers, truth values and texts."""
    simple = str | int | float
    return {
        name: value if isinstance(value, simple) else show_value(value, longest=200)
        for name, value in values.items()
    }
