from __future__ import annotations

from pathlib import Path

import click

from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import job_argument
from dray.cli.terminal import say, tell

LONGEST = 200  # characters of a file's path


@click.command("pull")
@job_argument(or_latest=True)
@click.argument(
    "target", metavar="[DEST]", required=False, type=click.Path(file_okay=False, path_type=Path)
)
def command(job: str | None, target: Path | None) -> None:
    """Bring the outputs of a job (the latest, if none is named) into DEST.

    The default is a folder named as the job.

    Can be repeated, also while the job runs: only new and changed files are copied. A DEST that was
    not there or empty is the job's own, and never part of a snapshot; in any other one, files that
    are not of an earlier pull are left as they are.
    """
    verbs = launcher()
    pulled = verbs.pull(named_or_latest(verbs, job), target)
    tell(str(pulled.folder))
    copied, files = pulled.copied, pulled.files
    say(f"{copied} of {files} files copied" if files else "the job has no outputs (yet)")
    if pulled.left:
        some = ", ".join(path[:LONGEST] for path in pulled.left[:3]) + (
            " …" if len(pulled.left) > 3 else ""
        )
        number = "1 file was" if len(pulled.left) == 1 else f"{len(pulled.left)} files were"
        say(f"{number} not copied (links out of the outputs, git files, unsafe names): {some}")
