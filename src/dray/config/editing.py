"""Changes one thing in a config file: the rest stays as it is, byte for byte."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from dray.config.reading import FileSettings, read_file
from dray.config.toml_lines import (
    TOKEN,
    Key,
    escaped,
    has_key,
    header_key,
    key_lines,
    keys_in,
    line_of,
    one_line,
    show_key,
    statements,
)
from dray.errors import ConfigError, UsageError
from dray.node.formats import files

BOM = "\ufeff"
ON = "job.on"  # the default cluster


# -- pure ---------------------------------------------------------------------------------------


def cluster_table(
    name: str, kind: str, settings: Mapping[str, Any], notes: Iterable[str] = ()
) -> str:
    """Write the table [clusters.NAME], with a comment for each note."""
    lines = [f"[{show_key(('clusters', name))}]"]
    lines += [f"{key} = {value(one)}" for key, one in {"kind": kind, **settings}.items()]
    lines += [f"# {one_line(note)}" for note in notes]
    return "\n".join(lines) + "\n"


def job_tables(settings: Mapping[str, Any]) -> str:
    """Write [job] and the tables below it, from keys such as job.resources.gpus."""
    tables: dict[str, list[str]] = {}
    for key, one in settings.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {value(one)}")
    return "\n".join(
        "\n".join([f"[{table}]", *lines, ""]) for table, lines in sorted(tables.items())
    )


def value(one: Any) -> str:
    """Write a value as TOML."""
    if isinstance(one, list | tuple):
        return f"[{', '.join(value(each) for each in one)}]"
    if isinstance(one, dict):
        pairs = [f"{table_key(str(key))} = {value(each)}" for key, each in one.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(one, str):
        try:
            one.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{one!r} is not UTF-8 text") from None
        return "".join(map(escaped, json.dumps(one, ensure_ascii=False)))
    return json.dumps(one)


def table_key(name: str) -> str:
    """Write a key that may be any text."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else value(name)


def appended(text: str, table: str) -> str:
    """Append the table, after an empty line, with the file's own line endings."""
    gap = "\n" if text.endswith("\n") else "\n\n"
    has_content = text.strip(f"{BOM}\r\n\t ")
    return text + with_ends_of(text, gap + table if has_content else table)


def replaced(text: str, key: Key, table: str) -> str | None:
    """Put this table in the place of the one with this header; return None where there is none."""
    span = table_span(text, key)
    if span is None:
        return None
    rest = text.split("\n")[span[1] :]
    return before_line(text, span[0]) + with_ends_of(text, table) + "\n".join(rest)


def without_table(text: str, key: Key) -> str | None:
    """Remove the table with this header, and the empty line before it; return None where there is
    none. Comments right below it are removed with it, unless they are above the next header."""
    span = table_span(text, key)
    if span is None:
        return None
    before, rest = before_line(text, span[0]), text.split("\n")[span[1] :]
    notes = len(list(takewhile(lambda line: line.lstrip().startswith("#"), rest)))
    if notes < len(rest) and not rest[notes].strip():
        rest = rest[notes:]
    if before.endswith(("\n\n", "\n\r\n")):
        before = before.removesuffix("\n").removesuffix("\r")
    elif not before.strip(BOM) and rest and not rest[0].strip():
        rest = rest[1:]
    return before + "\n".join(rest)


def table_span(text: str, key: Key) -> tuple[int, int] | None:
    """Return the first line of the table with this header, and the line after its last. Comments
    behind its last setting are not part of it: they may be the next header's."""
    lines = text.split("\n")
    parts = statements(text)
    headers = [(start, end) for start, end in parts if header_of(lines, start, end) is not None]
    for number, (start, end) in enumerate(headers):
        if header_of(lines, start, end) != key:
            continue
        until = headers[number + 1][0] if number + 1 < len(headers) else len(lines)
        inside = [last for first, last in parts if first >= end and last <= until and
                  not is_empty(lines[first])]  # fmt: skip
        return start, max(inside, default=end)
    return None


def with_setting(text: str, key: Key, new: Any) -> str | None:
    """Set this value: in the place of the old one, or below its table's header, or in a new table
    at the end. Return None where it is part of something larger, such as an inline table."""
    *table, name = key
    lines = text.split("\n")
    found = setting_at(text, key)
    if found is not None:
        start, end = found
        said = plain(lines, start, end)
        left, _, right = said.partition("=")
        comment = next((one[0] for one in re.finditer(TOKEN, right, re.X | re.S)
                        if one[0].startswith("#")), "")  # fmt: skip
        line = f"{left.rstrip()} = {value(new)}{f'  {comment}' if comment else ''}"
        return before_line(text, start) + joined_lines(text, line, lines[end:])
    if key in key_lines(text.removeprefix(BOM).replace("\r\n", "\n")):
        return None
    for start, end in statements(text):
        if header_of(lines, start, end) == tuple(table):
            line = f"{name} = {value(new)}"
            return before_line(text, end) + joined_lines(text, line, lines[end:])
    return appended(text, f"[{show_key(table)}]\n{name} = {value(new)}\n")


