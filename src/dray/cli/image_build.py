"""Builds images with docker or podman."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from dray.cli.output import one_line
from dray.cli.terminal import multiline, say, tell
from dray.errors import UsageError
from dray.images.building import Build
from dray.images.ray_layer import VERSION, RayLayer


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
@click.option(
    "--ray",
    is_flag=False,
    flag_value=VERSION,
    metavar="[VERSION]",
    help="Put Ray on top, for clusters of KubeRay's; the name ends in -ray then, unless --tag says "
    f"another.  [default of VERSION: {VERSION}]",
)
@click.option(
    "--from",
    "base",
    metavar="IMAGE",
    help="With --ray: an image of docker, podman or a registry, instead of a Dockerfile.",
)
@click.option(
    "--python",
    metavar="PROGRAM",
    help="With --ray: the image's Python that gets Ray, such as /isaac-sim/python.sh.  "
    "[default: python3]",
)
@click.option(
    "--with",
    "packages",
    metavar="PACKAGE[,PACKAGE…]",
    help="With --ray: further packages, such as optuna,mlflow.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be built; do nothing.")
def build(
    where: Path,
    tag: str | None,
    profile: str | None,
    arguments: tuple[str, ...],
    platform: str,
    only_plan: bool,
    **of_ray: str | None,
) -> None:
    """Build an image with docker or podman, whichever is there, and print its id.

    The Dockerfile's own folder is what it can copy from. Isaac Lab's profiles are built as its
    container.sh does: after those that they stand on, with the values in .env.base and .env.NAME,
    under the name isaac-lab-NAME.
    """
    from dray.images import building, engine

    given = dict(map(read_argument, arguments))
    layer = read_layer(of_ray)
    base = of_ray["base"]
    if base:
        if profile or arguments or where != Path():
            raise UsageError("--from IMAGE stands in the place of a Dockerfile: name one of them")
        builds = []
    else:
        builds = building.plan(where, None if layer else tag, profile, given)
    builds = [one._replace(platform=platform) for one in builds]
    program = engine.usable()
    if only_plan:
        if layer:
            builds.append(on_top(layer, base, builds, tag, program)._replace(platform=platform))
        tell(multiline("\n".join(map(partial(planned, program), builds))))
        return
    number = ""
    if base:
        engine.ensure(program, base, platform)
    for one in builds:
        number = run(program, one)
    if layer:
        number = run(program, on_top(layer, base, builds, tag, program)._replace(platform=platform))
    tell(number)


def run(program: str, what: Build) -> str:
    from dray.images import engine

    say(f"building {what.tag} from {what.dockerfile} with {program}")
    return engine.build(program, what)


def on_top(
    layer: RayLayer, base: str | None, builds: Sequence[Build], tag: str | None, program: str
) -> Build:
    """Plan the image with Ray. Before its base is built, or pulled, its Dockerfile tells all that
    is known of the user there."""
    from dray.images import engine
    from dray.images.ray_layer import user_in

    below = base or builds[-1].tag
    user = engine.user_of(program, below)
    if user is None:
        user = user_in(builds[-1].dockerfile.read_text("utf-8")) if builds else ""
    return layer.build(below, tag, user)


def planned(program: str, what: Build) -> str:
    """Show a build: its command, and the Dockerfile where that is dray's own."""
    context = [] if what.text else [str(what.context)]
    return "\n".join([one_line([*what.words(program), *context]), *what.text.splitlines()])


def read_layer(given: Mapping[str, str | None]) -> RayLayer | None:
    """Read what is to be put on top; None for nothing."""
    from dray.images.ray_layer import layer_of

    version = given["ray"]
    if version is None:
        flags = {"base": "--from", "python": "--python", "packages": "--with"}
        for name, flag in flags.items():
            if given[name]:
                raise UsageError(f"{flag} goes with --ray")
        return None
    packages = [one.strip() for one in (given["packages"] or "").split(",")]
    return layer_of(version, given["python"] or "python3", [one for one in packages if one])


def read_argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--build-arg")
    return name, value
