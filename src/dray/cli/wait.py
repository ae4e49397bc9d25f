from __future__ import annotations

import click

from dray.cli.output import launcher, say
from dray.cli.parameters import job_argument
from dray.model import JobState, JobView
from dray.quantities import parse_duration


@click.command("wait")
@job_argument(many=True)
@click.option("--timeout", metavar="TIME", help="Give up after this long (exit code 9).")
def command(jobs: tuple[str, ...], timeout: str | None) -> int:
    """Wait until the jobs have ended. Exit code 0 if all are done, 1 if one is not."""
    try:
        seconds = parse_duration(timeout) if timeout else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--timeout") from error
    verbs = launcher()
    ids = [verbs.find(job) for job in jobs]
    return max(tell_end(verbs.wait(job_id, seconds)) for job_id in ids)


def tell_end(view: JobView) -> int:
    """Say how it ended; the exit code for that."""
    say(f"{view.id} is {view.state}{f': {view.reason}' if view.reason else ''}")
    return 0 if view.state is JobState.DONE else 1
