"""Adds, imports, shows and checks clusters; the other subcommands have files of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli import cluster_list, doctor
from dray.cli.cluster_choices import decide, flag_of, written
from dray.cli.cluster_down import end_cluster
from dray.cli.cluster_edit import choose_default, remove_cluster
from dray.cli.cluster_import import import_cluster
from dray.cli.cluster_up import start_cluster
from dray.cli.cluster_written import require_name, write
from dray.cli.output import hanging, launcher, launcher_for, print_json
from dray.cli.parameters import ClusterName, KindName, PartitionName, click_command, json_option
from dray.cli.terminal import lines, say, tell
from dray.cli.trial import trial_job, try_out
from dray.clusters import registry
from dray.config import loading as configuration
from dray.config.reading import ClusterConfig
from dray.errors import UsageError
from dray.job import options
from dray.job.options import Option, kinds
from dray.job.options.kinds import find as find_kind
from dray.job.quantities import show_size

if TYPE_CHECKING:
    from dray.clusters.protocol import Cluster

HERE = "-"  # as a host: this machine
# Kinds that need not be named: flags or a look tell them apart. The likeliest first.
BATCH = tuple(kind for kind in kinds.BUILT_IN if registry.capabilities_of(kind).found_by)
HELP = {
    "extra": "Further flags for sbatch or qsub, as they are.",
    "gpu_type": "The type of GPU to ask for.",
    "mail": "Where the scheduler writes when a job ends or fails.",
    "host": f"What `ssh HOST` reaches; {HERE} is this machine.  [default: NAME, if ssh knows it]",
    "root": "The folder for jobs and code, on a file system that all nodes share.  [default: "
    "$SCRATCH/dray where there is a $SCRATCH, else $HOME/.dray; on Kubernetes, dray in the first "
    "volume that can be written]",
}


@click.group("cluster")
def command() -> None:
    """Add, import, list, show, check and remove the clusters that jobs can run on; start and end
    Ray clusters on Kubernetes."""


command.add_command(click_command(cluster_list.VERB))
command.add_command(choose_default)
command.add_command(remove_cluster)
command.add_command(import_cluster)
command.add_command(start_cluster)
command.add_command(end_cluster)


@command.command("show")
@click.argument("name", type=ClusterName())
@json_option
def show_cluster(name: str, as_json: bool) -> None:
    """Show one cluster: its settings and its resources."""
    verbs = launcher()
    chosen = verbs.config.cluster(name)
    cluster = verbs.cluster(name)
    have, fractions = cluster.equipment(), cluster.capabilities.gpu_fractions
    settings = {key: in_words(value) for key, value in chosen.settings.items()}
    if as_json:
        record = {"name": name, "kind": chosen.kind, "settings": settings}
        print_json({**record, "capabilities": {**have._asdict(), "gpu_fractions": fractions}})
        return
    rows = [("name", name), ("kind", chosen.kind), *settings.items()]
    if have.cpus:  # else it does not tell
        rows += [("CPUs", str(have.cpus)), ("memory", show_size(have.memory or 0))]
        rows += [("GPUs", f"{have.gpus}{' (fractions allowed)' if fractions else ''}")]
    label = max(len(key) for key, _ in rows) + 1
    for key, value in rows:
        tell(lines(hanging(f"{key:<{label}}", value, label)))


def in_words(value: object) -> str:
    """Show a setting: a list by its words, a table as JSON."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


@command.command("check")
@click.argument("name", type=ClusterName())
@json_option
def check_cluster(name: str, as_json: bool) -> int:
    """Check everything that a job on NAME depends on, as dray doctor does."""
    return doctor.check(name, as_json)


