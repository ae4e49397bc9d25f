from __future__ import annotations

import click

from dray.cli.output import launcher, print_json, table
from dray.cli.parameters import ClusterName, json_option
from dray.quantities import show_size


@click.group("cluster")
def command() -> None:
    """List and show the clusters that jobs can run on."""


@command.command("list")
@json_option
def list_clusters(as_json: bool) -> None:
    """The clusters that the config files name, and local."""
    known = launcher().config.clusters.values()
    if as_json:
        print_json([{"name": one.name, "kind": one.kind} for one in known])
    else:
        click.echo(table(("NAME", "KIND"), [(one.name, one.kind) for one in known]))


@command.command("show")
@click.argument("name", type=ClusterName())
@json_option
def show_cluster(name: str, as_json: bool) -> None:
    """One cluster: its settings and what it has."""
    verbs = launcher()
    chosen = verbs.config.cluster(name)
    have = verbs.cluster(name).capabilities()
    settings = {key: str(value) for key, value in chosen.settings.items()}
    if as_json:
        record = {"name": name, "kind": chosen.kind, "settings": settings}
        print_json({**record, "capabilities": have._asdict()})
        return
    rows = [("name", name), ("kind", chosen.kind), *settings.items()]
    rows += [("CPUs", str(have.cpus)), ("memory", show_size(have.memory or 0))]
    rows += [("GPUs", f"{have.gpus}{' (fractions allowed)' if have.gpu_fractions else ''}")]
    for key, value in rows:
        click.echo(f"{key:<10}{value}")
