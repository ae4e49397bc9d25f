"""Turns one TOML file into typed settings; every error names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from dray import plain_files, project
from dray.config.toml_lines import MOST_PARTS, Key, key_lines, long_key, one_line, show_key
from dray.errors import ConfigError, nearest
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.job.options import Option


class ClusterConfig(NamedTuple):
    name: str
    kind: str
    settings: Mapping[str, Any] = MappingProxyType({})


class FileSettings(NamedTuple):
    settings: Mapping[str, Any] = MappingProxyType({})
    clusters: Mapping[str, ClusterConfig] = MappingProxyType({})


class Document:
    """A file as it was read, at one moment."""

    def __init__(self, path: Path, content: bytes, strangers: str = "") -> None:
        self.path = path
        self.content = content
        self.strangers = strangers  # who else decides what is in it

    @cached_property
    def text(self) -> str:
        try:
            return self.content.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = self.content.count(b"\n", 0, error.start) + 1
            raise ConfigError(
                f"{self.path}:{line}: not UTF-8 text", hint="Save it as UTF-8."
            ) from error

    @cached_property
    def tables(self) -> Mapping[str, Any]:
        import tomllib  # only where there is a file

        if line := long_key(self.text):
            raise ConfigError(f"{self.path}:{line}: a key has more than {MOST_PARTS} parts")
        try:
            return tomllib.loads(self.text)
        except RecursionError:
            raise ConfigError(f"{self.path}: lists or tables lie too deep in one another") from None
        except ValueError as error:  # also of numbers that are too long
            found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
            line = int(found[2]) if found else self.text.count("\n") + 1
            message = f"{found[1]}, at column {found[3]}" if found else str(error)
            raise ConfigError(f"{self.path}:{line}: not valid TOML: {message}") from error

    @cached_property
    def _lines(self) -> Mapping[Key, int]:
        return key_lines(self.text)

    def line(self, key: Key) -> int:
        """Return the line on which this key is first set."""
        return self._lines.get(key, 1)

    def value(self, key: Key) -> Any:
        """Return the value as it is written there."""
        found: Any = self.tables
        for name in key:
            found = found[name]
        return found

    def settings(
        self, known: Mapping[str, str] = MappingProxyType({}), besides: Sequence[str] = ()
    ) -> FileSettings:
        """Read the file's settings. ``known`` are the kinds of clusters that another file defines:
        a file that adds to a cluster need not repeat its kind. ``besides``: a file for something
        else has these tables, which are not read here, and of the others [job] alone."""
        try:
            return Reader(self, known, besides).read(self.tables)
        except (RecursionError, ValueError) as error:  # such as a number too long to be told
            raise ConfigError(f"{self.path}: a value cannot be read: {error}") from error


def read_document(path: Path) -> Document | None:
    """Read the file; None where it does not exist."""
    try:
        content, status = plain_files.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return Document(path, content, project.strangers(status))


def read_file(path: Path) -> FileSettings:
    document = read_document(path)
    return document.settings() if document else FileSettings()


class Reader:
    """Turns one document into settings."""

    def __init__(
        self, document: Document, known: Mapping[str, str], besides: Sequence[str]
    ) -> None:
        from dray.job.options import kinds  # no option is needed where there is no file

        self.document = document
        self.valid = ["job", *besides] if besides else ["job", "snapshot", "notify", "clusters"]
        self.kinds = {**{name: name for name in kinds.BUILT_IN}, **known}

    def read(self, document: Mapping[str, Any]) -> FileSettings:
        from dray.job import options

        self.check_names((), document, self.valid)
        settings: dict[str, Any] = {}
        known = [*options.JOB, *options.SNAPSHOT, *options.NOTIFY]
        for table in ("job", "snapshot", "notify"):
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
        from dray.job.options import kinds

        where = ("clusters", name)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise self.error(where, "a cluster's name is of letters, digits, '-' and '_'")
        kind = self.table(where, values).get("kind", self.kinds.get(name))
        if kind is None:
            valid = ", ".join(kinds.names())
            raise self.error(where, f'the key "kind" is missing; there is {valid}')
        if not isinstance(kind, str) or not kinds.is_known(kind):
            valid, guess = ", ".join(kinds.names()), nearest(str(kind), kinds.names())
            raise self.error((*where, "kind"), f"unknown kind '{kind}'; there is {valid}.{guess}")
        try:
            known = {option.name: option for option in kinds.find(kind).options}
        except ConfigError:  # whoever uses this cluster is told; all else goes on without it
            return ClusterConfig(name, kind)
        self.check_names(where, values, ["kind", *(one for one in known if one != "kind")])
        settings = {
            key: self.value((*where, key), known[key], value)
            for key, value in values.items()
            if key != "kind"
        }
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
                    f"unknown key.{home_of(name) or nearest(name, valid)}",
                    hint=f"Valid keys here: {', '.join(sorted(valid))}.",
                )

    def value(self, key: Key, option: Option, value: Any) -> Any:
        try:
            return option.parse(value)
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def error(self, key: Key, message: str, hint: str = "") -> ConfigError:
        where = f"{self.document.path}:{self.document.line(key)}"
        return ConfigError(f"{where}: {show_key(key)}: {one_line(message)}", hint=hint)


def home_of(name: str) -> str:
    """Return " It belongs to [job.resources]." or '', to be appended to a sentence."""
    from dray.job import options

    known = [*options.JOB, *options.SNAPSHOT, *options.NOTIFY]
    known += [option for kind in options.CLUSTERS.values() for option in kind]
    tables = dict.fromkeys(option.table for option in known if option.name == name)
    shown = [f"[{table.replace('*', 'NAME')}]" for table in tables]
    return f" It belongs to {' or '.join(shown)}." if shown else ""
