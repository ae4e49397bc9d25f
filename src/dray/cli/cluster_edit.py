"""Chooses the default cluster, and removes one from the user's config file."""

from __future__ import annotations

import click

from dray.cli.output import launcher
from dray.cli.parameters import ClusterName
from dray.cli.terminal import say, tell
from dray.config import loading as configuration
from dray.config.reading import read_document, read_file
from dray.config.toml_lines import has_key
from dray.errors import ConfigError, Refused, UsageError
from dray.launcher import Launcher
from dray.project import PROJECT_FILE

REMOVED_ALL_THE_SAME = (
    "With --force it is removed all the same: they run on, and dray knows nothing of them."
)


@click.command("default")
@click.argument("name", type=ClusterName(), required=False)
def choose_default(name: str | None) -> None:
    """Let jobs go to NAME unless --on says otherwise; without NAME, print where they go.

    \b
    What decides, the strongest first:
      --on CLUSTER
      the variable DRAY_ON
      on in [job] of the project's dray.toml
      on in [job] of your own config.toml: what this command writes
      local
    """
    config = launcher().config
    if name is None:
        tell(config.on)
        say(f"by {origin(config)}")
        return
    from dray.config.editing import set_default

    config.cluster(name)
    set_default(config.home.config_file, name)
    say(f"jobs go to {name} unless --on says otherwise: {config.home.config_file}")
    stronger = configuration.load(submits=False)
    if stronger.on != name:
        say(f"Here they go to {stronger.on}, by {origin(stronger)}.")


def origin(config: configuration.Config) -> str:
    """Say what has decided which cluster is the default."""
    if configuration.chosen_by_variable():
        return f"the variable {configuration.ON_VARIABLE}"
    own = read_file(config.home.config_file).settings.get("job.on")
    if own == config.on:
        return str(config.home.config_file)
    return str(config.project / PROJECT_FILE) if "job.on" in config.job else "no setting"


@click.command("rm")
@click.argument("name", type=ClusterName())
@click.option(
    "--force", is_flag=True, help="Remove it even if jobs of yours are queued or run there."
)
def remove_cluster(name: str, force: bool) -> None:
    """Remove a cluster from your config file; files on the cluster are kept.

    dray forgets its jobs. Add it again with the same host and root, and dray ps --on NAME --all
    finds them.
    """
    if name == "local":
        raise UsageError("'local' is this machine, and always there")
    verbs = launcher()
    path = verbs.config.home.config_file
    if name not in read_file(path).clusters:
        raise elsewhere(verbs.config, name)
    if not force:
        require_no_jobs(verbs, name)
    place = verbs.cluster(name).files.path().removesuffix("/").removesuffix("/jobs")
    was_default = read_file(path).settings.get("job.on") == name
    from dray.config.editing import remove_cluster

    remove_cluster(path, name)
    forgotten = verbs.forget(name)
    say(f"removed {name} from {path}")
    if was_default:
        say("It was the default cluster: jobs go to local now.")
    say(f"{place} stays as it is, with jobs, outputs, code and images.")
    if forgotten:
        say(f"dray has forgotten the {forgotten} jobs that it knew there.")


def require_no_jobs(verbs: Launcher, name: str, otherwise: str = REMOVED_ALL_THE_SAME) -> None:
    """Raise an error where jobs of the user's are active; ``otherwise``: what can be done then."""
    if name in verbs.active_numbers():
        verbs.refresh(name)
    active = sum(verbs.active_numbers().get(name, {}).values())
    if active:
        raise Refused(
            f"{name} has {active} of your jobs, queued or running",
            hint=f"dray ps --on {name} lists them. {otherwise}",
        )


def elsewhere(config: configuration.Config, name: str) -> UsageError | ConfigError:
    """Return the error for a cluster that is not in the user's own file, and so cannot be
    removed."""
    document = read_document(config.project / PROJECT_FILE)
    key = ("clusters", name)
    if document is not None and has_key(document.tables, key):
        return ConfigError(
            f"{document.path}:{document.line(key)}: '{name}' is the project's, not yours",
            hint="Remove it in that file, or no longer trust the file: dray trust --revoke",
        )
    config.cluster(name)
    return UsageError(f"'{name}' is not in {config.home.config_file}")
