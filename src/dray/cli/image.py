from __future__ import annotations

import click

from dray.cli.image_build import build


@click.group("image")
def command() -> None:
    """Build, push, list and remove the images that jobs run in."""


command.add_command(build)
