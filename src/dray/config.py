"""TOML files and the environment → typed settings. The only reader of os.environ."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray import options
from dray.errors import ConfigError, NotFound, nearest
from dray.options import Option

PROJECT_FILE = "dray.toml"

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


@dataclass(frozen=True)
class Home:
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


@dataclass(frozen=True)
class ClusterConfig:
    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    home: Home
    project: Path  # the folder that is snapshotted
    folder: str  # where in it the user stands
    job: Mapping[str, Any]  # by config key, such as job.resources.gpus
    snapshot_max: int
    clusters: Mapping[str, ClusterConfig]

    def cluster(self, name: str) -> ClusterConfig:
        try:
            return self.clusters[name]
        except KeyError:
            known = ", ".join(self.clusters)
            raise NotFound(
                f"there is no cluster '{name}'.{nearest(name, self.clusters)}",
                hint=f"Known clusters: {known}. Others go into {self.home.config_file} as "
                f"[clusters.{name}].",
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
    start = start or Path.cwd()
    home = find_home()
    project = find_project(start)
    settings: dict[str, Any] = {}
    clusters = {"local": ClusterConfig("local", "local")}
    for path in (home.config_file, project / PROJECT_FILE):
        found = read_file(path)
        combine(settings, found.settings)
        clusters.update(found.clusters)
    combine(settings, flags or {})
    return Config(
        home=home,
        project=project,
        folder="" if start == project else start.relative_to(project).as_posix(),
        job={key: value for key, value in settings.items() if key.startswith("job.")},
        snapshot_max=settings.get("snapshot.max_size", 2**30),
        clusters=clusters,
    )


def combine(settings: dict[str, Any], stronger: Mapping[str, Any]) -> None:
    """The stronger value wins, except that variables, outputs and secrets come together: a flag
    adds one without losing those of the project."""
    for key, value in stronger.items():
        weaker = settings.get(key)
        if key == "job.env":
            settings[key] = {**(weaker or {}), **value}
        elif key in ("job.outputs", "job.secrets"):
            settings[key] = tuple(dict.fromkeys([*(weaker or ()), *value]))
        else:
            settings[key] = value


@dataclass(frozen=True)
class FileSettings:
    settings: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)


def read_file(path: Path) -> FileSettings:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return FileSettings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return _Reader(path, text).read(document)


class _Reader:
    """Turns one document into settings; every complaint names file, line and key."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def read(self, document: Mapping[str, Any]) -> FileSettings:
        self.check_names("", document, ["job", "snapshot", "clusters"])
        settings: dict[str, Any] = {}
        known = [*options.JOB, *options.SNAPSHOT]
        for table in ("job", "snapshot"):
            if table in document:
                self.read_table(table, document[table], known, settings)
        clusters = {
            name: self.read_cluster(name, table)
            for name, table in self.table("clusters", document.get("clusters", {})).items()
        }
        return FileSettings(settings, clusters)

    def read_table(
        self, table: str, values: Any, known: Sequence[Option], into: dict[str, Any]
    ) -> None:
        here = {option.name: option for option in known if option.table == table}
        below = {
            option.table[len(table) + 1 :].split(".")[0]
            for option in known
            if option.table.startswith(f"{table}.")
        }
        self.check_names(table, self.table(table, values), [*here, *below])
        for name, value in values.items():
            if name in below:
                self.read_table(f"{table}.{name}", value, known, into)
            else:
                into[f"{table}.{name}"] = self.value(f"{table}.{name}", here[name], value)

    def read_cluster(self, name: str, values: Any) -> ClusterConfig:
        where = f"clusters.{name}"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise self.error(where, "a cluster's name is of letters, digits, '-' and '_'")
        kind = self.table(where, values).get("kind", name if name in options.CLUSTERS else None)
        if kind is None:
            raise self.error(where, 'the key "kind" is missing')
        if kind not in options.CLUSTERS:
            valid = ", ".join(options.CLUSTERS)
            raise self.error(f"{where}.kind", f"unknown kind '{kind}'; there is {valid}")
        known = {option.name: option for option in options.CLUSTERS[kind]}
        self.check_names(where, values, list(known))
        settings = {
            key: self.value(f"{where}.{key}", known[key], value) for key, value in values.items()
        }
        settings.pop("kind", None)
        return ClusterConfig(name, kind, settings)

    def table(self, where: str, values: Any) -> Mapping[str, Any]:
        if not isinstance(values, dict):
            raise self.error(where, "must be a table")
        return values

    def check_names(self, where: str, values: Mapping[str, Any], valid: Sequence[str]) -> None:
        for name in values:
            if name not in valid:
                key = f"{where}.{name}" if where else name
                raise self.error(
                    key,
                    f"unknown key.{nearest(name, valid)}",
                    hint=f"Valid keys here: {', '.join(sorted(valid))}.",
                )

    def value(self, key: str, option: Option, value: Any) -> Any:
        try:
            return option.parse(value)
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def error(self, key: str, message: str, hint: str = "") -> ConfigError:
        line = line_of(self.text, key)
        return ConfigError(f"{self.path}:{line}: {key}: {message}", hint=hint)


def line_of(text: str, key: str) -> int:
    """The line on which a dotted key is set, or its table begins (tomllib does not tell)."""
    best, best_length = 1, 0
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+([^\]]+)\]", line)
        assignment = re.match(r"\s*([A-Za-z0-9_.\"'\- ]+?)\s*=", line)
        if header:
            table = _split_key(header[1])
            here = table
        elif assignment:
            here = table + _split_key(assignment[1])
        else:
            continue
        wanted = key.split(".")
        if wanted[: len(here)] == here and len(here) > best_length:
            best, best_length = number, len(here)
    return best


def _split_key(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]
