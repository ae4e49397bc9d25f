"""The patterns of ignore files, exactly as git reads them: byte by byte, the last match wins."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from itertools import islice

NEVER = b"(?!)"
MOST = 10_000  # patterns of a file
AT_ONCE = 100  # patterns in one regular expression: the time for a group grows with their number
LONGEST = 16 << 10  # bytes of a line; four times as long as a path can be
# What stands for any number of bytes: of a name, of whole folders, of anything.
IN_NAME, FOLDERS, ANYTHING = b"[^/]*", b"(?:.*?/)??", b".*?"
ANY = frozenset(range(256))
SLASH = frozenset(b"/")
CLASSES = {
    b"alnum": frozenset((string.ascii_letters + string.digits).encode()),
    b"alpha": frozenset(string.ascii_letters.encode()),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset([*range(32), 127]),
    b"digit": frozenset(string.digits.encode()),
    b"graph": frozenset(range(33, 127)),
    b"lower": frozenset(string.ascii_lowercase.encode()),
    b"print": frozenset(range(32, 127)),
    b"punct": frozenset(string.punctuation.encode()),
    b"space": frozenset(string.whitespace.encode()),
    b"upper": frozenset(string.ascii_uppercase.encode()),
    b"xdigit": frozenset(string.hexdigits.encode()),
}


class Malformed(Exception):
    """The pattern cannot be read; git takes it to match nothing."""


class TooMany(Exception):
    """There are more patterns than anybody would have written."""


class Patterns:
    """The patterns of one ignore file, the last one first."""

    def __init__(self, content: bytes) -> None:
        patterns = list(islice(read_patterns(content), MOST + 1))[::-1]
        if len(patterns) > MOST:
            raise TooMany
        self._of_folders = _choices(patterns)
        self._of_files = _choices([one for one in patterns if not one.only_folders])

    def verdict(self, path: bytes, is_folder: bool) -> bool | None:
        """Return whether the path, relative to the ignore file, is left out; None if no pattern
        matches."""
        for choice in self._of_folders if is_folder else self._of_files:
            verdict = choice.verdict(path)
            if verdict is not None:
                return verdict
        return None


def _choices(patterns: list[Pattern]) -> list[_Choice]:
    return [_Choice(patterns[at : at + AT_ONCE]) for at in range(0, len(patterns), AT_ONCE)]


class _Choice:
    """Several patterns as one regular expression."""

    def __init__(self, patterns: list[Pattern]) -> None:
        self._verdicts = [not one.negated for one in patterns]
        self._match = re.compile(b"|".join(b"(%s)" % one.regex for one in patterns), re.S).fullmatch

    def verdict(self, path: bytes) -> bool | None:
        found = self._match(path)
        return self._verdicts[found.lastindex - 1] if found and found.lastindex else None


class Pattern:
    """One line of an ignore file."""

    def __init__(self, line: bytes) -> None:
        self.negated = line.startswith(b"!")
        glob = line[1:] if self.negated else line
        self.only_folders = glob.endswith(b"/")
        if self.only_folders:
            glob = glob[:-1]
        if b"/" in glob:
            self.regex = translate(glob.removeprefix(b"/"), anchored=True)
        else:
            self.regex = b"(?:.*/)?" + translate(glob, anchored=False)


def read_patterns(content: bytes) -> Iterator[Pattern]:
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        trimmed = trim(line.removesuffix(b"\r"))
        if trimmed and not trimmed.startswith(b"#"):
            try:
                if len(trimmed) > LONGEST:
                    raise Malformed
                yield Pattern(trimmed)
            except Malformed:
                continue


def trim(line: bytes) -> bytes:
    """Strip the spaces at the line's end, unless a backslash keeps one."""
    kept = re.match(rb"(?:\\.|[^\\ ]++| ++(?!\Z))*+\\?", line, re.S)
    return kept[0] if kept else b""


