"""Settings of a new cluster, as flags and answers give them."""

from __future__ import annotations

import sys
from typing import Any

import click

from dray.cli.terminal import say
from dray.clusters.suggestion import Choice
from dray.errors import UsageError
from dray.job.options import Option


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def written(option: Option, value: Any) -> Any:
    """Return a flag's value as it would be written to a file."""
    if option.many and isinstance(value, str):
        value = (value,)
    try:
        read = option.parse(value)
    except ValueError as error:
        raise UsageError(f"{flag_of(option.name)}: {error}") from error
    number = not isinstance(read, str) and isinstance(value, str) and value.isdigit()
    return int(value) if number else value


def decide(choice: Choice, option: Option) -> Any:
    """Let the user choose among what was found."""
    flag = flag_of(choice.setting)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        say_which = f"Choose with {flag}: {', '.join(choice.options)}."
        say_what = f"Name it with {flag}: {choice.advice}." if choice.advice else f"Give {flag}."
        further = f" {choice.advice}" if choice.options and choice.advice else ""
        raise UsageError(choice.why, hint=(say_which if choice.options else say_what) + further)
    say(f"{choice.why}{':' if choice.options else ''}")
    for number, one in enumerate(choice.options, 1):
        say(f"  {number}  {one}")
    if choice.advice:
        say(choice.advice)
    return click.prompt(
        f"{choice.setting}{' (several with a space between)' if option.many else ''}",
        value_proc=lambda text: answer(text, choice, option),
        err=True,
    )


def answer(text: str, choice: Choice, option: Option) -> Any:
    """Read an answer: numbers of the list, or the words themselves."""
    words = tuple(
        choice.options[int(one) - 1]
        if one.isdigit() and 0 < int(one) <= len(choice.options)
        else one
        for one in (text.split() if option.many else [text.strip()])
    )
    try:
        return written(option, words if option.many else words[0])
    except UsageError as error:
        raise click.UsageError(error.message) from error
