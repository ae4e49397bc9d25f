from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument
from dray.cli.wait import tell_end, tell_ends


@click.command("stop")
@job_argument(many=True)
@click.option("--now", is_flag=True, help="Kill at once, without asking for a checkpoint.")
def command(jobs: tuple[str, ...], now: bool) -> None:
    """Stop jobs: ask for a checkpoint, then end the command; wait until that is done."""
    verbs = launcher()
    ids = verbs.find_all(jobs)
    if len(ids) == 1:
        tell_end(verbs.stop(ids[0], now=now))
    else:
        tell_ends(verbs.stop_all(ids, now=now))
