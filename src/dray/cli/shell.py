"""Opens a shell beside a job's command."""

from __future__ import annotations

import click

from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import host_option, job_argument, rank_option


@click.command("shell")
@job_argument(or_latest=True)
@rank_option
@host_option
@click.option("--new", is_flag=True, help="Open another shell, also where one was left.")
def command(job: str | None, rank: int, host: bool, new: bool) -> int:
    """Open a shell on the node of a running job (the latest, if none is named), beside its command:
    with its variables, GPUs, folder and container.

    A lost connection is made again, and the shell is still there; for ten minutes also after this
    command has ended, and then it comes back to it. ~. at the beginning of a line leaves, as in
    ssh. The shell ends with the job's attempt.
    """
    verbs = launcher()
    reference = named_or_latest(verbs, job)
    return verbs.sessions.show(reference, None, rank=rank, host=host, again=not new)
