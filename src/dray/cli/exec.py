"""Runs a program beside a job's command."""

from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import host_option, job_argument, rank_option


@click.command("exec")
@rank_option
@host_option
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal: for top, htop, a debugger.")
@job_argument()
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM…")
def command(job: str, program: tuple[str, ...], rank: int, host: bool, tty: bool) -> int:
    """Run PROGRAM on the node of a running job, beside its command: with its variables, GPUs,
    folder and container.

    Its arguments, input and output are passed on byte for byte, and its exit code is this
    command's; 128 and the signal's number, if a signal ended it.
    """
    sessions = launcher().sessions
    if tty:
        return sessions.show(job, program, rank=rank, host=host)
    return sessions.execute(job, program, rank=rank, host=host)
