"""Opens a shell beside a job's command, or on a node of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import (
    host_option,
    idle_option,
    job_argument,
    job_flags,
    job_settings,
    rank_option,
    sync_option,
)
from dray.cli.terminal import say
from dray.errors import DrayError, UsageError
from dray.launcher import Launcher

SESSION = {"job.name": "shell", "job.recipe": "generic"}


@click.command("shell")
@job_argument(or_latest=True)
@rank_option
@host_option
@click.option("--new", is_flag=True, help="Open another shell, also where one was left.")
@sync_option
@idle_option("End a session in which nothing was typed or computed for so long.")
@job_settings
@click.pass_context
def command(
    context: click.Context,
    /,
    job: str | None,
    rank: int,
    host: bool,
    new: bool,
    sync: bool,
    idle: float | None,
    no_snapshot: bool,
    notify: bool | None,
    **values: Any,
) -> int:
    """Open a shell on the node of a running job (the latest, if none is named), beside its command:
    with its variables, GPUs, folder and container.

    With options that describe a job, such as --on or --gpus, it starts a session: a job that only
    holds a node for you, with the code of this folder. It waits in the queue like any other
    (Ctrl-C gives up), and ends with its last shell, after --idle, or at --time.

    A lost connection is made again, and the shell is still there; for ten minutes also after this
    command has ended, in a session for as long as that lasts, and then dray shell JOB comes back to
    it. ~. at the beginning of a line leaves, as in ssh. The shell ends with the job's attempt.
    """
    flags = job_flags(values)
    idle_is_given = context.get_parameter_source("idle") is click.core.ParameterSource.COMMANDLINE
    if not (flags or no_snapshot or idle_is_given or notify is not None):
        verbs = launcher()
        reference = named_or_latest(verbs, job)
        return verbs.sessions.show(reference, None, rank=rank, host=host, again=not new, sync=sync)
    if job is not None:
        raise UsageError(
            f"{job} is there already: what describes a new session does not go with it",
            hint=f"dray shell {job} enters it; leave the job out to start a session.",
        )
    verbs = launcher({**SESSION, **flags, "job.launch": "none"}, submits=True)
    job_id = start(verbs, idle, snapshot=not no_snapshot, notify=notify)
    return verbs.sessions.show(job_id, None, rank=rank, host=host, sync=sync)


def start(verbs: Launcher, idle: float | None, *, snapshot: bool, notify: bool | None) -> str:
    """Start a session, and wait until it can be entered; return its id. Who gives up waiting ends
    it."""
    from dray.node.sessions.commands import command_of_session
    from dray.sessions.showing import require_terminal

    require_terminal()
    verbs.sessions.require_way(verbs.cluster(verbs.config.on))
    job_id = verbs.run(command_of_session(idle), snapshot=snapshot, notify=notify)
    try:
        with interrupted_by(signal.SIGTERM, signal.SIGHUP):
            verbs.sessions.wait(job_id)
    except KeyboardInterrupt:
        say("")  # the terminal shows ^C
        say(f"{job_id} is stopped")
        verbs.stop(job_id, now=True)
        raise
    except DrayError:
        say(f"{job_id} may go on: dray shell {job_id} enters it, dray stop {job_id} ends it")
        raise
    say(f"{job_id} ends with its last shell; ~. leaves it, and dray shell {job_id} comes back")
    return job_id


@contextmanager
def interrupted_by(*numbers: int) -> Iterator[None]:
    """Let these signals interrupt, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
