"""Builds images with docker or podman."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.terminal import say, tell


@click.command("build")
@click.argument(
    "where", metavar="[FOLDER|DOCKERFILE]", default=".", type=click.Path(path_type=Path)
)
@click.option("--tag", metavar="NAME", help="The image's name.  [default: the folder's]")
@click.option(
    "--profile",
    metavar="NAME",
    help="One of Isaac Lab's profiles, such as base or ros2, or your own Dockerfile.NAME beside "
    "them.  [default: base, where there is no other Dockerfile]",
)
@click.option(
    "--build-arg",
    "arguments",
    metavar="NAME=VALUE",
    multiple=True,
    help="A value for an ARG of the Dockerfile. May be repeated.",
)
@click.option(
    "--platform",
    metavar="OS/ARCH",
    default="",
    help="The platform to build for, such as linux/amd64.  [default: this machine's]",
)
def build(
    where: Path, tag: str | None, profile: str | None, arguments: tuple[str, ...], platform: str
) -> None:
    """Build an image with docker or podman, whichever is there, and print its id.

    The Dockerfile's own folder is what it can copy from. Isaac Lab's profiles are built as its
    container.sh does: after those that they stand on, with the values in .env.base and .env.NAME,
    under the name isaac-lab-NAME.
    """
    from dray.images import building, engine

    builds = building.plan(where, tag, profile, dict(map(read_argument, arguments)))
    program = engine.usable()
    number = ""
    for one in builds:
        say(f"building {one.tag} from {one.dockerfile} with {program}")
        number = engine.build(program, one._replace(platform=platform))
    tell(number)


def read_argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--build-arg")
    return name, value
