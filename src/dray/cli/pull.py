"""Copies a job's outputs to this machine."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import job_argument, refuse_empty
from dray.cli.terminal import say, tell
from dray.clusters.protocol import Selection
from dray.job.quantities import show_size

LONGEST = 200  # characters of a file's path


@click.command("pull")
@job_argument(or_latest=True)
@click.argument(
    "target", metavar="[DEST]", required=False, type=click.Path(file_okay=False, path_type=Path)
)
@click.option(
    "--only",
    "globs",
    metavar="GLOB",
    multiple=True,
    callback=refuse_empty,
    help="Only files that match: '*.pt' in any folder, 'logs/*/model_*.pt', 'videos'. Can be "
    "repeated.",
)
@click.option(
    "--latest-checkpoint",
    is_flag=True,
    help="Only the newest complete checkpoint; with --only, that one as well.",
)
def command(
    job: str | None, target: Path | None, globs: tuple[str, ...], latest_checkpoint: bool
) -> None:
    """Copy the outputs of a job (the latest, if none is named) into DEST.

    The default is a folder with the job's name. Its path is printed to stdout.

    It can be repeated, also while the job runs: only new and changed files are copied. A DEST that
    was missing or empty belongs to the job, and is never part of a snapshot. In any other one,
    files that do not come from an earlier pull are left as they are.

    A GLOB is matched against paths below the outputs: * and ? match within a name, ** matches any
    number of folders, and a GLOB that matches a folder selects everything in it. Nothing else is
    sent.
    """
    verbs = launcher()
    wanted = Selection(globs, latest_checkpoint)
    pulled = verbs.pull(named_or_latest(verbs, job), target, wanted)
    if pulled.folder.exists():
        tell(str(pulled.folder))
    copied, files, size = pulled.copied, pulled.files, show_size(pulled.size)
    say(f"{copied} of {files} files copied, {size}" if files else "the job has no outputs (yet)")
    if pulled.left:
        some = ", ".join(path[:LONGEST] for path in pulled.left[:3]) + (
            " …" if len(pulled.left) > 3 else ""
        )
        number = "1 file was" if len(pulled.left) == 1 else f"{len(pulled.left)} files were"
        say(f"{number} not copied (links out of the outputs, git files, unsafe names): {some}")
