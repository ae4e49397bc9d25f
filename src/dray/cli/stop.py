from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument
from dray.cli.wait import tell_end


@click.command("stop")
@job_argument(many=True)
@click.option("--now", is_flag=True, help="Kill at once, without asking for a checkpoint.")
def command(jobs: tuple[str, ...], now: bool) -> None:
    """Stop jobs: ask for a checkpoint, then end the command; wait until that is done."""
    verbs = launcher()
    for job_id in [verbs.find(job) for job in jobs]:
        tell_end(verbs.stop(job_id, now=now))
