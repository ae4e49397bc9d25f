"""Declares the parameters of verbs that only look, and reads them without click.

Importing click takes longer than looking into the store. So these verbs declare their parameters as
data. ``read`` understands what is correct and plain; all else (``--help``, completion, mistakes) is
left to click's command, which ``dray.cli.parameters`` makes of the same data: its words stay the
same, and a test holds the two against each other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from dray.job.quantities import parse_duration, parse_since
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Kind(NamedTuple):
    """What a value has to be. ``read`` raises an error for any other."""

    name: str
    read: Callable[[str], Any] = str
    least: int = 0
    choices: tuple[str, ...] = ()


class Parameter(NamedTuple):
    """An option of a verb; one without a kind is a flag, which takes no value."""

    flags: tuple[str, ...]
    variable: str
    help: str
    kind: Kind | None = None
    metavar: str | None = None
    default: Any = None
    many: bool = False
    hidden: bool = False

    @property
    def initial(self) -> Any:
        return () if self.many else False if self.kind is None else self.default


class Jobs(NamedTuple):
    """The jobs that a verb is about; where none is named, it takes the latest."""

    variable: str
    many: bool = False


class Verb(NamedTuple):
    """A verb; the docstring of ``act`` is its help."""

    name: str
    act: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    jobs: Jobs | None = None


def at_least(least: int) -> Kind:
    def read(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError(text)
        return number

    return Kind("number", read, least=least)


def one_of(choices: Iterable[str]) -> Kind:
    known = tuple(choices)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(text)
        return text

    return Kind("choice", read, choices=known)


def since(text: str) -> float:
    return parse_since(text, time.time())


def duration(text: str) -> float | None:
    return parse_duration(text) if text else None


TEXT = Kind("text")
CLUSTER = Kind("cluster")
REGEX = Kind("regex", re.compile)
MOMENT = Kind("moment", since)
DURATION = Kind("duration", duration)
JSON = Parameter(("--json",), "as_json", "Print JSON, in a format that stays compatible.")


def read(verb: Verb, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values by variable; None where click has to read the words."""
    reading = Reading(verb)
    try:
        return reading.values_of(words)
    except Exception:  # of any kind: click says what is wrong, or that nothing is
        return None


class Reading:
    def __init__(self, verb: Verb) -> None:
        self.verb = verb
        self.known: Mapping[str, Parameter] = {
            flag: one for one in verb.parameters if not one.hidden for flag in one.flags
        }
        self.values = {one.variable: one.initial for one in verb.parameters}
        self.rest: list[str] = []

    def values_of(self, words: Sequence[str]) -> dict[str, Any]:
        self.rest, jobs = list(words), []
        while self.rest:
            word = self.rest.pop(0)
            if word == "--":
                jobs += self.rest
                break
            if word.startswith("--"):
                self._take_long(word)
            elif word.startswith("-") and word != "-":
                self._take_short(word[1:])
            else:
                jobs.append(word)
        return {**self.values, **self._named(jobs)}

    def _take_long(self, word: str) -> None:
        flag, equals, value = word.partition("=")
        if self.known[flag].kind is None and equals:
            raise ValueError(word)
        self._keep(self.known[flag], value if equals else None)

    def _take_short(self, letters: str) -> None:
        """Take -w, -n5 and -wn5: a value is what follows, or the next word."""
        for at, letter in enumerate(letters, 1):
            one = self.known[f"-{letter}"]
            self._keep(one, letters[at:] or None)
            if one.kind is not None:
                break

    def _keep(self, one: Parameter, value: str | None) -> None:
        if one.kind is None:
            self.values[one.variable] = True
            return
        read = one.kind.read(self.rest.pop(0) if value is None else value)
        self.values[one.variable] = (*self.values[one.variable], read) if one.many else read

    def _named(self, jobs: Sequence[str]) -> dict[str, Any]:
        expected = self.verb.jobs
        if expected is None or (len(jobs) > 1 and not expected.many):
            if jobs:
                raise ValueError(jobs)
            return {}
        if expected.many:
            return {expected.variable: tuple(jobs)}
        return {expected.variable: jobs[0] if jobs else None}
