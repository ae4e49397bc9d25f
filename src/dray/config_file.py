"""Tables added to a config file: what else is in it stays as it is, byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dray.config_reader import FileSettings, read_file
from dray.errors import ConfigError, UsageError
from dray.node import files
from dray.toml_lines import has_key, header_key, line_of, show_key, statements

BOM = "\ufeff"


# -- pure ---------------------------------------------------------------------------------------


def cluster_table(
    name: str, kind: str, settings: Mapping[str, Any], notes: Iterable[str] = ()
) -> str:
    """[clusters.NAME], with a comment for each note."""
    lines = [f"[{show_key(('clusters', name))}]"]
    lines += [f"{key} = {value(one)}" for key, one in {"kind": kind, **settings}.items()]
    lines += [f"# {one_line(note)}" for note in notes]
    return "\n".join(lines) + "\n"


def job_tables(settings: Mapping[str, Any]) -> str:
    """[job] and the tables below it, from keys such as job.resources.gpus."""
    tables: dict[str, list[str]] = {}
    for key, one in settings.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {value(one)}")
    return "\n".join(
        "\n".join([f"[{table}]", *lines, ""]) for table, lines in sorted(tables.items())
    )


def value(one: Any) -> str:
    """As TOML."""
    if isinstance(one, list | tuple):
        return f"[{', '.join(value(each) for each in one)}]"
    if isinstance(one, str):
        try:
            one.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{one!r} is not UTF-8 text") from None
        return "".join(map(escaped, json.dumps(one, ensure_ascii=False)))
    return json.dumps(one)


def escaped(letter: str) -> str:
    """As TOML spells what does not print: nothing that is shown acts on a terminal."""
    if letter.isprintable():
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


def one_line(text: str) -> str:
    """Nothing in it ends the comment."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def appended(text: str, table: str) -> str:
    """At the end, after an empty line, with the file's own line ends."""
    gap = "\n" if text.endswith("\n") else "\n\n"
    has_content = text.strip(f"{BOM}\r\n\t ")
    return text + with_ends_of(text, gap + table if has_content else table)


def replaced(text: str, key: tuple[str, ...], table: str) -> str | None:
    """With this table in the place of the one that has this header; None where there is none.
    Comments above the next header are that header's."""
    lines = text.split("\n")
    parts = statements(text)
    headers = [(start, end) for start, end in parts if header_of(lines, start, end) is not None]
    for number, (start, end) in enumerate(headers):
        if header_of(lines, start, end) != key:
            continue
        until = headers[number + 1][0] if number + 1 < len(headers) else len(lines)
        inside = [last for first, last in parts if first >= end and last <= until and
                  not is_empty(lines[first])]  # fmt: skip
        after = max(inside, default=end)
        before = "".join(f"{line}\n" for line in lines[:start])
        before = before or (BOM if text.startswith(BOM) else "")
        return before + with_ends_of(text, table) + "\n".join(lines[after:])
    return None


def header_of(lines: list[str], start: int, end: int) -> tuple[str, ...] | None:
    """The key of a [table] or [[table]] line."""
    text = plain(lines, start, end).strip()
    return header_key(text) if text.startswith("[") else None


def plain(lines: list[str], start: int, end: int) -> str:
    return "\n".join(lines[start:end]).removesuffix("\r").removeprefix(BOM)


def is_empty(line: str) -> bool:
    return not line.strip(f"{BOM}\r\t ") or line.lstrip(f"{BOM}\t ").startswith("#")


def with_ends_of(text: str, new: str) -> str:
    return new.replace("\n", "\r\n") if "\r\n" in text else new


# -- acting -------------------------------------------------------------------------------------


def add_cluster(path: Path, name: str, table: str, *, replace: bool = False) -> None:
    """Put the table into the file; it appears whole, read back and found right, or not at all."""
    path = path.resolve()  # a link to a file elsewhere stays one
    files.make_folder(str(path.parent))
    with files.Lock(f"{path}.lock"):
        before = read_file(path)
        content = path.read_bytes().decode() if path.exists() else ""
        after = compose(path, content, name, table, replace=replace)
        candidate = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            files.write_bytes(str(candidate), after.encode())
            check(path, candidate, before, name, table)
            candidate.replace(path)
        finally:
            candidate.unlink(missing_ok=True)
        files.sync_folder(str(path.parent))


def require_new(path: Path, name: str) -> None:
    """Refuse, with file and line, where the file has this cluster already."""
    if name in read_file(path).clusters:
        where = line_in(path.read_bytes().decode("utf-8-sig"), name)
        raise ConfigError(
            f"{path}:{where}: there is a cluster '{name}' already",
            hint="Choose another name, or put the new one in its place with --replace.",
        )


def line_in(content: str, name: str) -> int:
    return line_of(content.replace("\r\n", "\n"), ("clusters", name))


def compose(path: Path, content: str, name: str, table: str, *, replace: bool) -> str:
    import tomllib

    key = ("clusters", name)
    if not has_key(tomllib.loads(content.removeprefix(BOM)), key):
        return appended(content, table)
    if not replace:
        require_new(path, name)
    after = replaced(content, key, table)
    if after is None:
        where = line_in(content.removeprefix(BOM), name)
        raise ConfigError(
            f"{path}:{where}: '{name}' is not in a table of its own, so it cannot be replaced",
            hint=f"Remove it there, or write it as [{show_key(key)}].",
        )
    return after


def check(path: Path, candidate: Path, before: FileSettings, name: str, table: str) -> None:
    """The new file says what the old one said, and has the cluster."""
    hint = f"Change the file yourself:\n{table}"
    try:
        now = read_file(candidate)
    except ConfigError as error:
        why = error.message.replace(str(candidate), str(path))
        raise ConfigError(f"the cluster cannot be added: {why}", hint=hint) from error
    others = {key: one for key, one in before.clusters.items() if key != name}
    kept = {key: one for key, one in now.clusters.items() if key != name}
    if name not in now.clusters or others != kept or before.settings != now.settings:
        raise ConfigError(f"{path}: the cluster cannot be added to a file like this", hint=hint)
