"""Trusts a project's dray.toml, or revokes that."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.terminal import say, tell
from dray.config import loading as configuration
from dray.config import trust
from dray.config.editing import value
from dray.config.reading import read_document
from dray.config.toml_lines import show_key
from dray.errors import NotFound
from dray.home import find_home
from dray.project import PROJECT_FILE, find_project


@click.command("trust")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting it.")
def command(file: Path | None, revoke: bool) -> None:
    """Trust FILE (default: the project's dray.toml) as it is now, and show what that changes.

    Until you trust it, a project's file cannot choose hosts, run programs outside the job, or send
    secrets. After any change it has to be trusted again.
    """
    path = file or find_project(configuration.current_folder()) / PROJECT_FILE
    home = find_home()
    records = trust.Records(home.data)
    if revoke:
        was = records.revoke(path)
        say(f"{path} is trusted no more" if was else f"{path} was not trusted")
        return
    document = read_document(path)
    if document is None:
        raise NotFound(f"there is no {path}")
    changes = trust.effects(document, configuration.own_settings(home))
    for line, key, one in changes:
        tell(f"{path}:{line}: {show_key(key)} = {value(one)}")
    if changes:
        records.add(document)
    say(f"{path} is trusted as it is now" if changes else f"nothing in {path} needs to be trusted")
