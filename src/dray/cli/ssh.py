"""Logs in to a running job with the real ssh."""

from __future__ import annotations

import os

import click

from dray.cli.output import launcher, launcher_for, named_or_latest
from dray.cli.parameters import JobId, host_option, rank_option
from dray.cli.terminal import say, tell
from dray.errors import DrayError, UsageError


@click.command("ssh")
@rank_option
@host_option
@click.option("--config", "set_up", is_flag=True, help="Let ssh JOB.dray lead into jobs.")
@click.option("--proxy", is_flag=True, hidden=True, help="Be what ssh reaches JOB.dray through.")
@click.option("--prepare", is_flag=True, hidden=True, help="Make JOB.dray ready for ssh.")
@click.argument("job", required=False, type=JobId())
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- WORDS…]")
def command(
    job: str | None,
    words: tuple[str, ...],
    rank: int,
    host: bool,
    set_up: bool,
    proxy: bool,
    prepare: bool,
) -> int:
    """Log in to a running job (the latest, if none is named) with ssh, beside its command: with its
    variables, GPUs, folder and container. WORDS are for ssh: options such as -L, or a command.

    Nothing listens on a port, and the node need not let you log in: an sshd is started in the job
    for this connection. Its keys are made for this job and end with it.

    --config adds one line to ~/.ssh/config, once. From then on ssh JOB.dray works, and with it
    scp, rsync and VS Code's Remote-SSH. Another rank is JOB.rank1.dray, and outside the
    container it is JOB.host.dray.
    """
    if proxy or prepare:
        return serve(job or "", is_proxy=proxy)
    if set_up:
        if job is not None:
            raise UsageError("--config is for all jobs: leave JOB out")
        return configure()
    verbs = launcher()
    access = verbs.ssh
    target = access.target(named_or_latest(verbs, job), rank=rank, host=host)
    access.prepare(target)
    argv = access.words(target, words)
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        raise UsageError("ssh is not there: install OpenSSH's client") from None


def configure() -> int:
    from dray.sessions.ssh import config

    for line in config.set_up(launcher().ssh.keys) or ["ssh knows of jobs already"]:
        say(line)
    tell("ssh JOB.dray")
    return 0


def serve(name: str, *, is_proxy: bool) -> int:
    """Do what ssh has started us for, without a word of the folder that happens to be."""
    from dray.config import loading

    access = launcher_for(loading.load(submits=False)).ssh
    if is_proxy:
        return access.proxy(name)
    try:
        access.prepare_for(name)
    except DrayError:  # ssh goes on, and the proxy tells
        return 1
    return 0
