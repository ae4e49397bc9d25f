"""Puts a ticket for a cluster's admins together."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

import click

from dray.cli.output import launcher, named_or_latest, print_json
from dray.cli.parameters import job_argument, json_option
from dray.cli.terminal import joined, multiline, say, tell
from dray.config import loading as configuration
from dray.errors import StorageError
from dray.job.model import JSON_VERSION
from dray.launcher.tickets import Ticket


@click.command("ticket")
@job_argument(or_latest=True)
@click.option("--to", "target", type=click.Path(path_type=Path), help="The file to write.")
@click.option("--yes", is_flag=True, help="Write it without asking.")
@json_option
def command(job: str | None, target: Path | None, yes: bool, as_json: bool) -> None:
    """Put together what a cluster's admins need to help with a job: a mail, the script, what the
    scheduler says of it, its events and last lines, nodes, versions, and doctor's findings.

    Secrets are taken out. All of it is shown before it is written; nothing is sent.
    """
    verbs = launcher()
    found = verbs.ticket(named_or_latest(verbs, job))
    if as_json:
        print_json({"version": JSON_VERSION, **found._asdict(), "files": dict(found.files)})
        return
    show(found)
    path = configuration.current_folder() / (target or Path(f"ticket-{found.job}.tar.gz"))
    if not yes and not is_wanted(path):
        return
    write(path, found.archive())
    tell(str(path))
    address = f"mailto:{quote(found.to, safe='@')}?subject={quote(found.subject[:200])}"
    say(f"Read it once more, then send it to {found.to or 'the admins'}:  {address}")


def show(found: Ticket) -> None:
    for name, text in {"mail.txt": found.mail, **found.files}.items():
        tell(joined(f"=== {name}"))
        tell(multiline(text.rstrip("\n")))
    tell("")


def is_wanted(path: Path) -> bool:
    """Ask whether it is to be written, where somebody can answer."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        say("nothing is written yet: call it again with --yes")
        return False
    return click.confirm(f"Write this to {path}?", default=False, err=True)


def write(path: Path, content: bytes) -> None:
    """Write a new file that only the user can read."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise StorageError(f"{path} exists", hint="Choose another file with --to.") from error
    with os.fdopen(fd, "wb") as file:
        file.write(content)
