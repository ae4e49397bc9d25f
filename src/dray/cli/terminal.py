"""The one way to the user's terminal: nothing from a cluster, a job or a file reaches it raw.

Whatever could act on a terminal is spelled: an escape becomes the four characters \\x1b. There are
three layers, and each one alone holds back an escape sequence:

1. ``visible`` makes a field fit for one line, so that it cannot bring lines of its own.
2. ``tell`` and ``say`` take any text; what is not marked as ``Shown`` is spelled.
3. ``GuardedStream`` stands in for stdout and stderr, and spells what others write: tracebacks,
   warnings, libraries.

Only text that was made here is ``Shown``. The mark is lost in every operation on strings, so what
is put together elsewhere, without the functions below, has its colours spelled as well.
"""

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import BinaryIO, TextIO

INDENT = "      "  # of what goes on below "dray: "
NARROWEST = 40  # columns that wrapped text has, however narrow the terminal is
HARMLESS = ("Zs", "Cn", "Co")  # spaces, and characters that only this Python does not know


class Shown(str):
    """Text that can go to a terminal as it is."""

    __slots__ = ()


# -- making text fit ----------------------------------------------------------------------------


def visible(text: str) -> Shown:
    """Make a field fit for one line: what moves the cursor, colours or ends the line is spelled."""
    return text if isinstance(text, Shown) else Shown(spelled(text))


def joined(*parts: str) -> Shown:
    """Put fields together on one line."""
    return Shown("".join(map(visible, parts)))


def lines(parts: "Iterable[str]") -> Shown:
    """Put lines below each other."""
    return Shown("\n".join(visible(part).rstrip() for part in parts))


def multiline(text: str) -> Shown:
    """Keep the text's own lines and tabs, where it is not for dray to say how many there are."""
    if isinstance(text, Shown):
        return text
    return Shown("\n".join(spelled(line, kept="\t") for line in text.split("\n")))


def indented(text: str) -> Shown:
    """Keep the text's own lines, but none of them can pass for one that dray begins."""
    if isinstance(text, Shown):
        return text
    first, *others = multiline(text).split("\n")
    return Shown("\n".join([first, *(f"{INDENT}{line}".rstrip() for line in others)]))


def styled(text: str, code: str) -> Shown:
    """Colour a field."""
    return Shown(f"\x1b[{code}m{visible(text)}\x1b[0m")


def only_colors(text: str) -> Shown:
    """Keep lines and colours of a picture, and nothing else."""
    import re  # the quickest of commands do without

    parts = re.split("(\x1b\\[[0-9;]*m)", text)
    return Shown("".join(part if at % 2 else multiline(part) for at, part in enumerate(parts)))


def spelled(text: str, kept: str = "") -> str:
    if text.isprintable():
        return text
    names_kept = not on_terminal()
    return "".join(
        letter
        if letter.isprintable() or letter in kept or is_harmless(letter, names_kept)
        else spell(letter)
        for letter in text
    )


def is_harmless(letter: str, names_kept: bool) -> bool:
    """Return whether an unprintable character may be written as it is. So may a byte of a file's
    name that is no text, on its way to a file or program."""
    from unicodedata import category  # seldom needed

    return category(letter) in HARMLESS or (names_kept and "\udc80" <= letter <= "\udcff")


def spell(letter: str) -> str:
    """Return \\x1b for an escape, and \\xe9 for a byte that is not text."""
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")


# -- writing ------------------------------------------------------------------------------------


def tell(text: str) -> None:
    """Write to stdout: one line, or what ``lines`` has put together."""
    put(sys.stdout, f"{visible(text)}\n")


def say(text: str) -> None:
    """Write to stderr. If the reader is gone, drop the text and continue."""
    try:
        put(sys.stderr, f"{folded(indented(text))}\n")
    except BrokenPipeError:
        drop_output(2)


def folded(text: Shown) -> Shown:
    """Wrap lines that are too long for the terminal that stderr is; a file or pipe gets them whole.
    What goes on is indented, so that it cannot pass for a line that dray begins."""
    if sys.stderr is None or not sys.stderr.isatty() or "\x1b" in text:
        return text
    width = max(os.get_terminal_size(sys.stderr.fileno()).columns or 80, NARROWEST)
    if all(len(line) <= width for line in text.split("\n")):
        return text
    return Shown("\n".join(fold(line, width) for line in text.split("\n")))


def fold(line: str, width: int) -> str:
    import textwrap  # most texts do without

    margin = line[: len(line) - len(line.lstrip())] or INDENT
    wrapped = textwrap.wrap(
        line,
        width,
        subsequent_indent=margin,
        expand_tabs=False,
        replace_whitespace=False,
        break_on_hyphens=False,
        break_long_words=False,  # a path that is cut cannot be copied
    )
    return "\n".join(wrapped) or line


def redraw(text: str, *, is_last: bool) -> None:
    """Write over the line that the cursor is in, on stderr."""
    put(sys.stderr, f"\r{visible(text)}\x1b[K" + ("\n" if is_last else ""))


def repaint(text: str, *, is_first: bool) -> None:
    """Write what ``lines`` has put together over the whole screen, on stdout."""
    begin = "\x1b[2J\x1b[H" if is_first else "\x1b[H"
    painted = visible(text).replace("\n", "\x1b[K\n")
    put(sys.stdout, f"{begin}{painted}\x1b[K\n\x1b[J")


def put(stream: "TextIO | None", text: str) -> None:
    if stream is not None:  # it is, where the user has closed it
        stream.write(Shown(text))
        stream.flush()


def log_stream(to_stderr: bool) -> "tuple[BinaryIO, bool]":
    """Return the stream for a job's output, and whether it is a terminal."""
    stream = sys.stderr if to_stderr else sys.stdout
    if stream is None:  # the user has closed it
        return open(os.devnull, "wb", buffering=0), False
    return stream.buffer, stream.isatty()


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def drop_output(stream: int = 1) -> None:
    """Send further output to nowhere: its reader has gone, and Python must not complain about that
    at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


# -- the net below ------------------------------------------------------------------------------


class GuardedStream(io.TextIOWrapper):
    """A standard stream that spells whatever is not ``Shown``."""

    def write(self, text: str) -> int:
        super().write(multiline(text))
        return len(text)


def guard() -> None:
    """Put a guarded stream in the place of stdout and stderr, and have tracebacks go through it."""
    if isinstance(sys.stdout, io.TextIOWrapper) and not isinstance(sys.stdout, GuardedStream):
        sys.stdout = guarded(sys.stdout, errors_for_names(sys.stdout))
    if isinstance(sys.stderr, io.TextIOWrapper) and not isinstance(sys.stderr, GuardedStream):
        sys.stderr = guarded(sys.stderr, sys.stderr.errors or "backslashreplace")
    sys.excepthook = say_traceback


def guarded(stream: io.TextIOWrapper, errors: str) -> GuardedStream:
    return GuardedStream(
        stream.buffer,
        encoding=stream.encoding,
        errors=errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def errors_for_names(stream: io.TextIOWrapper) -> str:
    """Choose how a file's name that is not text is written: as it is, or spelled where that cannot
    be. Python does so by itself only where no language is set."""
    if stream.errors != "strict":
        return stream.errors or "strict"
    is_utf8 = stream.encoding.lower() in ("utf-8", "utf8")
    return "surrogateescape" if is_utf8 else "backslashreplace"


def say_traceback(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:
    """Write a traceback to stderr, without the colours of newer Pythons, which would be spelled."""
    import traceback

    say("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))
