"""Reads sweeps of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.terminal import multiline, say, tell
from dray.errors import UsageError
from dray.sweep.importing.found import Imported
from dray.sweep.options import USUAL_TRIALS


@click.command("import")
@click.argument("path", metavar="[FILE.yaml]", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--isaaclab",
    metavar="FILE.py:CLASS",
    help="A JobCfg class of Isaac Lab's tuner. Runs the file.",
)
@click.option("--ray", metavar="FILE.py:NAME", help="A dict of ray.tune's domains. Runs the file.")
@click.option(
    "--num-samples",
    type=click.IntRange(1),
    metavar="N",
    help="As the tuner has it, with repeats.  [default: 100; with --ray 50, without repeats]",
)
@click.option(
    "--repeat-run-count",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="As Isaac Lab's tuner has it.",
)
def import_sweep(
    path: str | None,
    isaaclab: str | None,
    ray: str | None,
    num_samples: int | None,
    repeat_run_count: int,
) -> None:
    """Turn a sweep of another tool into a file for dray sweep start, on stdout.

    FILE.yaml is a sweep of Weights & Biases. Notes on what is different are comments in the
    result.
    """
    if sum(map(bool, (path, isaaclab, ray))) != 1:
        raise UsageError(
            "name one: FILE.yaml, --isaaclab FILE.py:CLASS or --ray FILE.py:NAME",
            hint="dray sweep import sweep.yaml > sweep.toml",
        )
    if path:
        found = from_yaml(Path(path))
    else:
        found = from_python(isaaclab, ray, num_samples, repeat_run_count)
    tell(multiline(found.toml().rstrip("\n")))
    say_notes(found)


def say_notes(found: Imported) -> None:
    for note in found.notes:
        say(f"note: {note}")


def from_yaml(path: Path) -> Imported:
    from dray.config.migration import read_text
    from dray.sweep.importing import wandb

    text = read_text(path)
    if not wandb.recognises(text):
        raise UsageError(f"{path}: this is no sweep of W&B: it has method: and parameters:")
    return wandb.read(text)


def from_python(
    isaaclab: str | None, ray: str | None, samples: int | None, repeats: int
) -> Imported:
    from dray.sweep.importing import python_space

    if file := (isaaclab or ray or "").rpartition(":")[0]:
        say(f"running {file} in a Python process of its own")
    if isaaclab:
        return python_space.isaaclab(isaaclab, samples or python_space.ISAAC_SAMPLES, repeats)
    return python_space.ray(ray or "", samples or USUAL_TRIALS)
