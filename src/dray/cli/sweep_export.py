"""Writes sweeps for other tools, and draws them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dray.cli.output import launcher, progress, terminal_width
from dray.cli.parameters import ClusterName
from dray.cli.sweep_ids import SweepId
from dray.cli.terminal import lines, multiline, say, tell
from dray.config.loading import environment
from dray.errors import Refused, UsageError
from dray.job.quantities import show_count
from dray.launcher import Launcher
from dray.launcher.sweep_views import Sweep

if TYPE_CHECKING:
    from dray.sweep.export.points import Curves

STDOUT = "-"
ALIKE = 10  # bytes that files of the same kind begin with: trial,conf, <svg xmlns, { "sweep"
WIDEST = 120
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
on_option = click.option(
    "--on", type=ClusterName(), help="The cluster of a sweep that another machine has submitted."
)


def looked_at(verbs: Launcher, sweep: str, on: str | None) -> Sweep:
    return verbs.sweeping.look(sweep if on else verbs.sweeping.find(sweep), on)


# -- export ---------------------------------------------------------------------------------------


@click.command("export")
@click.argument("sweep", type=SweepId(), required=False)
@click.option("--csv", "csv_path", metavar="FILE", help="A line for each trial; - for stdout.")
@click.option("--json", "json_path", metavar="FILE", help="Everything; - for stdout.")
@click.option("--tensorboard", metavar="DIR", type=FOLDER, help="A run for each trial.")
@click.option("--mlflow", metavar="URI", help="A run for each trial, on an MLflow server.")
@click.option(
    "--experiment", metavar="NAME", help="The experiment there.  [default: the sweep's id]"
)
@click.option("--optuna", metavar="FILE", type=FILE, help="A journal that optuna-dashboard opens.")
@click.option("--no-curves", is_flag=True, help="Only the values that trials were compared by.")
@click.option(
    "--from-mlflow", metavar="URI", help="Instead of a sweep: an experiment, for --tensorboard."
)
@on_option
def export(
    sweep: str | None,
    csv_path: str | None,
    json_path: str | None,
    tensorboard: Path | None,
    mlflow: str | None,
    experiment: str | None,
    optuna: Path | None,
    no_curves: bool,
    from_mlflow: str | None,
    on: str | None,
) -> None:
    """Write a sweep for another tool. It can be repeated while the sweep runs: nothing is there
    twice.

    MLflow's credentials are those that its own client takes: MLFLOW_TRACKING_TOKEN, or
    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
    """
    if from_mlflow:
        bring(from_mlflow, experiment, tensorboard, sweep)
        return
    if sweep is None:
        raise UsageError("which sweep?", hint="dray sweep status lists them.")
    if not any((csv_path, json_path, tensorboard, mlflow, optuna)):
        raise UsageError(
            "nothing to write", hint="Name one of --csv, --json, --tensorboard, --mlflow, --optuna."
        )
    if csv_path == json_path == STDOUT:
        raise UsageError("--csv - and --json - both go to stdout: write one of them to a file")
    verbs = launcher()
    found = looked_at(verbs, sweep, on)
    write_tables(found, csv_path, json_path)
    if optuna:
        from dray.sweep.export import optuna as journal

        journal.write(optuna, found.study, found.trials)
        say(f"{optuna}: optuna-dashboard {optuna} shows it")
    if tensorboard or mlflow:
        from dray.launcher.sweep_curves import curves_of

        context = verbs.sweeping.context
        curves = {} if no_curves else curves_of(context, found, progress("curves"))
        write_runs(found, curves, tensorboard, mlflow, experiment or "")


def write_tables(found: Sweep, csv_path: str | None, json_path: str | None) -> None:
    from dray.sweep.export import tables

    for path, written in ((csv_path, tables.as_csv), (json_path, tables.as_json)):
        if path:
            text = written(found.study, found.trials)
            if path == STDOUT:
                tell(multiline(text.rstrip("\n")))
            else:
                write_text(Path(path), text)
                say(f"{path}: {show_count(len(found.trials), 'trial')}")


def write_text(path: Path, text: str) -> None:
    """Write a file. What a cluster told that is no Unicode is spelled. A file that begins unlike
    this one was not written here before, and is not replaced."""
    content = text.encode("utf-8", "backslashreplace")
    if (path.is_file() or path.is_symlink()) and not is_alike(path, content[:ALIKE]):
        raise Refused(
            f"{path} is there, and is no such file: it is not replaced",
            hint="Name another file, or remove it first.",
        )
    path.write_bytes(content)


def is_alike(path: Path, begins: bytes) -> bool:
    """Return whether a file begins like this, or is empty; of a link, which a cloned folder may
    hold, only whether it begins like this."""
    if not path.is_file():
        return path.exists()  # a link to a terminal or a pipe; one that leads nowhere is none
    with path.open("rb") as file:
        found = file.read(len(begins))
    return found == begins or (not found and not path.is_symlink())


def write_runs(
    found: Sweep,
    curves: Mapping[str, Curves],
    folder: Path | None,
    address: str | None,
    experiment: str,
) -> None:
    from dray.sweep import mlflow
    from dray.sweep.export import tensorboard, to_mlflow

    if folder:
        number = tensorboard.write(folder, found.study, found.trials, curves)
        say(f"{folder}: {show_count(number, 'run')}; tensorboard --logdir {folder} shows them")
    if address:
        server = mlflow.Server(address, environment())
        number = to_mlflow.export(
            server, found.study, found.trials, experiment, curves, progress("MLflow")
        )
        say(f"{server.address}: {show_count(number, 'run')} of '{experiment or found.study.id}'")


def bring(address: str, experiment: str | None, folder: Path | None, sweep: str | None) -> None:
    """Write an experiment of an MLflow server for TensorBoard."""
    from dray.sweep import mlflow
    from dray.sweep.export import from_mlflow

    if not experiment or not folder or sweep:
        raise UsageError(
            "--from-mlflow URI goes with --experiment NAME and --tensorboard DIR, and no sweep"
        )
    server = mlflow.Server(address, environment())
    found = from_mlflow.bring(server, experiment, folder, progress("runs"))
    there = f"; {show_count(found.present, 'run')} were there" if found.present else ""
    say(f"{folder}: {show_count(found.written, 'run')}{there}")


# -- pictures -------------------------------------------------------------------------------------


@click.command("picture")
@click.argument("sweep", type=SweepId())
@click.option("--importance", metavar="FILE.svg", type=FILE, help="What matters, as bars.")
@click.option("--parallel", metavar="FILE.svg", type=FILE, help="All configurations, as lines.")
@click.option("--metric", metavar="NAME", help="By which metric.  [default: the first]")
@on_option
def picture(
    sweep: str, importance: Path | None, parallel: Path | None, metric: str | None, on: str | None
) -> None:
    """Show which parameters matter, and where the best configurations lie: here, or as SVG
    pictures."""
    from dray.sweep import pictures
    from dray.sweep.objectives import by_metric

    for path in (importance, parallel):
        if path and path.suffix.lower() not in ("", ".svg"):
            raise UsageError(f"{path}: pictures are SVG files", hint=f"{path.with_suffix('.svg')}")
    found = looked_at(launcher(), sweep, on)
    study, trials = by_metric(found.study, found.trials, metric or "")
    wanted = ((importance, pictures.importance_picture), (parallel, pictures.parallel_picture))
    for path, drawn in wanted:
        if path:
            write_text(path, drawn(study, trials))
            say(f"{path}")
    if not importance and not parallel:
        width = min(terminal_width(), WIDEST)
        tell(lines(pictures.terminal(study, trials, width)))
