"""Starts a Ray cluster on Kubernetes, and adds it to the user's config file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dray.cli.cluster_import import parsed_place
from dray.cli.cluster_written import write
from dray.cli.output import print_json
from dray.cli.parameters import Read
from dray.cli.terminal import say
from dray.config import loading as configuration
from dray.config.reading import read_file
from dray.errors import UsageError
from dray.job.options.pod_values import object_name, volume_texts
from dray.job.options.shared import ROOT
from dray.job.options.values import count_from_zero, image, one_word
from dray.job.quantities import (
    parse_count,
    parse_duration,
    parse_size,
    show_count,
    show_duration,
    show_size,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dray.clusters.kube.volumes import Volume
    from dray.clusters.kuberay.manifest import Wish

KIND = "ray"  # the only one that can be started, so far
SHORTEST = 60.0  # seconds
NO_STORAGE = (
    "Without --storage, jobs' files are on the disk of the head's pod: they end with it, and "
    "are carried to workers and back."
)


def lifetime(value: object) -> float:
    seconds = parse_duration(value)
    if seconds < SHORTEST:
        raise ValueError(f"{value} is too short: at least a minute")
    return seconds


def storage(value: object) -> str:
    """Read CLAIM:/path."""
    try:
        (found,) = volume_texts([f"pvc:{value}"])
    except ValueError:
        raise ValueError(f"{value!r}: write CLAIM:/path") from None
    if found.endswith(":ro"):
        raise ValueError(f"{value!r}: jobs write there")
    ROOT.parse(f"{found.rpartition(':')[2]}/dray")
    return found


COUNT, COUNT_FROM_ZERO = Read("count", parse_count), Read("count", count_from_zero)
SIZE, DURATION = Read("size", parse_size), Read("duration", parse_duration)
NAME, WORD, IMAGE = Read("name", object_name), Read("word", one_word), Read("image", image)


@click.command("up")
@click.argument("name")
@click.option(
    "--kind", type=click.Choice([KIND]), default=KIND, help="Only ray, by KubeRay's operator."
)
@click.option("--image", type=IMAGE, required=True, help="The image of all pods: it has Ray.")
@click.option("--ray-version", help="The version of Ray in it.  [default: that in its tag]")
@click.option("--workers", type=COUNT, default=1, show_default=True, help="Pods for jobs.")
@click.option("--gpus", type=COUNT_FROM_ZERO, default=1, show_default=True, help="Of a worker.")
@click.option("--gpu-type", type=WORD, help="What the label of the workers' nodes says.")
@click.option(
    "--gpu-type-label", type=WORD, default="nvidia.com/gpu.product", help="That label.",
    show_default=True,
)  # fmt: skip
@click.option(
    "--gpu-resource", type=WORD, default="nvidia.com/gpu", show_default=True,
    help="The resource that stands for a GPU.",
)  # fmt: skip
@click.option("--cpus", type=COUNT, default=8, show_default=True, help="CPU cores of a worker.")
@click.option("--memory", type=SIZE, default="16G", show_default=True, help="Memory of a worker.")
@click.option(
    "--head-cpus", type=COUNT, default=2, show_default=True, help="CPU cores of the head."
)
@click.option(
    "--head-memory", type=SIZE, default="8G", show_default=True, help="Memory of the head, where "
    "each job and each array has a driver of some 300 MB.",
)  # fmt: skip
@click.option(
    "--storage", type=Read("volume", storage), multiple=True, metavar="CLAIM:/PATH",
    help="A claim that all pods mount; jobs and code go into dray in the first one. "
    "May be repeated.",
)  # fmt: skip
@click.option("--queue", type=NAME, help="The queue of Kueue that admits it.")
@click.option("--pull-secret", type=NAME, multiple=True, help="A Secret for pulling images.")
@click.option("--mlflow", is_flag=True, help="Start an MLflow server beside it, with a claim.")
@click.option("--mlflow-image", type=IMAGE, help="Its image.  [default: that of all pods]")
@click.option(
    "--mlflow-size", type=SIZE, default="10G", show_default=True, help="Its claim's size."
)
@click.option(
    "--ttl", type=Read("duration", lifetime),
    help="Let Kubernetes remove it after so long, with or without jobs.",
)  # fmt: skip
@click.option("--namespace", help="Where it is made.  [default: that of the context]")
@click.option("--context", help="A context of your kubeconfig.  [default: the current one]")
@click.option("--kubeconfig", help="The kubeconfig to use.  [default: kubectl's own choice]")
@click.option("--python", type=WORD, help="The Python in the image that imports Ray.")
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be created; do nothing.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the head.")
@click.option(
    "--timeout", type=DURATION, default="30m", show_default=True, help="How long to wait for it."
)
def start_cluster(name: str, kind: str, only_plan: bool, **flags: Any) -> None:
    """Start a Ray cluster on Kubernetes, and add it to your config file.

    KubeRay's operator has to be there. The cluster asks for a token, which its Secret has, and no
    port of it is open to the outside. Written twice, the command changes nothing; one that asks for
    something else is refused. It waits until the head is ready, and says what for; the workers come
    as there is room.
    """
    from dray.clusters.kuberay import looking, manifest, starting

    manifest.require_name(name)
    given = {key: flags[key] for key in looking.KEYS if flags[key]}
    where = looking.place_of(parsed_place(given))
    wish = wish_of(name, where["namespace"], flags)
    settings = settings_of(name, where, wish, flags)
    if only_plan:
        print_json(manifest.plan_of(wish))
        return
    config = configuration.load(submits=False)
    is_known = same_is_written(config.home.config_file, name, settings)
    say(f"{name}: {summary(wish)}, in namespace {wish.namespace}")
    if not wish.volumes:
        say(NO_STORAGE)
    began = time.monotonic()
    with looking.opened(where) as space:
        starting.create(space, wish, say)
        if not is_known:  # before waiting: it can be removed by its name, whatever comes
            write(config.home.config_file, name, kind, settings, replace=False)
        if not flags["no_wait"]:
            state = starting.wait(space, name, flags["timeout"], say)
            seconds = show_duration(time.monotonic() - began)
            say(f"the head is ready after {seconds}, {state.workers} of {wish.workers} workers")
    if wish.mlflow_image:
        say(f"MLflow, for its pods: {wish.mlflow_uri}")
        say(f"From here:  kubectl port-forward service/{wish.mlflow} 5000")
    say(f"Next:  dray doctor {name}")


def wish_of(name: str, namespace: str, flags: Mapping[str, Any]) -> Wish:
    from dray.clusters.kube.volumes import parse
    from dray.clusters.kuberay.manifest import Wish, version_of

    selector = {flags["gpu_type_label"]: flags["gpu_type"]} if flags["gpu_type"] else {}
    if selector and not flags["gpus"]:
        raise UsageError("--gpu-type is for workers with GPUs", hint="Write --gpus as well.")
    if flags["mlflow_image"] and not flags["mlflow"]:
        raise UsageError("--mlflow-image is for --mlflow")
    return Wish(
        name=name,
        namespace=namespace,
        ray_version=version_of(flags["image"], flags["ray_version"] or ""),
        node_selector=selector,
        volumes=tuple(map(parse, flags["storage"])),
        queue=flags["queue"] or "",
        pull_secrets=flags["pull_secret"],
        mlflow_image=(flags["mlflow_image"] or flags["image"]) if flags["mlflow"] else "",
        seconds=round(flags["ttl"] or 0),
        **{key: flags[key] for key in SAME},
    )


# What a wish calls as the flags do.
SAME = (
    "image", "workers", "gpus", "cpus", "memory", "head_cpus", "head_memory", "gpu_resource",
    "mlflow_size",
)  # fmt: skip


def settings_of(
    name: str, where: Mapping[str, Any], wish: Wish, flags: Mapping[str, Any]
) -> dict[str, Any]:
    settings = {"kuberay": name, **where}
    if wish.volumes:
        settings["root"] = root_in(wish.volumes[0])
    if flags["python"]:
        settings["python"] = flags["python"]
    return settings


def root_in(volume: Volume) -> str:
    return f"{volume.path.rstrip('/')}/dray"


def same_is_written(path: Path, name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the user's file has the cluster already; raise an error where it has another
    one of this name."""
    there = read_file(path).clusters.get(name)
    if there is None:
        return False
    leads = ("kuberay", "namespace", "context", "kubeconfig")
    if any(there.settings.get(key) != settings.get(key) for key in leads):
        raise UsageError(
            f"{path} has another cluster {name}",
            hint=f"Choose another name, or remove that one: dray cluster rm {name}",
        )
    return True


def summary(wish: Wish) -> str:
    parts = [show_count(wish.gpus, "GPU")] if wish.gpus else []
    parts += [show_count(wish.cpus, "CPU"), show_size(wish.memory)]
    return f"a head, and {show_count(wish.workers, 'worker')} of {', '.join(parts)}"
