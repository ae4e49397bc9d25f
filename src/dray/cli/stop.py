"""Stops jobs."""

from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument
from dray.cli.wait import tell_ends


@click.command("stop")
@job_argument(many=True)
@click.option("--now", is_flag=True, help="Kill at once, without asking for a checkpoint.")
def command(jobs: tuple[str, ...], now: bool) -> None:
    """Stop jobs: ask for a checkpoint, then end the command, and wait until it has ended."""
    verbs = launcher()
    tell_ends(verbs.stop_all(verbs.find_all(jobs), now=now))