def without_setting(text: str, key: Key) -> str | None:
    """Remove the line that sets this key; return None where it is part of something larger."""
    found = setting_at(text, key)
    if found is None:
        return None
    start, end = found
    return before_line(text, start) + "\n".join(text.split("\n")[end:])


def setting_at(text: str, key: Key) -> tuple[int, int] | None:
    """Return the first line of the statement that sets this key and no other, and the line after
    its last."""
    import tomllib

    lines = text.split("\n")
    table: Key = ()
    for start, end in statements(text):
        header = header_of(lines, start, end)
        if header is not None:
            table = header
        elif not is_empty(lines[start]):
            set_here = list(keys_in(tomllib.loads(plain(lines, start, end))))
            parts = len(set_here[-1])
            if (*table, *set_here[-1]) == key and len(set_here) == parts:
                return start, end
    return None


def before_line(text: str, number: int) -> str:
    before = "".join(f"{line}\n" for line in text.split("\n")[:number])
    return before or (BOM if text.startswith(BOM) else "")


def joined_lines(text: str, line: str, rest: list[str]) -> str:
    """Join a new line and the rest of the file. The file may have had no newline at its end."""
    return with_ends_of(text, f"{line}\n") + "\n".join(rest)


def header_of(lines: list[str], start: int, end: int) -> tuple[str, ...] | None:
    """Return the key of a [table] or [[table]] line; None for any other."""
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
    """Put the table into the file."""

    def is_right(before: FileSettings, now: FileSettings) -> bool:
        return name in now.clusters and same_but(name, before, now)

    def plan(content: str) -> str:
        return compose(path, content, name, table, replace=replace)

    hint = f"Change the file yourself:\n{table}"
    change(path, plan, is_right, f"the cluster cannot be added to {path}", hint)


def remove_cluster(path: Path, name: str) -> None:
    """Take the cluster's table out of the file, and its place as the default cluster."""
    was_default = read_file(path).settings.get(ON) == name

    def is_right(before: FileSettings, now: FileSettings) -> bool:
        settings = {
            key: one for key, one in before.settings.items() if key != ON or not was_default
        }
        return name not in now.clusters and same_but(name, before._replace(settings=settings), now)

    def plan(content: str) -> str:
        key = ("clusters", name)
        rest = without_setting(content, tuple(ON.split("."))) if was_default else content
        rest = without_table(rest, key) if rest is not None else None
        if rest is None:
            where = line_in(content.removeprefix(BOM), name)
            raise ConfigError(
                f"{path}:{where}: '{name}' is not in a table of its own, so it cannot be removed",
                hint="Remove it there.",
            )
        return rest

    hint = f"Remove [{show_key(('clusters', name))}] there yourself."
    change(path, plan, is_right, f"the cluster cannot be removed from {path}", hint)


def set_default(path: Path, name: str) -> None:
    """Make it the cluster that jobs go to: ``on`` in the file's [job]."""

    def is_right(before: FileSettings, now: FileSettings) -> bool:
        return now.settings == {**before.settings, ON: name} and now.clusters == before.clusters

    hint = f"Write it there yourself, in [job]:  on = {value(name)}"
    problem = f"the default cluster cannot be set in {path}"

    def plan(content: str) -> str:
        after = with_setting(content, tuple(ON.split(".")), name)
        if after is None:
            raise ConfigError(problem, hint=hint)
        return after

    change(path, plan, is_right, problem, hint)


def same_but(name: str, before: FileSettings, now: FileSettings) -> bool:
    """Return whether nothing differs but this cluster."""
    others = {key: one for key, one in before.clusters.items() if key != name}
    kept = {key: one for key, one in now.clusters.items() if key != name}
    return others == kept and before.settings == now.settings


def change(
    path: Path,
    plan: Callable[[str], str],
    is_right: Callable[[FileSettings, FileSettings], bool],
    problem: str,
    hint: str,
) -> None:
    """Write what ``plan`` returns. The file is replaced only once the new content has been read
    back and found right."""
    path = path.resolve()  # a link to a file elsewhere stays one
    files.make_folder(str(path.parent))
    with files.Lock(f"{path}.lock"):
        before = read_file(path)
        after = plan(path.read_bytes().decode() if path.exists() else "")
        candidate = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            files.write_bytes(str(candidate), after.encode())
            try:
                now = read_file(candidate)
            except ConfigError as error:
                why = error.message.replace(str(candidate), str(path))
                raise ConfigError(f"{problem}: {why}", hint=hint) from error
            if not is_right(before, now):
                raise ConfigError(problem, hint=hint)
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
