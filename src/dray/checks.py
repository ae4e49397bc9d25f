"""Checks of values that come from elsewhere: a cluster's answers, and files that a job can write.

Each check returns the value with its type, or raises ``Malformed``. Sizes are bounded, so that
what is stored or printed is, too.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping

from dray.node.formats.shapes import FAR_FUTURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")
    Check = Callable[[Any], T]

LONGEST_NOTE = 4000  # characters of what is only shown to people
LONGEST_TEXT = 1 << 20  # characters of any other text
LONGEST_TEXTS = 1 << 23  # of a list of them: more than the words of any command can have
MOST_TEXTS = 10**5
MOST_COUNT = 10**9
# The form of an id: see describing.new_id. NAME-CODE, of a batch NAME-CODE.NAME, and of an array in
# addition .INDEX. What ssh is told beside a job's id is no NAME: see dray.sessions.ssh.names.
TAKEN_NAME = r"(?!(?:host|rank[0-9]+)(?:\.|$))"
WITHOUT_INDEX = rf"[a-z0-9][a-z0-9-]{{0,99}}(?:\.{TAKEN_NAME}[a-z][a-z0-9-]{{0,39}})?"
JOB_ID = re.compile(rf"{WITHOUT_INDEX}(?:\.[0-9]{{1,9}})?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHORTENED = 60


class Malformed(ValueError):
    """A value is not what it has to be."""


def text(value: Any, longest: int = LONGEST_TEXT) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{brief(value)} is not a text")
    if len(value) > longest:
        raise Malformed(f"{brief(value)} is longer than {longest} characters")
    return value


def texts(value: Any) -> tuple[str, ...]:
    read = several(text, MOST_TEXTS)(value)
    if sum(map(len, read)) > LONGEST_TEXTS:
        raise Malformed(f"{brief(value)} is longer than {LONGEST_TEXTS} characters")
    return read


def note(value: Any) -> str:
    """Read a text that is only shown. It may be cut, and holds nothing that cannot be stored."""
    read = text(value, sys.maxsize)
    cut = read if len(read) <= LONGEST_NOTE else f"{read[: LONGEST_NOTE - 1]}…"
    return cut.encode("utf-8", "replace").decode()


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Malformed(f"{brief(value)} is neither true nor false")
    return value


def count(value: Any) -> int:
    return integer(value, 0, MOST_COUNT)


def integer(value: Any, least: int = -(2**62), most: int = 2**62) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Malformed(f"{brief(value)} is not a whole number from {least} to {most}")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{brief(value)} is not a number")
    try:
        read = float(value)
    except OverflowError:
        read = math.inf
    if not math.isfinite(read):
        raise Malformed(f"{brief(value)} is not a number that can be used")
    return read


def moment(value: Any) -> float:
    """Read a time in seconds."""
    read = number(value)
    if abs(read) > FAR_FUTURE:
        raise Malformed(f"{brief(value)} is not a time")
    return read


def job_id(value: Any) -> str:
    if not JOB_ID.fullmatch(text(value)):
        raise Malformed(f"{brief(value)} is not the id of a job")
    return text(value)


def variable(value: Any) -> str:
    """Read the name of an environment variable."""
    if not VARIABLE.fullmatch(text(value)):
        raise Malformed(f"{brief(value)} is not the name of a variable")
    return text(value)


def record(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{brief(value)} is not a record")
    return value


def optional(check: Check[T]) -> Check[T | None]:
    return lambda value: None if value is None else check(value)


def several(check: Check[T], most: int = 10**6) -> Check[tuple[T, ...]]:
    def read(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple) or len(value) > most:
            raise Malformed(f"{brief(value)} is not a list of at most {most}")
        return tuple([check(one) for one in value])

    return read


def table(check: Check[T]) -> Check[dict[str, T]]:
    def read(value: Any) -> dict[str, T]:
        if len(record(value)) > MOST_TEXTS:
            raise Malformed(f"{brief(value)} is not a table of at most {MOST_TEXTS}")
        return {text(key): check(one) for key, one in value.items()}

    return read


def fields(value: Any, checks: Mapping[str, Check[Any]]) -> dict[str, Any]:
    """Read those of these fields that are present; skip others, which a newer dray may write."""
    found = record(value)
    read = {}
    for key, check in checks.items():
        if key in found:
            try:
                read[key] = check(found[key])
            except Malformed as error:
                raise Malformed(f"{key}: {error}") from None
    return read


def required(value: Any, /, **checks: Check[Any]) -> dict[str, Any]:
    """Read these fields, all of which must be present."""
    read = fields(value, checks)
    for key in checks:
        if key not in read:
            raise Malformed(f"{key} is missing")
    return read


def brief(value: Any) -> str:
    """Show the beginning of any value, however large or deep it is."""
    if isinstance(value, dict | list | tuple):
        return f"{'a list' if not isinstance(value, dict) else 'a record'} of {len(value)}"
    if isinstance(value, int) and abs(value) > 2**64:
        return "a huge number"
    shown = repr(value[: SHORTENED + 1] if isinstance(value, str) else value)
    return shown if len(shown) <= SHORTENED else f"{shown[:SHORTENED]}…"
