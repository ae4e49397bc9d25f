"""Brings the curves of a sweep's trials here, for other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dray.launcher.context import Context
from dray.launcher.sweep_views import Sweep
from dray.sweep.export.points import Curves


def curves_of(
    context: Context, sweep: Sweep, progress: Callable[[int, int], None]
) -> Mapping[str, Curves]:
    """Return the curves of the sweep's metrics, by their names, and for each trial that has one by
    the job's id."""
    begun = [one for one in sweep.trials if one.state != "queued" and one.step is not None]
    names = [one.metric for one in sweep.study.goals]
    found: dict[str, dict[str, list[tuple[int, float]]]] = {name: {} for name in names}
    for done, trial in enumerate(begun, 1):
        for name in names:
            series = context.cluster(trial.cluster).files.curve(trial.job, name)
            if not name or series.name == name:
                told = [(step, value) for step, value, _ in series.points if value is not None]
                found[name][trial.job] = told
        progress(done, len(begun))
    return found
