from __future__ import annotations

from pathlib import Path

import click

from dray.cli.output import launcher, say
from dray.cli.parameters import job_argument


@click.command("pull")
@job_argument()
@click.argument(
    "target", metavar="[DEST]", required=False, type=click.Path(file_okay=False, path_type=Path)
)
def command(job: str, target: Path | None) -> None:
    """Bring the outputs into DEST (default: a folder named as the job).

    Can be repeated, also while the job runs: only new and changed files are copied. A DEST that was
    not there or empty is never part of a snapshot.
    """
    folder, copied, count = launcher().pull(job, target)
    click.echo(folder)
    say(f"{copied} of {count} files copied" if count else "the job has no outputs (yet)")
