"""TOML files and the environment → typed settings. The only reader of os.environ."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dray import options
from dray.errors import ConfigError, NotFound, UsageError, nearest
from dray.options import Option

PROJECT_FILE = "dray.toml"

Key = tuple[str, ...]  # job.resources.gpus, in parts

# What a job on this machine sees of the shell it was submitted from: enough to find programs and
# speak the user's language, nothing that would make it depend on the moment or carry a secret.
INHERITED = (
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "CUDA_HOME",
    "HOME",
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


class Home(NamedTuple):
    """Where dray keeps its own files."""

    config: Path
    data: Path
    cache: Path

    @property
    def store(self) -> Path:
        return self.data / "store.db"

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"


class ClusterConfig(NamedTuple):
    name: str
    kind: str
    settings: Mapping[str, Any] = MappingProxyType({})


class Config(NamedTuple):
    home: Home
    project: Path  # the folder that is snapshotted
    folder: str  # where in it the user stands
    job: Mapping[str, Any]  # by config key, such as job.resources.gpus
    snapshot_max: int
    clusters: Mapping[str, ClusterConfig]

    def own_folders(self, project: Path) -> tuple[str, ...]:
        """Where below the project dray keeps jobs, their secrets and earlier code."""
        here = [one for one in self.clusters.values() if not one.settings.get("host")]
        roots = [one.settings.get("root") or self._default_root(one) for one in here]
        top = os.path.realpath(project)
        found = {real_path(one) for one in (self.home.data, self.home.cache, *roots)}
        below = (os.path.relpath(one, top) for one in found if one.startswith(f"{top}/"))
        return tuple(sorted(below))

    def _default_root(self, cluster: ClusterConfig) -> str | Path:
        return self.home.data / cluster.name if cluster.kind == "local" else options.ROOT.default

    def cluster(self, name: str) -> ClusterConfig:
        try:
            return self.clusters[name]
        except KeyError:
            known = ", ".join(self.clusters)
            raise NotFound(
                f"there is no cluster '{name}'.{nearest(name, self.clusters)}",
                hint=f"Known clusters: {known}. dray cluster add {name} makes it known.",
            ) from None


def environment() -> dict[str, str]:
    return dict(os.environ)


def inherited_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith("LC_")
    }


def find_home() -> Home:
    own = os.environ.get("DRAY_HOME")
    if own:
        home = Path(own).absolute()
        return Home(home, home, home / "cache")
    return Home(
        _xdg("XDG_CONFIG_HOME", ".config"),
        _xdg("XDG_DATA_HOME", ".local/share"),
        _xdg("XDG_CACHE_HOME", ".cache"),
    )


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG rules: a relative path is to be ignored.
    base = Path(value) if value.startswith("/") else Path.home() / default
    return base / "dray"


def real_path(folder: str | Path) -> str:
    return os.path.realpath(os.path.expanduser(os.path.expandvars(folder)))


def current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the folder you are in has been removed", hint="cd to another.") from None


def find_project(start: Path) -> Path:
    """The nearest folder with a dray.toml, else with a .git, else where the user stands."""
    folders = [start, *start.parents]
    for mark in (PROJECT_FILE, ".git"):
        for folder in folders:
            if (folder / mark).exists():
                return folder
    return start


def load(start: Path | None = None, flags: Mapping[str, Any] | None = None) -> Config:
    """Flags win over the project's file, which wins over the user's."""
    start = start or current_folder()
    home = find_home()
    project = find_project(start)
    settings: dict[str, Any] = {}
    clusters = {"local": ClusterConfig("local", "local")}
    for path in (home.config_file, project / PROJECT_FILE):
        found = read_file(path)
        combine(settings, found.settings)
        combine_clusters(clusters, found.clusters)
    folder = "" if start == project else start.relative_to(project).as_posix()
    combine(settings, from_folder(flags or {}, folder))
    return Config(
        home=home,
        project=project,
        folder=folder,
        job={key: value for key, value in settings.items() if key.startswith("job.")},
        snapshot_max=settings.get("snapshot.max_size", 2**30),
        clusters=clusters,
    )


def from_folder(flags: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """A flag names an output as seen from where the user stands, as its command does."""
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
    """The stronger value wins, except that variables, outputs, secrets and binds come together: a
    flag adds one without losing those of the project."""
    for key, value in stronger.items():
        weaker = settings.get(key)
        if key == "job.env":
            settings[key] = {**(weaker or {}), **value}
        elif key in ("job.secrets", "job.container.binds", "job.container.pass_env"):
            settings[key] = tuple(dict.fromkeys([*(weaker or ()), *value]))
        elif key == "job.outputs":
            settings[key] = outermost([*(weaker or ()), *value])
        else:
            settings[key] = value


def outermost(paths: Sequence[str]) -> tuple[str, ...]:
    """Without those that lie below another: one link per output, none inside another's folder."""
    once = dict.fromkeys(paths)
    return tuple(path for path in once if not any(path.startswith(f"{other}/") for other in once))


