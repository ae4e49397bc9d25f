"""Brings the curves of a sweep's trials here, for other tools."""

from __future__ import annotations

from collections.abc import Callable

from dray.launcher.context import Context
from dray.launcher.sweep_views import Sweep


def curves_of(
    context: Context, sweep: Sweep, progress: Callable[[int, int], None]
) -> dict[str, list[tuple[int, float]]]:
    """Return the curve of the sweep's metric for each trial that has one, by the job's id."""
    begun = [one for one in sweep.trials if one.state != "queued" and one.step is not None]
    found = {}
    for done, trial in enumerate(begun, 1):
        series = context.cluster(trial.cluster).files.curve(trial.job)
        if not sweep.study.metric or series.name == sweep.study.metric:
            found[trial.job] = [
                (step, value) for step, value, _ in series.points if value is not None
            ]
        progress(done, len(begun))
    return found
