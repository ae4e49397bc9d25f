"""Opens a running job's folder in an editor of this machine."""

from __future__ import annotations

import shlex
import sys

import click

from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import host_option, job_argument, rank_option
from dray.cli.terminal import say, tell
from dray.errors import NotFound, Refused


@click.command("code")
@job_argument(or_latest=True)
@rank_option
@host_option
@click.option("--with", "program", metavar="PROGRAM", default="", help="The editor's program.")
def command(job: str | None, rank: int, host: bool, program: str) -> None:
    """Open the folder of a running job (the latest, if none is named) in VS Code, or in Cursor or
    VSCodium where that is what is installed, through their Remote-SSH.

    What you change there is changed in the job's own work tree, which goes with its attempt.
    """
    from dray.programs import editors
    from dray.sessions.ssh import config

    verbs = launcher()
    access = verbs.ssh
    target = access.target(named_or_latest(verbs, job), rank=rank, host=host)
    beside = access.look(target)
    found = editors.find(program)
    line = shlex.join(editors.words(editors.KNOWN[0], target.name, beside.folder))
    if found is None and program:
        raise NotFound(
            f"there is no program '{program}' on this machine",
            hint=f"--with takes an editor's program: {', '.join(editors.KNOWN)}, or its path.",
        )
    if found is None:
        raise NotFound(
            "no program of VS Code, Cursor or VSCodium is in PATH here",
            hint=f"Its command 'Install … command in PATH' puts it there; then: {line}",
        )
    if not config.is_set_up(access.keys):
        allow(config.include_line(config.path_of(access.keys)))
        for changed in config.set_up(access.keys):
            say(changed)
    argv = editors.words(found, target.name, beside.folder)
    why = editors.start(argv)
    if why:
        raise Refused(f"{found}: {why}", hint=f"The command was: {shlex.join(argv)}")
    tell(f"{target.name}:{beside.folder}")


def allow(line: str) -> None:
    """Ask whether ssh's own file may be changed."""
    if not sys.stdin.isatty():
        raise Refused(
            "editors find jobs through ~/.ssh/config, which does not know of them yet",
            hint="dray ssh --config adds the line.",
        )
    say(f"Editors find jobs through ~/.ssh/config; one line has to be added to it: {line}")
    if not click.confirm("Add it?", default=True, err=True):
        raise click.Abort
