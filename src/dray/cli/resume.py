"""Starts another attempt of an ended job."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.output import launcher
from dray.cli.parameters import job_argument, job_flags, limit_options, refuse_empty
from dray.cli.terminal import say, tell


@click.command("resume")
@job_argument()
@click.option("--update-code", is_flag=True, help="Continue with the project's code as it is now.")
@click.option(
    "--from",
    "start_from",
    metavar="CHECKPOINT|scratch",
    default="",
    callback=refuse_empty,
    help="Continue from this checkpoint among its outputs, or start from scratch; newer "
    "checkpoints are set aside.",
)
@click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="A further secret for the job. If another machine has submitted it, name all its secrets. "
    "May be repeated.",
)
@limit_options
def command(
    job: str, update_code: bool, start_from: str, secrets: tuple[str, ...], **limits: Any
) -> None:
    """Start another attempt of an ended job from its newest valid checkpoint.

    Its own limits (--total-time, --gpu-hours) still hold, and count all attempts: a job that has
    used them up needs higher ones."""
    job_id = launcher(submits=True).resume(
        job,
        update_code=update_code,
        start_from=start_from,
        secrets=secrets,
        limits=job_flags(limits),
    )
    tell(job_id)
    say(f"queued; follow it with: dray logs -f {job_id}")
