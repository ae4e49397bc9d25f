"""Writes a sweep as CSV, one line for each trial, and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from dray.sweep.study import Study, Trial
from dray.sweep.table import as_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BEFORE = ["trial", "configuration", "job", "cluster", "state"]
BEHIND = ["step", "gpu_seconds", "reason"]
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet begins to compute at


def as_csv(study: Study, trials: Sequence[Trial]) -> str:
    """Write a line for each trial; of several metrics, each has a column of its own."""
    names = [one.name for one in study.space]
    measures = [one.metric for one in study.objectives] or ["value"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*BEFORE, *map(cell, measures), *BEHIND, *names])
    for one in sorted(trials, key=lambda trial: trial.number):
        own = [one.number, one.configuration, one.job, one.cluster, one.state]
        own += [one.by_metric(at).value for at in range(len(measures))]
        own += [one.step, one.gpu_seconds, one.reason]
        values = one.to_dict()["values"]
        cells = [*own, *(values.get(name) for name in names)]
        writer.writerow([cell(value) for value in cells])
    return text.getvalue()


def cell(value: Any) -> Any:
    """Return what a cell holds: lists as JSON; a text that a spreadsheet would take for a formula
    behind a quote."""
    if isinstance(value, list | dict | bool):
        return json.dumps(value)
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value


def as_json(study: Study, trials: Sequence[Trial]) -> str:
    return json.dumps(as_record(study, trials), indent=1) + "\n"
