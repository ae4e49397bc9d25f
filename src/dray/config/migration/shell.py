"""Reads shell files that set variables, without a shell."""

from __future__ import annotations

import re
from typing import NamedTuple

from dray.config.migration.found import Text

COMPUTED = "computed by a shell, which is not run here: write the value itself"
NAME = re.compile(r"([A-Za-z_]\w*)=")
PIECE = re.compile(
    r"""'(?P<single>[^']*)'
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | \\(?P<escaped>.)
      | (?P<plain>[^\s'"\\;&|<>()`]+)""",
    re.X,
)
REFERENCE = re.compile(r"(?<!\\)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^}]*))?\})")


class Assigned(NamedTuple):
    value: str
    line: int
    computed: bool = False  # the value is the shell's text for it


def assignments(text: Text) -> dict[str, Assigned]:
    """Read NAME=value lines. References to names set before are filled in, others stay."""
    found: dict[str, Assigned] = {}
    for number, line in enumerate(text.content.split("\n"), 1):
        rest = line.strip()
        if rest.startswith("#"):
            continue
        exported = re.match(r"export\s+", rest)
        rest = rest[exported.end() :] if exported else rest
        while rest and not rest.startswith("#"):
            rest = _take(text, number, rest, bool(exported), found)
    return found


def _take(text: Text, line: int, rest: str, exported: bool, found: dict[str, Assigned]) -> str:
    """Read one assignment at the beginning of ``rest``; return what follows it."""
    name = NAME.match(rest)
    if not name:
        word = re.match(r"[A-Za-z_]\w*(?=\s|$)", rest) if exported else None
        if word:  # export NAME, set before
            return rest[word.end() :].lstrip()
        raise text.error(line, f"'{rest}' is not NAME=value (spaces need quotes)")
    at, value, computed = name.end(), "", False
    while at < len(rest) and not rest[at].isspace() and rest[at] != ";":
        piece = PIECE.match(rest, at)
        if piece:
            part, special = _read(piece, found)
            value, at, computed = value + part, piece.end(), computed or special
        elif rest[at] in "(`":
            return _computed(rest, name, line, found)
        elif rest[at] in "'\"":
            raise text.error(line, f"the quote is not closed: {rest}")
        else:
            raise text.error(line, f"'{rest[at]}' must be in quotes: {rest}")
    if computed:
        return _computed(rest, name, line, found)
    found[name[1]] = Assigned(value, line)
    return rest[at:].lstrip(" \t;")


def _computed(rest: str, name: re.Match[str], line: int, found: dict[str, Assigned]) -> str:
    """Take the rest of the line as the value: only a shell could tell where it ends."""
    found[name[1]] = Assigned(rest[name.end() :], line, computed=True)
    return ""


def _read(piece: re.Match[str], found: dict[str, Assigned]) -> tuple[str, bool]:
    """Return the piece's text, and whether only a shell could compute it."""
    if piece["single"] is not None:
        return piece["single"], False
    if piece["escaped"] is not None:
        return piece["escaped"], False
    inside = piece["plain"] if piece["double"] is None else piece["double"]

    def fill(reference: re.Match[str]) -> str:
        name = reference[1] or reference[2]
        if name in found:
            return found[name].value
        return reference[0] if reference[3] is None else reference[3]

    names = {match[1] or match[2] for match in REFERENCE.finditer(inside)}
    special = any(found[name].computed for name in names if name in found)
    special = special or bool(re.search(r"(?<!\\)(`|\$\(|\$\{(?!\w+(:?-[^}]*)?\}))", inside))
    value = REFERENCE.sub(fill, inside)
    return (re.sub(r'\\([$`"\\])', r"\1", value) if piece["plain"] is None else value), special
