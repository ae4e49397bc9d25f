"""Carries out a command line, and turns errors into messages and exit codes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module

from dray.cli.terminal import drop_output, guard, say, say_traceback
from dray.errors import DrayError, from_os_error

INTERRUPTED = 130
# Verbs that do without click where they can, by the words they are called with.
LOOKING = {
    ("ps",): "ps",
    ("show",): "show",
    ("why",): "why",
    ("queue",): "queue",
    ("quota",): "quota",
    ("logs",): "logs",
    ("wait",): "wait",
    ("cluster", "list"): "cluster_list",
}


def run(arguments: list[str], when_loaded: Callable[[], object] = bool) -> int:
    """Carry out a command line and return its exit code. ``when_loaded`` is called between the
    imports and the verb."""
    guard()
    return exit_code_of(lambda: carry_out(arguments, when_loaded))


def carry_out(arguments: list[str], when_loaded: Callable[[], object]) -> object:
    act = without_click(arguments)
    if act is None:
        from dray.cli.group import run_click

        act = partial(run_click, arguments)
    when_loaded()
    return act()


def without_click(arguments: list[str]) -> Callable[[], object] | None:
    """Find a verb that reads these arguments itself; None leaves them to click."""
    spoken = next((words for words in LOOKING if tuple(arguments[: len(words)]) == words), None)
    if spoken is None or os.environ.get("DRAY_LOG"):
        return None
    from dray.cli.arguments import read

    verb = getattr(import_module(f"dray.cli.{LOOKING[spoken]}"), "VERB", None)
    values = read(verb, arguments[len(spoken) :]) if verb else None
    if verb is None or values is None:
        return None
    return lambda: verb.act(**values)


def exit_code_of(act: Callable[[], object], *, debug: bool = False) -> int:
    try:
        result = act()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        drop_output()
        return 0
    except (KeyboardInterrupt, EOFError):
        say("")
        return say_interrupted()
    except (DrayError, OSError) as error:
        return say_error(error, debug=debug)


def say_interrupted() -> int:
    say("dray: interrupted")
    return INTERRUPTED


def say_error(error: DrayError | OSError, *, debug: bool) -> int:
    if debug:
        say_traceback(type(error), error, error.__traceback__)
    known = error if isinstance(error, DrayError) else from_os_error(error)
    say(f"dray: {known.message}")
    if known.hint:
        say(f"      {known.hint}")
    return known.exit_code
