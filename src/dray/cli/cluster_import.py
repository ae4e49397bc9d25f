"""Converts settings of other launchers, and finds Ray clusters on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.cluster_choices import written
from dray.cli.cluster_written import require_name, tell_tables, write
from dray.cli.terminal import say
from dray.config import loading as configuration
from dray.errors import NotFound, UsageError
from dray.job.options.kinds import find as find_kind

if TYPE_CHECKING:
    from dray.config.migration.found import Found


@click.command("import")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--kuberay", is_flag=True, help="Look for RayClusters of Kubernetes instead.")
@click.option("--namespace", help="Where to look for them.  [default: that of the context]")
@click.option("--context", help="A context of your kubeconfig.  [default: the current one]")
@click.option("--kubeconfig", help="The kubeconfig to use.  [default: kubectl's own choice]")
@click.option("--name", help="What to call the cluster.  [default: from its host or namespace]")
@click.option("--write", "do_write", is_flag=True, help="Add it to your config file.")
@click.option("--replace", is_flag=True, help="Replace a cluster of the same name.")
def import_cluster(
    path: Path | None,
    kuberay: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    name: str | None,
    do_write: bool,
    replace: bool,
) -> None:
    """Convert the settings of another launcher: print them as TOML, or add them with --write.

    PATH is Isaac Lab's docker/cluster/.env.cluster (with .env.base and
    submit_job_slurm.sh or submit_job_pbs.sh beside it), ProtoMotions' train_slurm.py, the YAML of a
    pod or a Job of Kubernetes, a script with runai submit, Isaac Lab's list of Ray clusters
    (~/.cluster_config), or a file of shell assignments. It is read, never executed. Whatever has no
    counterpart is told in a comment.

    With --kuberay, dray asks the API server for the RayClusters of a namespace.

    Of several clusters, all are taken; with --name, the one of this name.
    """
    where = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    given = {key: value for key, value in where.items() if value}
    if kuberay == (path is not None):
        raise UsageError("name a file, or write --kuberay", hint="Not both.")
    if given and not kuberay:
        raise UsageError(f"--{next(iter(given))} is for --kuberay")
    found = read(path) if path is not None else discovered(given)
    for one in chosen(found, name):
        import_one(one, name or one.name, do_write=do_write, replace=replace)


def read(path: Path) -> Found:
    from dray.config import migration

    return migration.read(path)


def discovered(given: Mapping[str, str]) -> Found:
    """Return the first RayCluster of the namespace, and with it the others."""
    from dray.clusters.kuberay import discovering, looking

    settings = parsed_place(given)
    where = looking.place_of(settings)
    space = looking.namespace_of(where)
    every = discovering.discover(space, where)
    if not every:
        raise NotFound(
            f"namespace {space.name} has no RayCluster",
            hint="--namespace and --context name another place; 'dray cluster up' makes one.",
        )
    return every[0]._replace(others=tuple(every[1:]))


def parsed_place(given: Mapping[str, str]) -> dict[str, Any]:
    """Check what leads to a namespace, as settings are checked."""
    known = {option.name: option for option in find_kind("ray").options}
    return {key: written(known[key], value) for key, value in given.items()}


def chosen(found: Found, name: str | None) -> Sequence[Found]:
    """Return those of a file's clusters that are wanted."""
    every = (found, *found.others)
    if name is None or len(every) == 1:
        return every
    wanted = [one for one in every if one.name == name]
    if not wanted:
        names = ", ".join(one.name for one in every)
        raise UsageError(f"{found.source} has no cluster {name}", hint=f"There are: {names}.")
    return wanted


def import_one(found: Found, name: str, *, do_write: bool, replace: bool) -> None:
    from dray.config import editing

    kind = found.kind
    require_name(name, kind)
    if do_write:
        require_usable(found)
        user_file = configuration.load(submits=False).home.config_file
        write(user_file, name, kind, found.cluster, notes_of(found), replace=replace)
        say(f"Next:  dray doctor {name}")
        if found.job:
            say("These settings are a project's: put them into its dray.toml.")
    else:
        tell_tables(editing.cluster_table(name, kind, found.cluster, notes_of(found)))
    if found.job:
        tell_tables(f"\n{editing.job_tables(found.job)}")


def notes_of(found: Found) -> tuple[str, ...]:
    return (f"imported from {found.source}", *found.notes)


def require_usable(found: Found) -> None:
    if found.needs not in found.cluster:
        raise UsageError(
            f"{found.source} names no {found.needs} that can be used",
            hint="Fill it in there; without --write you see what was found.",
        )
