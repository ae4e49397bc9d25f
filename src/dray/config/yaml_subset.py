"""Reads YAML as far as settings of other tools are written in it: blocks, one-line flow
collections, quoted and plain scalars, folded and literal texts, comments.

Anything else (anchors, tags, several documents, scalars of several lines) is refused with its line,
and read by PyYAML where that is installed. Words that YAML's versions understand differently (yes,
on, 010) are refused too, by us alone: they have to be quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count

from dray.config.migration.found import Text
from dray.errors import ConfigError
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Path = tuple[str | int, ...]

DEEPEST = 32
LONGEST_LINE = 1 << 16  # characters
MOST_VALUES = 100_000  # that PyYAML finds, with each use of an alias counted
# A file may be made to hang its reader: in each pattern a text can be matched in one way only.
QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"|\'[^\']*(?:\'\'[^\']*)*\''
KEY = re.compile(
    rf"(?:({QUOTED})\s*|([^\s\[\]{{}}\"'#&*!|>%@`,?:-](?:[^:#]|:(?!\s|$)|(?<!\s)#)*)):(?:\s+|$)"
)
KEY_IN_FLOW = re.compile(rf"(?:({QUOTED})\s*|([^\s,:\[\]{{}}\"'][^,:\[\]{{}}]*)):(?=\s|[\[{{\"'])")
QUOTED_TEXT = re.compile(QUOTED)
QUOTE_OR_HASH = re.compile(r"[\"'#]")
END_OF_PLAIN = re.compile(r"[][{},]")
SPACES = re.compile(r"\s*")
BLOCK = re.compile(r"([|>])([+-]?)")
INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
WORDS: Mapping[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
AMBIGUOUS = re.compile(
    r"(?i:yes|no|on|off)|[-+]?0[0-9_]+|[-+]?[0-9]+_[0-9_]*|[-+]?[0-9]+:[0-5]?[0-9](?::.*)?|[-+]?\.(?i:inf|nan)"
)
SPECIAL = {
    "&": "an anchor",
    "*": "an alias",
    "!": "a tag",
    "%": "a directive",
    "@": "an '@'",
    "`": "a '`'",
    "?": "a '?'",
}
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", "0": "\0", "r": "\r", "e": "\x1b"}


class Yaml(NamedTuple):
    """The content of a file, and the line on which each of its values begins."""

    content: Any
    lines: Mapping[Path, int]


def read(text: Text) -> Yaml:
    """Read a file. Raises ConfigError with the line."""
    try:
        return Reader(text).read()
    except ConfigError:
        found = by_pyyaml(text)
        if found is None:
            raise
        return found


class Line(NamedTuple):
    number: int
    indent: int
    text: str  # without comment


class Reader:
    def __init__(self, text: Text) -> None:
        self.text = text
        self.raw = text.content.split("\n")
        self.lines = [one for at, raw in enumerate(self.raw, 1) if (one := self.line(at, raw))]
        self.at = 0
        self.found: dict[Path, int] = {}

    def read(self) -> Yaml:
        if self.lines and self.lines[0].text == "---" and not self.lines[0].indent:
            self.at = 1
        for line in self.lines[self.at :]:
            if not line.indent and line.text.startswith(("---", "...")):
                raise self.refused(line, "a second document")
        if self.at >= len(self.lines):
            return Yaml(None, {})
        first = self.lines[self.at]
        content = self.block(first.indent, ())
        if self.at < len(self.lines):
            raise self.refused(self.lines[self.at], "it is indented unlike what is above it")
        return Yaml(content, self.found)

    def line(self, number: int, raw: str) -> Line | None:
        """Return a line without its comment; None where nothing is left."""
        body = raw.lstrip(" ")
        line = Line(number, len(raw) - len(body), body)
        if len(raw) > LONGEST_LINE:
            raise self.refused(line, f"a line of more than {LONGEST_LINE} characters")
        if "\t" in body:
            raise self.refused(line, "a tab")
        if not body.strip() or body.startswith("#"):
            return None
        return line._replace(text=without_comment(body))

    # -- blocks ---------------------------------------------------------------------------------

    def block(self, indent: int, path: Path) -> Any:
        """Read the lines from here that are indented so far."""
        line = self.lines[self.at]
        if len(path) > DEEPEST:
            raise self.refused(line, "it lies too deep")
        self.found.setdefault(path, line.number)
        if is_item(line.text):
            return self.items(indent, path)
        if KEY.match(line.text):
            return self.pairs(indent, path)
        self.at += 1
        return self.scalar(line, line.text)

    def items(self, indent: int, path: Path) -> list[Any]:
        found: list[Any] = []
        while (line := self.here(indent)) and is_item(line.text):
            below = (*path, len(found))
            self.found[below] = line.number
            rest = line.text[1:].lstrip()
            if rest and (KEY.match(rest) or is_item(rest)):
                inner = line.indent + len(line.text) - len(rest)
                self.lines[self.at] = Line(line.number, inner, rest)
                found.append(self.block(inner, below))
            else:
                found.append(self.value(line, rest, indent, below))
        return found

    def pairs(self, indent: int, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while line := self.here(indent):
            key = KEY.match(line.text)
            if key is None:
                raise self.refused(line, "it is neither 'key: value' nor part of the value above")
            name = self.name(line, key)
            if name in found:
                raise self.refused(line, f"'{name}' is there twice")
            self.found[(*path, name)] = line.number
            found[name] = self.value(line, line.text[key.end() :], indent, (*path, name))
        return found

    def here(self, indent: int) -> Line | None:
        """Return the next line if it is of the block with this indentation."""
        line = self.lines[self.at] if self.at < len(self.lines) else None
        if line is None or line.indent < indent:
            return None
        if line.indent > indent:
            raise self.refused(line, "it is indented unlike what is above it")
        return line

    def value(self, line: Line, rest: str, indent: int, path: Path) -> Any:
        """Read what follows a key or a dash: on the same line, or below it."""
        self.at += 1
        following = self.lines[self.at] if self.at < len(self.lines) else None
        if block := BLOCK.fullmatch(rest):
            return self.long_text(line, indent, *block.groups())
        if rest:
            if following and following.indent > indent:
                raise self.refused(following, "a value of several lines")
            return self.scalar(line, rest)
        if following is None or following.indent < indent:
            return None
        is_list_below = is_item(following.text) and not is_item(line.text)
        if following.indent > indent or is_list_below:
            return self.block(following.indent, path)
        return None

    def long_text(self, line: Line, indent: int, style: str, end: str) -> str:
        """Read a text of several lines: '|' keeps its lines, '>' joins them."""
        rows = []
        for at in range(line.number, len(self.raw)):
            raw = self.raw[at]
            if raw.strip() and len(raw) - len(raw.lstrip(" ")) <= indent:
                break
            rows.append(raw)
        while self.at < len(self.lines) and self.lines[self.at].number <= line.number + len(rows):
            self.at += 1
        margin = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip()), default=0)
        if any(not row.strip() and len(row) > margin for row in rows):
            raise self.refused(line, "a text with a line of spaces")
        body = [row[margin:] if row.strip() else "" for row in rows]
        is_cut_off = line.number + len(rows) == len(self.raw) and bool(body and body[-1])
        while body and not body[-1]:
            body.pop()
        if style == ">" and any(row[:1] == " " for row in body):
            raise self.refused(line, "a folded text with indented lines")
        text = "\n".join(body) if style == "|" else folded(body)
        return text + ("" if end == "-" or not text or is_cut_off else "\n")

    # -- values ---------------------------------------------------------------------------------

    def scalar(self, line: Line, text: str) -> Any:
        value, end = self.flow(line, text, 0, 0)
        if rest := text[end:].strip():
            raise self.refused(line, f"{rest!r} is left over")
        return value

    def flow(self, line: Line, text: str, at: int, depth: int) -> tuple[Any, int]:
        """Read the value that begins here; return it, and where it ends."""
        at = past_spaces(text, at)
        first = text[at : at + 1]
        if depth > DEEPEST:
            raise self.refused(line, "it lies too deep")
        if first in ("[", "{"):
            return self.collection(line, text, at, depth)
        if first in ('"', "'"):
            found = QUOTED_TEXT.match(text, at)
            if not found:
                raise self.refused(line, "a quoted text that does not end on its line")
            return self.quoted(line, found[0]), found.end()
        if first in SPECIAL:
            raise self.refused(line, SPECIAL[first])
        cut = END_OF_PLAIN.search(text, at) if depth else None
        end = cut.start() if cut else len(text)
        plain = text[at:end].strip()
        if depth and not plain:
            raise self.refused(line, "an empty value in a list")
        return self.plain(line, plain), end

    def collection(self, line: Line, text: str, at: int, depth: int) -> tuple[Any, int]:
        """Read [a, b] or {a: 1, b: 2}."""
        is_list, open_ = text[at] == "[", text[at]
        close = "]" if is_list else "}"
        values: list[Any] = []
        pairs: dict[str, Any] = {}
        at = past_spaces(text, at + 1)
        while not text.startswith(close, at):
            if not is_list:
                key = KEY_IN_FLOW.match(text, at)
                if not key:
                    raise self.refused(line, "a '{' without 'key: value' in it")
                name = self.name(line, key)
                if name in pairs:
                    raise self.refused(line, f"'{name}' is there twice")
                pairs[name], at = self.flow(line, text, key.end(), depth + 1)
            else:
                value, at = self.flow(line, text, at, depth + 1)
                values.append(value)
            at = past_spaces(text, at)
            if text.startswith(",", at):
                at = past_spaces(text, at + 1)
            elif not text.startswith(close, at):
                raise self.refused(line, f"a '{open_}' that does not end on its line")
        return values if is_list else pairs, at + 1

    def plain(self, line: Line, text: str) -> Any:
        if text in WORDS:
            return WORDS[text]
        if AMBIGUOUS.fullmatch(text):
            raise self.refused(
                line, f"{text} means different things to different readers: quote it"
            )
        if INTEGER.fullmatch(text):
            return int(text)
        if FLOAT.fullmatch(text):
            return float(text)
        if re.search(r":(?:\s|$)|\s#|^[-?](?:\s|$)|^[],}|>#]|^(?:=|<<)$|^[-+]?0[xob]", text):
            raise self.refused(line, f"cannot tell what '{text}' is: quote it")
        return text

    def name(self, line: Line, key: re.Match[str]) -> str:
        """Read a key, which is quoted or plain."""
        if key[1]:
            return self.quoted(line, key[1])
        text = key[2].rstrip()
        name = self.plain(line, text)
        if not isinstance(name, str):
            raise self.refused(line, f"the key {text} is not a text: quote it")
        return name

    def quoted(self, line: Line, text: str) -> str:
        if text[0] == "'":
            return text[1:-1].replace("''", "'")

        def unescaped(found: re.Match[str]) -> str:
            if found[1] not in ESCAPES:
                raise self.refused(line, f"the escape {found[0]}")
            return ESCAPES[found[1]]

        return re.sub(r"\\(.)", unescaped, text[1:-1])

    def refused(self, line: Line, what: str) -> ConfigError:
        return ConfigError(
            f"{self.text.path}:{line.number}: not read: {what}",
            hint="dray reads simple YAML by itself, and all of it where PyYAML is installed.",
        )


def without_comment(text: str) -> str:
    """Return a line up to its comment: a '#' behind a space, and not in quotes."""
    at, unclosed = 0, ""
    while found := QUOTE_OR_HASH.search(text, at):
        at = found.end()
        if found[0] == "#":
            if text[found.start() - 1].isspace():  # none begins the line: see above
                return text[: found.start()].rstrip()
        elif found[0] not in unclosed:
            quoted = QUOTED_TEXT.match(text, found.start())
            at = quoted.end() if quoted else at
            unclosed += "" if quoted else found[0]  # nor does any later one end
    return text.rstrip()


def past_spaces(text: str, at: int) -> int:
    found = SPACES.match(text, at)
    return found.end() if found else at


def is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def folded(rows: list[str]) -> str:
    """Join lines by a space; empty ones end a line."""
    text = ""
    for at, row in enumerate(rows):
        if not row:
            text += "\n"
        else:
            text += (" " if at and rows[at - 1] else "") + row
    return text


# -- PyYAML -------------------------------------------------------------------------------------


def by_pyyaml(text: Text) -> Yaml | None:
    """Read it by PyYAML; None where that is not installed."""
    try:
        import yaml
    except ImportError:
        return None
    try:
        tree = yaml.compose(text.content, Loader=yaml.SafeLoader)
        lines: dict[Path, int] = {}
        note_lines(yaml, tree, (), lines, text, count())
        return Yaml(yaml.safe_load(text.content), lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        told = getattr(error, "problem", None) or "it cannot be read"
        raise text.error(mark.line + 1 if mark else 1, f"not valid YAML: {told}") from None
    except (ValueError, RecursionError):  # a number that is too long, a date that is none
        raise text.error(1, "not valid YAML: a value in it cannot be read") from None


def note_lines(
    yaml: Any, node: Any, path: Path, lines: dict[Path, int], text: Text, visits: Iterator[int]
) -> None:
    """Note the lines of a tree. An alias inside its own anchor has no end, and is refused; so are
    aliases of aliases whose number doubles with every line."""
    if node is None:
        return
    if len(path) > DEEPEST or next(visits) > MOST_VALUES:
        raise text.error(node.start_mark.line + 1, "it lies too deep, or has too many values")
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise text.error(key.start_mark.line + 1, "a key that is not a text")
            below = (*path, str(key.value))
            lines[below] = key.start_mark.line + 1
            note_lines(yaml, value, below, lines, text, visits)
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            note_lines(yaml, value, (*path, at), lines, text, visits)
