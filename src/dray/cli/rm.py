"""Removes ended jobs and their files."""

from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument
from dray.cli.terminal import say, visible
from dray.node.jobs.arrays import fold


@click.command("rm")
@job_argument(many=True)
def command(jobs: tuple[str, ...]) -> None:
    """Remove ended jobs with their outputs and logs. Pull first what you want to keep."""
    verbs = launcher()
    ids = verbs.find_all(jobs)  # a wrong name, and nothing is removed
    for name in fold(verbs.remove_all(ids)):
        say(f"removed {visible(name)}")
