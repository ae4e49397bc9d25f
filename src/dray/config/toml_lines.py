"""Finds out where in a TOML file a key is set, as tomllib does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Key = tuple[str, ...]  # job.resources.gpus, in parts

MOST_PARTS = 32  # of a key: tomllib's time grows with their square
# What decides where a statement ends: texts and comments, brackets, and ends of lines.
TOKEN = r"""
    \"{3} (?: [^"\\] | \\. | "(?!"") )*+ "{3,5}
  | '{3} (?: [^'] | '(?!'') )*+ '{3,5}
  | " (?: [^"\\\n] | \\. )*+ "
  | ' [^'\n]*+ '
  | \# [^\n]*+
  | [\[\]{}\n]
"""
PART = r"""(?> [\w-]+ | " (?: [^"\\\n] | \\. )*+ " | ' [^'\n]*+ ' )"""
LONG_KEY = rf"(?<![\w-]) (?> {PART} [ \t]*+ \. [ \t]*+ ){{{MOST_PARTS}}}"


def long_key(text: str) -> int:
    """Return the line of a key with more parts than any setting has; 0 where there is none."""
    found = re.search(LONG_KEY, text, re.X)
    return text.count("\n", 0, found.start()) + 1 if found else 0


def statements(text: str) -> list[tuple[int, int]]:
    """Return the first line of each statement of a valid document, and the line after its last. An
    empty line or a comment counts as a statement."""
    found = []
    line = start = depth = 0
    for token in re.finditer(TOKEN, text, re.X | re.S):
        piece = token[0]
        line += piece.count("\n")
        depth += (piece in "[{") - (piece in "]}")
        if piece == "\n" and not depth:
            found.append((start, line))
            start = line
    return [*found, (start, line + 1)]


def line_of(text: str, key: Key) -> int:
    """Return the line on which the statement begins that first sets this key."""
    return key_lines(text).get(key, 1)


def key_lines(text: str) -> dict[Key, int]:
    """Return, for each key, the line on which the statement begins that first sets it."""
    import tomllib

    lines = text.split("\n")
    found: dict[Key, int] = {}
    table: Key = ()
    for start, end in statements(text):
        alone = "\n".join(lines[start:end]).strip()
        if alone.startswith("["):
            table = header_key(alone)
            keys: Iterator[Key] = (table[:count] for count in range(1, len(table) + 1))
        else:
            keys = ((*table, *key) for key in keys_in(tomllib.loads(alone)))
        for key in keys:
            found.setdefault(key, start + 1)
    return found


def keys_in(value: Any, deepest: int = 4) -> Iterator[Key]:
    """Yield the keys of a table, and of the tables in it; of a list of tables, those of the
    last."""
    if isinstance(value, list):
        value = value[-1] if value else None
    if isinstance(value, dict) and deepest:
        for name, below in value.items():
            yield (name,)
            yield from ((name, *key) for key in keys_in(below, deepest - 1))


def header_key(text: str) -> Key:
    """Return the key of a [table] or [[table]] line."""
    import tomllib

    found: Any = tomllib.loads(text)
    key: list[str] = []
    while found:
        found = found[0] if isinstance(found, list) else found
        for name, below in found.items():
            key.append(name)
            found = below
    return tuple(key)


def has_key(document: Mapping[str, Any], key: Key) -> bool:
    inner: Any = document
    for name in key:
        if not isinstance(inner, dict) or name not in inner:
            return False
        inner = inner[name]
    return True


def show_key(key: Sequence[str]) -> str:
    """Write a key as TOML has it: quoted where it must be."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(name if bare.fullmatch(name) else f'"{in_quotes(name)}"' for name in key)


def in_quotes(text: str) -> str:
    """Escape what cannot stand between quotes in TOML, and all that could act on a terminal."""
    return "".join(f"\\{letter}" if letter in '"\\' else escaped(letter) for letter in text)


def escaped(letter: str) -> str:
    """Escape an unprintable character as TOML does, so that nothing that is shown acts on a
    terminal."""
    if letter.isprintable():
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


def one_line(text: str) -> str:
    """Spell what would end a comment, or let an error bring lines of its own."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def entry_lines(text: str, table: str) -> list[dict[Key, int]]:
    """Return, for each entry of a [[table]], the lines on which its keys are first set; the line of
    the entry itself is that of ()."""
    import tomllib

    lines = text.split("\n")
    found: list[dict[Key, int]] = []
    inside: Key | None = None  # the part of the entry that statements are in
    for start, end in statements(text):
        alone = "\n".join(lines[start:end]).strip()
        if alone.startswith("["):
            key = header_key(alone)
            inside = key[1:] if key[:1] == (table,) else None
            if key == (table,) and alone.startswith("[["):
                found.append({})
            keys: list[Key] = [key[1:]]
        else:
            keys = list(keys_in(tomllib.loads(alone)))
        if inside is None or not found:
            continue
        for key in keys:
            whole = key if alone.startswith("[") else (*inside, *key)
            found[-1].setdefault(whole, start + 1)
    return found
