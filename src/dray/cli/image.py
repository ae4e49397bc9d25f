"""Pushes, lists and removes images."""

from __future__ import annotations

import click

from dray.cli.image_build import build
from dray.cli.output import launcher, print_json, table
from dray.cli.parameters import ClusterName, json_option
from dray.cli.terminal import say, tell, visible
from dray.errors import UsageError
from dray.images import registry
from dray.images.verbs import PushedImage
from dray.job.quantities import show_size

on_option = click.option(
    "--on", type=ClusterName(), help="The cluster.  [default: where jobs go, else local]"
)


@click.group("image")
def command() -> None:
    """Build, push, list and remove the images that jobs run in."""


command.add_command(build)


@command.command("push")
@click.argument("image")
@on_option
@click.option("--to", metavar="NAME", help="REGISTRY/NAME:TAG, for a cluster that pulls images.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is ready to run.")
def push(image: str, on: str | None, to: str | None, no_wait: bool) -> None:
    """Bring IMAGE to a cluster and make it ready to run there.

    IMAGE is one of docker or podman, an archive (docker-archive:FILE, oci-archive:FILE, oci:DIR),
    a .sif or .sqsh file, or docker://NAME, which the cluster fetches. Layers that the cluster has
    are not sent again; what was sent before a broken link is not, either.

    A cluster whose nodes pull images (Kubernetes) gets it through a registry: docker or podman
    pushes it to the name that --to gives, and the name to write as image is printed.
    """
    verbs = launcher(submits=True)
    verbs.config.require_trust()
    on = on or verbs.config.on
    cluster = verbs.cluster(on)
    if cluster.capabilities.registry_images:
        name = registry.push(image, to)
        say(f'Jobs name it with --image, or for all of them: image = "{visible(name)}"')
        tell(name)
        return
    if to is not None:
        raise UsageError(f"{on} keeps its images itself: leave out --to")
    pushed = verbs.images.push(image, cluster)
    for line in describe(pushed, on):
        say(line)
    tell(pushed.id)
    if pushed.job and not no_wait:
        verbs.images.require(pushed, cluster)
        say(f"{pushed.name} is ready on {on}")


def describe(pushed: PushedImage, on: str) -> list[str]:
    if not pushed.job:
        return [f"{pushed.name} is ready on {on} already"]
    lines = []
    if pushed.layers:
        count = f"{pushed.layers} layer{'s' if pushed.layers > 1 else ''}"
        lines.append(f"{count} sent, {show_size(pushed.bytes)}")
    return [
        *lines,
        f"made ready to run by the job {pushed.job}, which goes on without this command",
    ]


@command.command("list")
@on_option
@json_option
def list_images(on: str | None, as_json: bool) -> None:
    """List the images of a cluster."""
    verbs = launcher()
    cluster = verbs.cluster(on or verbs.config.on)
    registry.require_kept(cluster)
    found = cluster.images.listing()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["name"],
            one["id"].removeprefix("sha256:")[:12],
            "ready" if one["ready"] else "not ready",
            show_size(one["sizes"]["file"]),
            show_size(one["sizes"]["layers"]),
            ", ".join(one["jobs"]),
        )
        for one in found
    ]
    tell(table(("NAME", "ID", "STATE", "SIZE", "LAYERS", "JOBS"), rows))


@command.command("rm")
@click.argument("images", nargs=-1, required=True)
@on_option
def remove(images: tuple[str, ...], on: str | None) -> None:
    """Remove images from a cluster, by name or id, with the layers that no other one has."""
    verbs = launcher()
    on = on or verbs.config.on
    registry.require_kept(verbs.cluster(on))
    for image in images:
        record = verbs.images.remove(image, verbs.cluster(on))
        say(f"removed {visible(record['name'])} from {on}")