def combine_clusters(
    clusters: dict[str, ClusterConfig], stronger: Mapping[str, ClusterConfig]
) -> None:
    """Setting by setting, so that a project can add one to the user's own cluster."""
    for name, cluster in stronger.items():
        weaker = clusters.get(name)
        if weaker is not None and weaker.kind == cluster.kind:
            cluster = cluster._replace(settings={**weaker.settings, **cluster.settings})
        clusters[name] = cluster


class FileSettings(NamedTuple):
    settings: Mapping[str, Any] = MappingProxyType({})
    clusters: Mapping[str, ClusterConfig] = MappingProxyType({})


def read_file(path: Path) -> FileSettings:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return FileSettings()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", hint="Save it as UTF-8.") from error
    import tomllib  # only where there is a file

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        line = int(found[2]) if found else text.count("\n") + 1
        message = f"{found[1]}, at column {found[3]}" if found else str(error)
        raise ConfigError(f"{path}:{line}: not valid TOML: {message}") from error
    return _Reader(path, text).read(document)


class _Reader:
    """Turns one document into settings; every complaint names file, line and key."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def read(self, document: Mapping[str, Any]) -> FileSettings:
        self.check_names((), document, ["job", "snapshot", "clusters"])
        settings: dict[str, Any] = {}
        known = [*options.JOB, *options.SNAPSHOT]
        for table in ("job", "snapshot"):
            if table in document:
                self.read_table((table,), document[table], known, settings)
        clusters = {
            name: self.read_cluster(name, table)
            for name, table in self.table(("clusters",), document.get("clusters", {})).items()
        }
        return FileSettings(settings, clusters)

    def read_table(
        self, table: Key, values: Any, known: Sequence[Option], into: dict[str, Any]
    ) -> None:
        where = ".".join(table)
        here = {option.name: option for option in known if option.table == where}
        below = {
            option.table[len(where) + 1 :].split(".")[0]
            for option in known
            if option.table.startswith(f"{where}.")
        }
        self.check_names(table, self.table(table, values), [*here, *below])
        for name, value in values.items():
            if name in below:
                self.read_table((*table, name), value, known, into)
            else:
                into[f"{where}.{name}"] = self.value((*table, name), here[name], value)

    def read_cluster(self, name: str, values: Any) -> ClusterConfig:
        where = ("clusters", name)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise self.error(where, "a cluster's name is of letters, digits, '-' and '_'")
        kind = self.table(where, values).get("kind", name if name in options.CLUSTERS else None)
        valid = ", ".join(options.CLUSTERS)
        if kind is None:
            raise self.error(where, f'the key "kind" is missing; there is {valid}')
        if not isinstance(kind, str) or kind not in options.CLUSTERS:
            guess = nearest(str(kind), options.CLUSTERS)
            raise self.error((*where, "kind"), f"unknown kind '{kind}'; there is {valid}.{guess}")
        known = {option.name: option for option in options.CLUSTERS[kind]}
        self.check_names(where, values, list(known))
        settings = {
            key: self.value((*where, key), known[key], value) for key, value in values.items()
        }
        settings.pop("kind", None)
        return ClusterConfig(name, kind, settings)

    def table(self, where: Key, values: Any) -> Mapping[str, Any]:
        if not isinstance(values, dict):
            raise self.error(where, "must be a table")
        return values

    def check_names(self, where: Key, values: Mapping[str, Any], valid: Sequence[str]) -> None:
        for name in values:
            if name not in valid:
                raise self.error(
                    (*where, name),
                    f"unknown key.{nearest(name, valid)}",
                    hint=f"Valid keys here: {', '.join(sorted(valid))}.",
                )

    def value(self, key: Key, option: Option, value: Any) -> Any:
        try:
            return option.parse(value)
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def error(self, key: Key, message: str, hint: str = "") -> ConfigError:
        line = line_of(self.text, key)
        return ConfigError(f"{self.path}:{line}: {show_key(key)}: {message}", hint=hint)


def show_key(key: Key) -> str:
    """As one would write it: quoted where it must be."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(name if bare.fullmatch(name) else f'"{name}"' for name in key)


def line_of(text: str, key: Key) -> int:
    """The line on which the statement begins that first sets this key. tomllib does not tell, so
    it is asked which beginnings of the file have the key: all from there on."""
    lines = text.split("\n")

    def is_set_by(number: int) -> bool:
        return has_key(shortest_document(lines, number), key)

    return bisect_left(range(len(lines) + 1), True, lo=1, key=is_set_by)


def shortest_document(lines: Sequence[str], least: int) -> Mapping[str, Any]:
    """The first ``least`` lines, and as many more as belong to the last of their statements."""
    import tomllib

    for count in range(least, len(lines)):
        with suppress(tomllib.TOMLDecodeError):
            return tomllib.loads("\n".join(lines[:count]))
    return tomllib.loads("\n".join(lines))


def has_key(document: Any, key: Key) -> bool:
    for name in key:
        if isinstance(document, list):  # [[table]]
            document = document[-1] if document else None
        if not isinstance(document, dict) or name not in document:
            return False
        document = document[name]
    return True
