from __future__ import annotations

import shutil
import sys
from importlib import resources
from pathlib import Path

import click

from dray.cli.log_filter import LogPrinter
from dray.cli.output import in_color, launcher_for
from dray.cli.plot import Point, read_curve, svg_plot, terminal_plot
from dray.cli.terminal import only_colors, say, tell
from dray.cli.wait import tell_end
from dray.config import loading as configuration
from dray.errors import UsageError
from dray.job.model import Attempt
from dray.job.quantities import show_duration
from dray.launcher import Launcher

SETTINGS = """\
# The demo's job: so short a time limit that the training is interrupted several times.
[job]
name = "cartpole"

[job.resources]
time = "5s"

[job.resume]
checkpoint = "checkpoints/*.json"          # below $DRAY_OUTPUTS
resume_args = ["--resume", "{checkpoint}"]
checkpoint_signal = "USR1"                 # asks train.py for a checkpoint
grace = "1s"
"""


@click.command("demo")
@click.argument("folder", default="dray-demo", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> int:
    """Train a cart-pole policy on this machine, interrupted by a time limit of five seconds.

    FOLDER (default: dray-demo) is made for it: the trainer, its dray.toml, and at the end the
    outputs and a picture of the learning curve.
    """
    lay_out(folder)
    verbs = launcher_for(configuration.load(folder.absolute()))
    job_id = verbs.run([sys.executable, "train.py"])
    say(f"{job_id}: training {folder}/train.py, with a time limit of 5 s for each attempt")
    try:
        report_attempts(verbs, job_id)
    except KeyboardInterrupt:
        say("")  # the terminal shows ^C
        say(f"the job goes on; stop it with: dray stop {job_id}")
        raise
    view = verbs.wait(job_id)
    code = tell_end(view)
    outputs = verbs.pull(job_id, folder / "outputs" / job_id).folder
    if (outputs / "curve.csv").exists():
        draw(read_curve(outputs / "curve.csv"), folder / "curve.svg")
    return code


def lay_out(folder: Path) -> None:
    train = resources.files("dray.demo").joinpath("train.py").read_text("utf-8")
    wanted = {"train.py": train, "dray.toml": SETTINGS}
    for name, content in wanted.items():
        path = folder / name
        if path.exists() and path.read_text("utf-8") != content:
            raise UsageError(
                f"{path} is there already, and is not the demo's",
                hint="Name another folder: dray demo FOLDER",
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in wanted.items():
        (folder / name).write_text(content, "utf-8")


def report_attempts(verbs: Launcher, job_id: str) -> None:
    """Print the trainer's lines as they come, and what happened between them."""
    before = 0
    with LogPrinter(to_stderr=True) as printer:
        for attempt, piece in verbs.logs(job_id, follow=True):
            if attempt != before:
                printer.end_attempt()
                if before:
                    say(f"   {ending(verbs.show(job_id).attempts[before - 1])}")
                say(f"── attempt {attempt}")
                before = attempt
            printer.write(piece)


def ending(attempt: Attempt) -> str:
    took = show_duration((attempt.ended or 0) - (attempt.started or 0))
    return f"{attempt.outcome} after {took}: {attempt.reason}; saved {attempt.checkpoint}"


def draw(points: list[Point], picture: Path) -> None:
    attempts = len({point.attempt for point in points})
    title = f"Cart-pole: mean return over {attempts} attempts of one job"
    picture.write_text(svg_plot(points, title), "utf-8")
    width = min(shutil.get_terminal_size().columns, 100)
    tell(only_colors(terminal_plot(points, width, 18, in_color())))
    say(f"the picture: {picture}")
