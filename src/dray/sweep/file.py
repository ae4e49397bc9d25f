"""Reads a sweep's TOML file: [sweep], [sweep.space], and [job] as everywhere; and writes one.

Every mistake is told with its file and line, and what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from dray.config.editing import job_tables, table_key, value
from dray.config.reading import Document, read_document
from dray.config.toml_lines import one_line, show_key
from dray.errors import ConfigError, nearest
from dray.records import NamedTuple
from dray.sweep import space
from dray.sweep.options import SWEEP
from dray.sweep.study import Parameter, usual_emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLE = "sweep"
SPACE = (TABLE, "space")


class SweepFile(NamedTuple):
    """What a file says: settings by key (sweep.trials, job.resources.gpus), and parameters that
    are not yet put together into a space, since flags may add to them."""

    path: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})
    parameters: tuple[Parameter, ...] = ()

    def sweep(self, name: str) -> Any:
        """Return a setting of [sweep], or its default."""
        return next(one for one in SWEEP if one.name == name).of(self.settings)


def read(path: Path) -> SweepFile:
    document = read_document(path)
    if document is None:
        raise ConfigError(f"{path}: there is no such file")
    return read_sweep(document)


def read_sweep(document: Document) -> SweepFile:
    """Read a sweep's file as it stands."""
    reader = _Reader(document)
    sweep = reader.table((TABLE,), document.tables.get(TABLE))
    settings = reader.settings(sweep)
    parameters = reader.parameters(reader.table(SPACE, sweep.get("space", {})))
    job = document.settings(besides=(TABLE,)).settings
    return SweepFile(str(document.path), {**job, **settings}, parameters)


class _Reader:
    """Turns one document into a sweep."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.known = {option.name: option for option in SWEEP}

    def settings(self, sweep: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, one in sweep.items():
            if name == "space":
                continue
            if name not in self.known:
                valid = sorted([*self.known, "space"])
                raise self.error(
                    (TABLE, name),
                    f"unknown key.{nearest(name, valid)}",
                    hint=f"Valid keys here: {', '.join(valid)}.",
                )
            try:
                found[self.known[name].key] = self.known[name].parse(one)
            except ValueError as error:
                raise self.error((TABLE, name), str(error)) from error
        return found

    def parameters(self, table: Mapping[str, Any]) -> tuple[Parameter, ...]:
        found = []
        for name, one in table.items():
            try:
                found.append(space.from_toml(name, one))
            except space.SpaceError as error:
                raise self.error((*SPACE, name), str(error)) from None
        try:
            space.whole(found)
        except space.SpaceError as error:
            raise self.error((*SPACE, error.name), str(error)) from None
        return tuple(found)

    def table(self, key: tuple[str, ...], found: Any) -> Mapping[str, Any]:
        if found is None:
            raise ConfigError(
                f"{self.document.path}: there is no [{show_key(key)}] in it",
                hint="Write [sweep] and below it [sweep.space]: see docs/how-to/run-a-sweep.md.",
            )
        if not isinstance(found, dict):
            raise self.error(key, "must be a table")
        return found

    def error(self, key: tuple[str, ...], message: str, hint: str = "") -> ConfigError:
        where = f"{self.document.path}:{self.document.line(key)}"
        return ConfigError(f"{where}: {show_key(key)}: {one_line(message)}", hint=hint)


# -- writing ------------------------------------------------------------------------------------


def written(
    settings: Mapping[str, Any], parameters: Iterable[Parameter], notes: Iterable[str] = ()
) -> str:
    """Write a sweep's file, with a comment for each note. Settings are as they are in TOML."""
    lines = [f"# {one_line(note)}" for note in notes]
    own = {key: one for key, one in settings.items() if key.startswith(f"{TABLE}.")}
    others = {key: one for key, one in settings.items() if key not in own}
    lines += [f"[{TABLE}]", *(f"{key[len(TABLE) + 1 :]} = {value(own[key])}" for key in own)]
    lines += ["", f"[{show_key(SPACE)}]"]
    lines += [f"{table_key(one.name)} = {value(as_toml(one))}" for one in parameters]
    jobs = job_tables(others)
    return "\n".join(lines) + "\n" + (f"\n{jobs}" if jobs else "")


def as_toml(parameter: Parameter) -> Any:
    """Return the parameter as [sweep.space] has it, in the shortest form that reads back."""
    record = parameter.to_dict()
    table: dict[str, Any] = {}
    if parameter.emit != usual_emit(parameter.name):
        table["emit"] = parameter.emit
    if parameter.when:
        table["when"] = record["when"]
    if parameter.kind in ("choice", "drawn"):
        if parameter.kind == "choice" and not table:
            return record["values"]
        return {parameter.kind: record["values"], **table}
    if parameter.kind == "table":
        return {"table": record["rows"], "of": record["of"], **table}
    if parameter.kind == "formula":
        return {"formula": parameter.formula, **table} if table else f"={parameter.formula}"
    if parameter.kind == "fixed":
        simple = not table and not isinstance(parameter.value, str | list | tuple | dict)
        return parameter.value if simple else {"fixed": record["value"], **table}
    return {**range_table(parameter), **table}


def range_table(parameter: Parameter) -> dict[str, Any]:
    ends = [parameter.low, parameter.high]
    if parameter.kind == "float" and parameter.log:
        return {"log": ends}
    table: dict[str, Any] = {parameter.kind: ends}
    if parameter.log:
        table["log"] = True
    if parameter.step not in (None, 1) or (parameter.step and parameter.kind == "float"):
        table["step"] = parameter.step
    return table
