"""Removes a Ray cluster from Kubernetes, and from the user's config file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dray.cli.cluster_edit import require_no_jobs
from dray.cli.output import launcher
from dray.cli.parameters import ClusterName
from dray.cli.terminal import say
from dray.config.reading import read_file
from dray.errors import ClusterError, Refused, UsageError
from dray.job.quantities import show_count
from dray.launcher import Launcher

if TYPE_CHECKING:
    from dray.clusters.kuberay.looking import Namespace


@click.command("down")
@click.argument("name", type=ClusterName())
@click.option("--now", is_flag=True, help="Remove it even if jobs run there: they are cut off.")
@click.option("--data", is_flag=True, help="Remove the claim of its MLflow as well.")
def end_cluster(name: str, now: bool, data: bool) -> None:
    """Remove a Ray cluster that dray cluster up has made, and its entry in your config file.

    It is refused while jobs run there, whoever has submitted them. Claims that were there before
    (--storage) are never touched; the claim of its MLflow is kept unless --data is given.
    """
    from dray.clusters.kuberay import ending, looking, manifest

    verbs = launcher()
    settings = verbs.config.cluster(name).settings
    cluster = settings.get("kuberay")
    if not cluster:
        raise UsageError(
            f"{name} is no Ray cluster on Kubernetes",
            hint=f"dray cluster rm {name} removes it from your config file.",
        )
    with looking.opened(settings) as space:
        objects = ending.belonging(space, cluster)
        if not any(one["kind"] == "RayCluster" for one in objects):
            require_not_foreign(space.cluster(cluster), cluster)
        elif not now:
            require_idle(verbs, space, name, settings)
        kept = [] if data else [one for one in objects if manifest.is_data(one)]
        ending.remove(space, cluster, [one for one in objects if one not in kept], say)
    for one in kept:
        say(f"{manifest.told(one)} is kept; dray cluster down --data would have removed it")
    if not objects:
        say(f"there is no RayCluster {cluster} any more in namespace {space.name}")
    forget(verbs, name)


def require_not_foreign(cluster: Mapping[str, Any] | None, name: str) -> None:
    if cluster is not None:
        raise Refused(
            f"RayCluster {name} is there, and dray has not made it",
            hint=f"Whoever has can remove it: kubectl delete raycluster {name}. "
            "'dray cluster rm' removes it from your config file alone.",
        )


def require_idle(verbs: Launcher, space: Namespace, name: str, settings: Mapping[str, Any]) -> None:
    """Raise an error where jobs are active: those that are known here, and those that Ray itself
    knows. A head that is not ready runs none, but may come back to those it had."""
    from dray.clusters.kuberay import ending

    again = f"With --now, dray cluster down {name} cuts them off."
    state = space.state(settings["kuberay"])
    if state is None or not state.is_ready:
        if sum(verbs.active_numbers().get(name, {}).values()):
            raise Refused(f"{name} has jobs of yours, and its head is not ready", hint=again)
        return
    try:
        require_no_jobs(verbs, name, again)
        active = ending.still_active(space, settings)
    except ClusterError as error:
        what = f"{name} may have jobs, and cannot be asked: {error.message}"
        raise Refused(what, hint=f"{error.hint} {again}".strip()) from None
    if active:
        shown = ", ".join(active[:3]) + (" …" if len(active) > 3 else "")
        what = f"Ray still runs {show_count(len(active), 'job')} on {name}: {shown}"
        raise Refused(what, hint=again)


def forget(verbs: Launcher, name: str) -> None:
    """Remove the cluster from the user's file, where it is there."""
    from dray.config.editing import remove_cluster

    path = verbs.config.home.config_file
    forgotten = verbs.forget(name)
    if name not in read_file(path).clusters:
        say(f"{name} is a cluster of the project's dray.toml: it stays there")
        return
    remove_cluster(path, name)
    say(f"removed {name} from {path}")
    if forgotten:
        say(
            f"dray has forgotten {show_count(forgotten, 'job')} there. Where their files are "
            "on a claim, 'dray cluster up' with the same --storage finds them: dray ps --all"
        )
