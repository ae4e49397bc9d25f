from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument
from dray.cli.terminal import say, tell


@click.command("resume")
@job_argument()
@click.option("--update-code", is_flag=True, help="Go on with today's code of the project.")
@click.option(
    "--from",
    "start_from",
    metavar="CHECKPOINT|scratch",
    default="",
    help="Go on from this checkpoint among its outputs, or begin anew; newer ones are set aside.",
)
@click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="Give it this secret, too. Those of a job that another machine has submitted have to be "
    "named here. May be repeated.",
)
def command(job: str, update_code: bool, start_from: str, secrets: tuple[str, ...]) -> None:
    """Start another attempt of an ended job from its newest valid checkpoint."""
    job_id = launcher(submits=True).resume(
        job, update_code=update_code, start_from=start_from, secrets=secrets
    )
    tell(job_id)
    say(f"queued; follow it with: dray logs -f {job_id}")
