"""Submits a job."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.log_filter import LogPrinter
from dray.cli.logs import print_log
from dray.cli.output import launcher
from dray.cli.parameters import (
    BEFORE_COMMAND,
    before_of,
    job_flags,
    job_options,
    start_options,
)
from dray.cli.terminal import say, tell
from dray.cli.wait import tell_end, tell_failure


@click.command("run", context_settings=BEFORE_COMMAND)
@job_options
@start_options
@click.option("--follow", is_flag=True, help="Print the output and wait until the job has ended.")
def command(
    command: tuple[str, ...],
    no_snapshot: bool,
    start_from: str,
    like: str,
    after: tuple[str, ...],
    inputs: tuple[str, ...],
    notify: bool | None,
    follow: bool,
    **values: Any,
) -> int:
    """Submit COMMAND as a job, with the code of this folder as it is now.

    Prints only the job's id to stdout. The job keeps running after the terminal closes.
    """
    verbs = launcher(job_flags(values), submits=True)
    job_id = verbs.run(
        command,
        snapshot=not no_snapshot,
        start_from=start_from,
        like=like,
        notify=notify,
        before=before_of(after, inputs),
    )
    tell(job_id)
    if not follow:
        say(f"queued; follow it with: dray logs -f {job_id}")
        return 0
    try:
        pieces = verbs.logs(job_id, follow=True)
        print_log(verbs, pieces, job_id, LogPrinter(to_stderr=True))
        view = verbs.wait(job_id)
        code = tell_end(view)
        tell_failure(verbs, view, only_cause=True)
        return code
    except KeyboardInterrupt:
        say("")  # the terminal shows ^C
        say(f"the job goes on; stop it with: dray stop {job_id}")
        raise
