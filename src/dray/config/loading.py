"""Turns TOML files and the environment into typed settings. The only reader of os.environ."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from dray.config import trust
from dray.config.reading import ClusterConfig, FileSettings, read_document, read_file
from dray.errors import ConfigError, NotFound, UsageError, nearest
from dray.home import Home, find_home
from dray.project import PROJECT_FILE, find_project
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ON_VARIABLE = "DRAY_ON"

# What a job on this machine sees of the shell it was submitted from: enough to find programs and
# speak the user's language, nothing that would make it depend on the moment or carry a secret.
INHERITED = (
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "CUDA_HOME",
    "HOME",
    "ISAACSIM_PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)

NETWORK = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")


class Config(NamedTuple):
    home: Home
    project: Path  # the folder that is snapshotted
    folder: str  # where in it the user stands
    job: Mapping[str, Any]  # by config key, such as job.resources.gpus
    clusters: Mapping[str, ClusterConfig]
    untrusted: trust.Untrusted | None = None  # what of the project's file is not in here
    mistake: ConfigError | None = None  # why nothing of the project's file is in here
    flags: Mapping[str, Any] = MappingProxyType({})  # what of ``job`` this call itself says
    notify: Mapping[str, Any] = MappingProxyType({})  # by name, such as long_wait
    snapshot: Mapping[str, Any] = MappingProxyType({})  # by config key

    @property
    def on(self) -> str:
        """The cluster that jobs go to: the default one, unless a flag names another."""
        from dray.job import options  # not for a listing of jobs

        name: str = options.value_of(self.job, "job.on")
        return name

    @property
    def snapshot_max(self) -> int:
        """How many bytes a job's code may have."""
        from dray.job import options

        size: int = options.SNAPSHOT_SIZE.of(self.snapshot)
        return size

    def require_trust(self) -> None:
        """Refuse to submit a job that lacks settings of its project."""
        if self.untrusted:
            raise self.untrusted.error

    def distrusts(self, cluster: str) -> bool:
        """Return whether the project's file has settings for this cluster that are not used."""
        keys = self.untrusted.keys if self.untrusted else ()
        return any(key[:2] == ("clusters", cluster) for key in keys)

    def own_folders(self, project: Path, roots: Sequence[str | Path]) -> tuple[str, ...]:
        """Return the folders below the project in which dray keeps jobs, their secrets and earlier
        code. ``roots`` are those of the clusters whose files are on this machine."""
        top = os.path.realpath(project)
        found = {real_path(one) for one in (self.home.data, self.home.cache, *roots)}
        below = (os.path.relpath(one, top) for one in found if one.startswith(f"{top}/"))
        return tuple(sorted(below))

    def cluster(self, name: str) -> ClusterConfig:
        try:
            return self.clusters[name]
        except KeyError:
            if self.untrusted and ("clusters", name) in self.untrusted.keys:
                raise self.untrusted.error from None
            known = ", ".join(self.clusters)
            raise NotFound(
                f"there is no cluster '{name}'.{nearest(name, self.clusters)}",
                hint=f"Known clusters: {known}. dray cluster add {name} makes it known.",
            ) from None


def environment() -> dict[str, str]:
    return dict(os.environ)


def inherited_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if is_inherited(name)}


def is_inherited(name: str) -> bool:
    return name in INHERITED or name.startswith("LC_")


def network_variables() -> dict[str, str]:
    """Return the variables for reaching the internet from here: proxies and certificates."""
    return {name: value for name, value in os.environ.items() if name.lower() in NETWORK}


def real_path(folder: str | Path) -> str:
    return os.path.realpath(os.path.expanduser(os.path.expandvars(folder)))


def current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the folder you are in has been removed", hint="cd to another.") from None


def load(
    start: Path | None = None, flags: Mapping[str, Any] | None = None, *, submits: bool = True
) -> Config:
    """Load the settings. Flags win over DRAY_ON, that over the project's file, and that over the
    user's. Unless a job is to be submitted, a mistake in the project's file is part of the result,
    so that running jobs can still be looked after."""
    start = start or current_folder()
    home = find_home()
    project = find_project(start)
    own = own_settings(home)
    found, untrusted, mistake = FileSettings(), None, None
    try:
        document = read_document(project / PROJECT_FILE)
        found, untrusted = trust.settings_in_force(document, own, trust.Records(home.data))
    except ConfigError as error:
        if submits:
            raise
        mistake = error
    settings, clusters = dict(own.settings), dict(own.clusters)
    combine(settings, found.settings)
    combine_clusters(clusters, found.clusters)
    combine(settings, chosen_by_variable())
    folder = "" if start == project else start.relative_to(project).as_posix()
    given = from_folder(flags or {}, folder)
    combine(settings, given)
    return Config(
        home=home,
        project=project,
        folder=folder,
        job={key: value for key, value in settings.items() if key.startswith("job.")},
        snapshot={key: value for key, value in settings.items() if key.startswith("snapshot.")},
        notify={
            key.removeprefix("notify."): value
            for key, value in settings.items()
            if key.startswith("notify.")
        },
        clusters=clusters,
        untrusted=untrusted,
        mistake=mistake,
        flags=given,
    )


def own_settings(home: Home) -> FileSettings:
    """Read the user's own file; ``local`` is a cluster even without it."""
    found = read_file(home.config_file)
    clusters = {"local": ClusterConfig("local", "local")}
    combine_clusters(clusters, found.clusters)
    return found._replace(clusters=clusters)


def chosen_by_variable() -> dict[str, str]:
    """Return the cluster that DRAY_ON chooses for this shell; an empty DRAY_ON chooses none."""
    name = os.environ.get(ON_VARIABLE)
    return {"job.on": name} if name else {}


def from_folder(flags: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Make outputs in flags relative to the project: the user names them relative to the current
    folder, as the command does."""
    outputs = flags.get("job.outputs", ())
    if not folder or not outputs:
        return dict(flags)
    moved: dict[str, Any] = {"job.outputs": tuple(f"{folder}/{path}" for path in outputs)}
    for key in ("job.resume.checkpoint", "job.metrics.tensorboard"):
        glob = flags.get(key) or ""
        if any(glob == path or glob.startswith(f"{path}/") for path in outputs):
            moved[key] = f"{folder}/{glob}"
    return {**flags, **moved}


def combine(settings: dict[str, Any], stronger: Mapping[str, Any]) -> None:
    """Let the stronger value win, or merge the two as the option says."""
    if not stronger:
        return
    from dray.job import options  # not where nothing is set

    for key, value in stronger.items():
        option = options.DECLARED.get(key)
        if option is not None and option.merge is not None:
            value = option.merge(settings.get(key) or option.initial, value)
        settings[key] = value


def combine_clusters(
    clusters: dict[str, ClusterConfig], stronger: Mapping[str, ClusterConfig]
) -> None:
    """Combine clusters setting by setting, so that a project can add a setting to the user's own
    cluster."""
    for name, cluster in stronger.items():
        weaker = clusters.get(name)
        if weaker is not None and weaker.kind == cluster.kind:
            cluster = cluster._replace(settings={**weaker.settings, **cluster.settings})
        clusters[name] = cluster
