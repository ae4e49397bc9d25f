"""Brings the runs of an MLflow experiment into folders that TensorBoard reads: run_<id>, with
params/ and tags/ as texts and metrics/ as curves.

The name of a run's file says when the run ended: what is over and here is not asked for again, and
a file is in its place only when it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dray.node.formats.files import write_bytes
from dray.records import NamedTuple
from dray.sweep import mlflow
from dray.sweep.export import event_files


class Brought(NamedTuple):
    written: int
    present: int  # runs that were here already


def bring(
    server: mlflow.Server,
    experiment: str,
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Brought:
    """Write a folder for each run of the experiment."""
    runs = list(server.runs(server.experiment(experiment)))
    written = 0
    for done, run in enumerate(runs):
        own = folder / f"run_{run.id}"
        name = f"events.out.tfevents.{run.end // 1000 if run.is_over else 0}.dray"
        if not run.is_over or not (own / name).exists():
            os.makedirs(own, exist_ok=True)
            write_bytes(str(own / name), content(server, run), durable=False)
            remove_others(own, name)
            written += 1
        progress(done + 1, len(runs))
    return Brought(written, len(runs) - written)


def content(server: mlflow.Server, run: mlflow.Run) -> bytes:
    start = run.start / 1000
    parts = [event_files.version(start)]
    for kind, table in (("params", run.params), ("tags", run.tags)):
        parts += [
            event_files.string(f"{kind}/{name}", value, start) for name, value in table.items()
        ]
    for metric in run.metrics:
        points = sorted(server.history(run.id, metric), key=lambda one: (one.step, one.time))
        parts += [
            event_files.scalar(f"metrics/{metric}", one.value, one.step, one.time / 1000)
            for one in points
        ]
    return b"".join(parts)


def remove_others(folder: Path, name: str) -> None:
    """Remove what an earlier look at a running run has written."""
    for path in folder.glob("events.out.tfevents.*.dray"):
        if path.name != name:
            with suppress(FileNotFoundError):
                path.unlink()
