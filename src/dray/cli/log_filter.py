"""Filters a job's output on its way to a terminal: text and colours pass, and nothing else acts on
it."""

from __future__ import annotations

import codecs
import re
from functools import cache

from dray.cli.terminal import log_stream, spell

LONGEST = 64  # characters of a colour's numbers
NUMBERS = rf"\[[0-9;]{{0,{LONGEST}}}"
# What is no text: controls but \t, \n and \r; what turns the direction of writing around; bytes
# that are not UTF-8. An escape passes where it begins a colour. It is one set of characters with a
# condition behind it, because Python then searches five times as fast as with alternatives.
ACTING = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udcff]"
    f"(?<!\x1b(?={NUMBERS}m))"
)
# What may become a colour with the next piece.
UNFINISHED = f"\x1b(?:{NUMBERS})?\\Z"
RESET = b"\x1b[0m"

spelling = cache(spell)  # of some two hundred characters


def spell_found(found: re.Match[str]) -> str:
    return spelling(found[0])


class LogFilter:
    """Spells what acts on a terminal, in pieces that may be cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._acting = re.compile(ACTING)  # takes milliseconds: only for a terminal
        self._unfinished = re.compile(UNFINISHED)
        self._kept = ""
        self._is_colored = False

    def feed(self, piece: bytes, *, is_last: bool = False) -> bytes:
        text = self._kept + self._decoder.decode(piece, is_last)
        last = max(len(text) - LONGEST - 2, 0)
        unfinished = None if is_last else self._unfinished.search(text, last)
        end = unfinished.start() if unfinished else len(text)
        self._kept = text[end:]
        passed = self._acting.sub(spell_found, text[:end])
        self._remember_color(passed)
        return passed.encode()

    def _remember_color(self, passed: str) -> None:
        last = passed.rfind("\x1b[")
        if last >= 0:
            self._is_colored = passed[last + 2 : passed.index("m", last)].strip("0;") != ""

    def finish(self) -> bytes:
        """Return the text held back, and reset the colour if one is on."""
        rest = self.feed(b"", is_last=True)
        self._decoder.reset()
        reset = RESET if self._is_colored else b""
        self._is_colored = False
        return rest + reset


class LogPrinter:
    """Writes a job's output: to a terminal through the filter, elsewhere byte for byte."""

    def __init__(self, *, to_stderr: bool = False, raw: bool = False) -> None:
        self._stream, on_terminal = log_stream(to_stderr)
        self._filter = LogFilter() if on_terminal and not raw else None

    def write(self, piece: bytes) -> None:
        self._put(self._filter.feed(piece) if self._filter else piece)

    def end_attempt(self) -> None:
        """Finish the output before dray prints a line, so that nothing of it acts on what
        follows."""
        if self._filter:
            self._put(self._filter.finish())

    def _put(self, data: bytes) -> None:
        if data:
            self._stream.write(data)
            self._stream.flush()

    def __enter__(self) -> LogPrinter:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_attempt()