def translate(glob: bytes, anchored: bool) -> bytes:
    """Translate a glob into a regular expression that matches in about the product of the lengths,
    however many stars there are."""
    wilds: list[bytes] = [b""]
    fixed: list[bytes] = [b""]  # behind each of them
    for piece in _pieces(glob, anchored):
        if piece in (IN_NAME, FOLDERS, ANYTHING):
            wilds.append(piece)
            fixed.append(b"")
        else:
            fixed[-1] += piece
    return _joined(wilds, fixed)


def _joined(wilds: list[bytes], fixed: list[bytes]) -> bytes:
    """Join the fixed pieces so that each one after a star is searched for only once.

    It is taken at its first place: a later one leaves the next star nothing that it could not have
    from the first. After folders that holds for everything up to the next folders, since they begin
    and end with whole names. Only what follows the last of them must reach to the end, and may be
    searched for again.
    """
    blocks: list[bytes] = []
    block = b""
    for number in reversed(range(len(wilds))):
        is_last = not block and not blocks
        in_name = wilds[number] == IN_NAME
        once = b"(?>%s?%s)" if in_name and not is_last else b"%s%s"
        block = once % (wilds[number], fixed[number]) + block
        if not in_name:
            blocks.append(b"(?>%s)" % block if blocks and wilds[number] else block)
            block = b""
    return b"".join(reversed(blocks))


def _pieces(glob: bytes, anchored: bool) -> Iterator[bytes]:
    # Git compares what stands before the first special character on its own, and reads the rest
    # as if the pattern began there: a** / b means what ** / b means.
    special = re.search(rb"[*?\[\\]", glob)
    start = special.start() if special else 0
    at = 0
    while at < len(glob):
        byte = glob[at : at + 1]
        if byte == b"*":
            whole_folders = anchored and (at == start or glob[at - 1 : at] == b"/")
            piece, at = _stars(glob, at, whole_folders)
        elif byte == b"[":
            piece, at = _bracket(glob, at + 1)
        elif byte == b"?":
            piece, at = b"[^/]", at + 1
        else:
            at += byte == b"\\"
            if at == len(glob):
                raise Malformed
            piece, at = re.escape(glob[at : at + 1]), at + 1
        yield piece


def _stars(glob: bytes, at: int, whole_folders: bool) -> tuple[bytes, int]:
    """Translate a run of stars. Two between slashes stand for any number of folders, others for a
    part of a name."""
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    if whole_folders and end - at > 1:
        if end == len(glob) or glob[end : end + 2] == rb"\/":
            return ANYTHING, end
        if glob[end : end + 1] == b"/":
            return FOLDERS, end + 1
    return IN_NAME, end


def _bracket(glob: bytes, at: int) -> tuple[bytes, int]:
    """Translate a bracket that opened before ``at``; return it and where the pattern continues."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    accepted: set[int] = set()
    first, low = True, b""  # the character before a dash begins a range
    while first or glob[at : at + 1] != b"]":
        first = False
        byte = glob[at : at + 1]
        if byte == b"-" and low and glob[at + 1 : at + 2] not in (b"", b"]"):
            high, at = _member(glob, at + 1)
            accepted.update(range(low[0], high[0] + 1))
            low = b""
        elif (named := _named_class(glob, at)) is not None:
            members, at = named
            accepted |= members
            low = b""
        else:
            low, at = _member(glob, at)
            accepted.add(low[0])
    chosen = (ANY - accepted if negated else accepted) - SLASH
    regex = b"[%s]" % b"".join(rb"\x%02x" % one for one in sorted(chosen)) if chosen else NEVER
    return regex, at + 1


def _member(glob: bytes, at: int) -> tuple[bytes, int]:
    at += glob[at : at + 1] == b"\\"
    if at >= len(glob):
        raise Malformed
    return glob[at : at + 1], at + 1


def _named_class(glob: bytes, at: int) -> tuple[frozenset[int], int] | None:
    """Read ``[:alpha:]`` and the like. One that is not closed is taken for plain characters."""
    if glob[at : at + 2] != b"[:":
        return None
    end = glob.find(b"]", at + 2)
    if end < 0:
        raise Malformed
    if glob[end - 1 : end] != b":" or end - 1 < at + 2:
        return None
    try:
        return CLASSES[glob[at + 2 : end - 1]], end + 1
    except KeyError:
        raise Malformed from None
