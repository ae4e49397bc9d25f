"""Reads a batch file: many jobs, each with its own command and settings. Every error names file,
line and key."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from dray.checks import TAKEN_NAME
from dray.config.reading import Document, Reader, read_document
from dray.config.toml_lines import Key, entry_lines, one_line, show_key
from dray.errors import ConfigError, NotFound, nearest
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.job.options import Option

INDEX = "{index}"
MOST_JOBS = 10_000  # of one entry
OWN = ("command", "run", "after", "inputs", "count", "share", "lead")
TABLES = ("job", "job.resources", "job.limits")  # whose settings need no table of their own here
# The jobs of a batch are called by its id and their names: nightly-7f3k.train, and train.0 of
# several. So a name is no number, none that a Kubernetes Job of a resumed job has, and none that
# means something else to ssh.
NAME = re.compile(rf"(?!r[0-9]+$){TAKEN_NAME}[a-z][a-z0-9-]{{0,29}}")
OPERATORS = "$`;|&<>"
BRACED = re.compile(r"\{([A-Za-z_]{3,12})\}")
ALIKE = 0.75  # of difflib's ratio: idx and indx are, id and node are not


class BatchJob(NamedTuple):
    """One entry: a job, or with a ``number`` several whose commands differ in their {index}."""

    where: str  # for messages: the file and the line
    name: str  # '': taken from the command
    command: tuple[str, ...]
    settings: Mapping[str, Any] = MappingProxyType({})  # by config key
    after: tuple[str, ...] = ()  # NAME[:ok|any] of this file, or another job
    inputs: Mapping[str, str] = MappingProxyType({})
    number: int | None = None  # how many there are: ``count``
    share: int = 1  # how many of its commands one allocation is for
    is_lead: bool = False  # of jobs that run together: its end ends the others

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        if self.number is None:
            return (self.command,)
        return tuple(
            tuple(word.replace(INDEX, str(index)) for word in self.command)
            for index in range(self.number)
        )

    def mistake(self, message: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.where}: {message}", hint=hint)


class BatchFile(NamedTuple):
    path: Path
    name: str
    content: bytes
    jobs: tuple[BatchJob, ...]
    defaults: Mapping[str, Any] = MappingProxyType({})
    together: bool = False
    notes: tuple[str, ...] = ()  # what of it means something else here


def read(path: Path) -> BatchFile:
    document = read_document(path)
    if document is None:
        raise NotFound(f"there is no file {path}")
    try:
        return BatchReader(document).batch()
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: a value cannot be read: {error}") from error


def name_from(path: Path) -> str:
    """Return what a batch is called that has no name: as its file."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:24].strip("-") or "batch"