# -- adding -------------------------------------------------------------------------------------


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every setting that some kind of cluster has."""
    kinds: dict[str, list[str]] = {}
    known: dict[str, Option] = {}
    for kind in (BATCH[0], *options.CLUSTERS):
        for option in options.CLUSTERS[kind]:
            known.setdefault(option.name, option)
            kinds.setdefault(option.name, [])
            kinds[option.name] += [kind] if kind not in kinds[option.name] else []
    known.pop("kind")
    for name, option in reversed(known.items()):
        only = "" if {*BATCH} <= {*kinds[name]} else f" (kind {', '.join(kinds[name])})"
        again = " May be repeated." if option.many else ""
        function = click.option(
            flag_of(name),
            f"setting_{name}",
            metavar=name.upper().replace("_", "-"),
            multiple=option.many,
            type=PartitionName() if name in ("partition", "queue") else None,
            help=HELP.get(name, option.help) + only + again,
        )(function)
    return function


@command.command("add")
@click.argument("name")
@click.option(
    "--kind",
    type=KindName(),
    help=f"The kind of cluster: {', '.join(kinds.BUILT_IN)}, or one of another package.  "
    "[default: the one that all flags fit; pbs where there is a qsub and no sbatch; else slurm]",
)
@setting_options
@click.option(
    "--set",
    "others",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of a kind of another package. May be repeated.",
)
@click.option("--replace", is_flag=True, help="Replace a cluster of the same name.")
@click.option("--no-check", is_flag=True, help="Do not contact the cluster.")
@click.option("--test", "do_test", is_flag=True, help="Run a tiny job there, and remove it.")
def add_cluster(
    name: str,
    kind: str | None,
    others: tuple[str, ...],
    replace: bool,
    no_check: bool,
    do_test: bool,
    **flags: Any,
) -> int:
    """Add a cluster to your config file.

    Only the host is asked for, and only where ssh does not know NAME; for Kubernetes, what the
    kubeconfig and the namespace leave open. Unless told not to, dray logs in, shows what it finds,
    and adds the cluster only if it answers and has the partition or queue and the account that you
    name.
    """
    if do_test and no_check:
        raise UsageError("--test contacts the cluster, and --no-check does not")
    kinds = [kind] if kind else fitting_kinds(flags)
    require_name(name, kinds[0])
    config = configuration.load(submits=False)
    if not replace:
        from dray.config.editing import require_new

        require_new(config.home.config_file, name)
    settings = given_settings(kinds[0], {**flags, **pairs(others)})
    able = registry.capabilities_of(kinds[0])
    if able.has_host and not any(one in settings for one in able.other_ways):
        settings = with_host(settings, name, able.other_ways)
        if "root" not in settings and not no_check and scratch_is_set(settings.get("host")):
            settings["root"] = "$SCRATCH/dray"
    kind = kinds[0] if no_check else kind_at(settings.get("host"), kinds)
    settings = with_suggestions(kind, settings, asks=not no_check)
    if not no_check:
        settings = look(config, name, kind, settings)
    write(config.home.config_file, name, kind, settings, replace=replace)
    if not do_test:
        say(f"Next:  dray doctor {name}")
        return 0
    return try_out(launcher(), name)


def fitting_kinds(flags: Mapping[str, Any]) -> list[str]:
    """Return the kinds that have all the given settings, the likeliest first."""
    given = {name.removeprefix("setting_") for name, value in flags.items() if value}
    known = {kind: {option.name for option in options.CLUSTERS[kind]} for kind in BATCH}
    fitting = [kind for kind in BATCH if given <= known[kind]] or [BATCH[0]]
    # What has no host cannot be looked for on one.
    return [one for one in fitting if registry.capabilities_of(one).has_host] or fitting


def pairs(others: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE; a name that is repeated has several values."""
    found: dict[str, Any] = {}
    for one in others:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"--set {one}: write --set NAME=VALUE")
        found[name] = (*found.get(name, ()), value)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def kind_at(host: str | None, kinds: Sequence[str]) -> str:
    """Return the first of these kinds that is found there, else the likeliest."""
    if len(kinds) == 1:
        return kinds[0]
    from dray.transport.login import has_command

    found = (one for one in kinds if has_command(host, registry.capabilities_of(one).found_by))
    return next(found, kinds[0])


def given_settings(kind: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the flags say, as it would be written to a file."""
    known = {option.name: option for option in find_kind(kind).options if option.name != "kind"}
    settings: dict[str, Any] = {}
    for variable, value in flags.items():
        name = variable.removeprefix("setting_")
        if value is None or value == ():
            continue
        if name not in known:
            raise UsageError(f"a cluster of kind {kind} has no {flag_of(name)}")
        if name == "host" and value in ("", HERE):
            settings[name] = HERE
            continue
        settings[name] = written(known[name], value)
    return settings


def with_suggestions(kind: str, settings: Mapping[str, Any], *, asks: bool) -> dict[str, Any]:
    """Add what the kind finds out by itself, and ask for what it leaves open."""
    known = {option.name: option for option in find_kind(kind).options}
    while True:
        found = registry.suggest(kind, settings, asks=asks)
        for remark in found.remarks:
            say(remark)
        settings = {**found.settings, **settings}
        if not found.choices:
            return settings
        decided = {one.setting: decide(one, known[one.setting]) for one in found.choices}
        settings = {**settings, **decided}


def with_host(settings: Mapping[str, Any], name: str, other_ways: Sequence[str]) -> dict[str, Any]:
    """Add the host, from the flag, from ssh or from the user; none for this machine."""
    host = settings.get("host")
    if host is None:
        from dray.transport.login import is_known

        host = name if is_known(name) else ask_host(name, other_ways)
    rest = {key: value for key, value in settings.items() if key != "host"}
    return rest if host == HERE else {"host": host, **rest}


def ask_host(name: str, other_ways: Sequence[str]) -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        flags = " or ".join(["--host", *map(flag_of, other_ways)])
        raise UsageError(
            f"ssh knows no host '{name}'",
            hint=f"Say where it is with {flags}, or add it to ~/.ssh/config as 'Host {name}'.",
        )

    def read(text: str) -> str:
        try:
            return text if text == HERE else options.ssh_host(text)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    question = f"Login node, as in 'ssh HOST' ({HERE} for this machine)"
    host: str = click.prompt(question, value_proc=read, err=True)
    return host


def scratch_is_set(host: str | None) -> bool:
    if host is None:
        return bool(configuration.environment().get("SCRATCH"))
    from dray.transport.login import has_variable

    return has_variable(host, "SCRATCH")


def parsed_cluster(name: str, kind: str, settings: Mapping[str, Any]) -> ClusterConfig:
    parse = {option.name: option.parse for option in find_kind(kind).options}
    return ClusterConfig(name, kind, {key: parse[key](one) for key, one in settings.items()})


def look(
    config: configuration.Config, name: str, kind: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Show what is there, and return the settings, with what was found out there. Raises an error
    where nobody answers."""

    def cluster(settings: Mapping[str, Any]) -> Cluster:
        clusters = {**config.clusters, name: parsed_cluster(name, kind, settings)}
        return launcher_for(config._replace(clusters=clusters)).cluster(name)

    # Nothing is written for a host that cannot be reached, or a partition that is not there.
    settings = {**dict(cluster(settings).equipment().suggested), **settings}
    there = cluster(settings)
    found = there.doctor()
    doctor.show(found)
    there.check(trial_job(there))
    if not all(one.ok for one in found):
        say("It is added all the same: see to what is BAD before you run a job there.")
    return settings
