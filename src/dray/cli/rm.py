from __future__ import annotations

import click

from dray.cli.output import launcher, say
from dray.cli.parameters import job_argument


@click.command("rm")
@job_argument(many=True)
def command(jobs: tuple[str, ...]) -> None:
    """Remove ended jobs with their outputs and logs. Pull first what you want to keep."""
    verbs = launcher()
    for job_id in [verbs.find(job) for job in jobs]:  # a wrong name, and nothing is removed
        say(f"removed {verbs.remove(job_id)}")