class BatchReader(Reader):
    """Turns one document into a batch."""

    def __init__(self, document: Document) -> None:
        Reader.__init__(self, document, {}, ())
        self.entry: int | None = None

    @cached_property
    def _entry_lines(self) -> list[dict[Key, int]]:
        return entry_lines(self.document.text, "jobs")

    def error(self, key: Key, message: str, hint: str = "") -> ConfigError:
        if self.entry is None:
            return Reader.error(self, key, message, hint)
        where = f"{self.document.path}:{self._line(self.entry, key)}"
        told = f"{show_key(key)}: {message}" if key else message
        return ConfigError(f"{where}: {one_line(told)}", hint=hint)

    def _line(self, entry: int, key: Key) -> int:
        lines = self._entry_lines[entry] if entry < len(self._entry_lines) else {}
        return lines.get(key) or lines.get(()) or self.document.line(("jobs",))

    def batch(self) -> BatchFile:
        found, path = self.document.tables, self.document.path
        self.check_names((), found, ["name", "together", "defaults", "jobs"])
        entries = found.get("jobs", [])
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise self.error(("jobs",), "must be a list of tables: [[jobs]]")
        if not entries:
            raise ConfigError(f"{path}: there are no jobs in it", hint="Begin each with [[jobs]].")
        defaults: dict[str, Any] = {}
        if "defaults" in found:
            table = self.table(("defaults",), found["defaults"])
            defaults = self.settings(("defaults",), table, own=())
            if "job.name" in defaults:
                raise self.error(("defaults", "name"), "each job has a name of its own")
        together = self.flag(found, "together")
        name = self.name((), found["name"]) if "name" in found else name_from(path)
        jobs = tuple(self.job(number, one) for number, one in enumerate(entries))
        self.entry = None
        return BatchFile(path, name, self.document.content, jobs, defaults, together)

    def name(self, where: Key, given: Any) -> str:
        if not isinstance(given, str) or not NAME.fullmatch(given):
            raise self.error(
                (*where, "name"),
                "a name is of small letters, digits and '-', and begins with a "
                "letter; 30 characters at most; not r1, rank1 or host, which mean something else",
            )
        return given

    def job(self, number: int, found: Mapping[str, Any]) -> BatchJob:
        self.entry = number
        where = f"{self.document.path}:{self._line(number, ())}"
        settings = self.settings((), found, OWN)
        name = self.name((), found["name"]) if "name" in found else ""
        command, count = self.command(found), self.number(found, "count", MOST_JOBS)
        key = ("command" if "command" in found else "run",)
        if count is None and any(INDEX in word for word in command):
            raise self.error(
                key,
                f"{INDEX} stands for nothing without a count",
                hint="Say how many there are: count = 3",
            )
        if wrong := misspelt(command) if count is not None else "":
            raise self.error(key, f"{wrong} stands for nothing. Did you mean {INDEX}?")
        return BatchJob(
            where,
            name,
            command,
            {key: value for key, value in settings.items() if key != "job.name"},
            self.texts(found, "after"),
            self.inputs(found),
            count,
            self.number(found, "share", MOST_JOBS) or 1,
            self.flag(found, "lead"),
        )

    def settings(self, where: Key, found: Mapping[str, Any], own: Sequence[str]) -> dict[str, Any]:
        """Read what a job has of settings: those of [job], [job.resources] and [job.limits] by
        their names alone, all others in tables as in dray.toml."""
        from dray.job.options import JOB

        flat = {one.name: one for one in JOB if one.table in TABLES}
        below = {one.table.split(".")[1] for one in JOB if one.table != "job"}
        self.check_names(where, found, [*own, *flat, *below])
        settings: dict[str, Any] = {}
        for name, value in found.items():
            if name in below:
                self.table_of(where, name, value, settings)
            elif name in flat:
                settings[flat[name].key] = self.value((*where, name), flat[name], value)
        return settings

    def table_of(self, where: Key, name: str, found: Any, into: dict[str, Any]) -> None:
        from dray.job.options import JOB

        known = {one.name: one for one in JOB if one.table == f"job.{name}"}
        self.check_names((*where, name), self.table((*where, name), found), [*known])
        for key, value in found.items():
            option: Option = known[key]
            into[option.key] = self.value((*where, name, key), option, value)

    def command(self, found: Mapping[str, Any]) -> tuple[str, ...]:
        if ("command" in found) == ("run" in found):
            raise self.error(
                ("run",) if "run" in found else (),
                "a job has either a command or a line to run",
                hint='command = ["python", "train.py"], or run = "python train.py"',
            )
        if "command" in found:
            words = self.texts(found, "command")
            if not words:
                raise self.error(("command",), "it is empty")
            return words
        try:
            return split_words(found["run"])
        except ValueError as error:
            raise self.error(("run",), str(error), hint=NO_SHELL) from error

    def texts(self, found: Mapping[str, Any], name: str) -> tuple[str, ...]:
        value = found.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.error((name,), 'must be a list of texts: ["…"]')
        return tuple(value)

    def inputs(self, found: Mapping[str, Any]) -> dict[str, str]:
        value = self.table(("inputs",), found.get("inputs", {}))
        for name, one in value.items():
            if not isinstance(one, str):
                raise self.error(("inputs", name), 'must be a text: "JOB" or "JOB:PATH"')
        return dict(value)

    def flag(self, found: Mapping[str, Any], name: str) -> bool:
        value = found.get(name, False)
        if not isinstance(value, bool):
            raise self.error((name,), "must be true or false")
        return value

    def number(self, found: Mapping[str, Any], name: str, most: int) -> int | None:
        value = found.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.error((name,), f"must be a number from 1 to {most}")
        return value


def misspelt(command: Sequence[str]) -> str:
    """Return what is almost surely meant for {index}; '' where nothing is."""
    from difflib import get_close_matches  # only where several jobs have one command

    braced = {found.group(1) for word in command for found in BRACED.finditer(word)} - {"index"}
    wrong = [one for one in sorted(braced) if get_close_matches(one.lower(), ["index"], 1, ALIKE)]
    return f"{{{wrong[0]}}}" if wrong else ""


NO_SHELL = 'No shell reads it. Write one where it is needed: command = ["bash", "-c", "…"]'


def split_words(line: Any) -> tuple[str, ...]:
    """Split a line as a shell would; raise ValueError for what only a shell could do."""
    if not isinstance(line, str):
        raise ValueError("must be a text")
    if operator := first_operator(line):
        raise ValueError(f"{operator} means something to a shell alone")
    words = tuple(shlex.split(line))
    if not words:
        raise ValueError("it is empty")
    return words


def first_operator(line: str) -> str:
    """Return the first sign that a shell would act upon; '' where there is none."""
    quote, escaped = "", False
    for sign in line:
        if escaped:
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif sign in "'\"" and quote in ("", sign):
            quote = "" if quote else sign
        elif sign in OPERATORS and (not quote or (quote == '"' and sign in "$`")):
            return sign
    return ""


def unknown_job(job: BatchJob, reference: str, names: Sequence[str]) -> ConfigError:
    """Return the error for a job that is named, and is neither in the file nor known."""
    return job.mistake(f"there is no job '{reference}'.{nearest(reference, names)}")
