"""Makes one command of several: those that share an allocation, and those that run together. Pure.
See dray.node.side_by_side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

VERB = "side-by-side"
MODULE = ("-m", "dray_node")  # on the path of every Python in a job
DEFAULT_PYTHON = ("python3",)


def shared(
    commands: Sequence[Sequence[str]], python: Sequence[str], first: int = 0
) -> tuple[str, ...]:
    """Return the command that runs these side by side; each is called by its number."""
    members = [{"name": str(first + at), "words": list(one)} for at, one in enumerate(commands)]
    return wrapped({"commands": members}, python)


def together(
    members: Sequence[Mapping[str, Any]], lead: str, python: Sequence[str]
) -> tuple[str, ...]:
    """Return the command that runs these together: if one fails, all end."""
    return wrapped({"commands": list(members), "together": True, "lead": lead}, python)


def wrapped(described: Mapping[str, Any], python: Sequence[str]) -> tuple[str, ...]:
    words = json.dumps(described, separators=(",", ":"))
    return (*(python or DEFAULT_PYTHON), *MODULE, VERB, words)


def commands_of(words: Sequence[str]) -> list[list[str]]:
    """Return the commands that this one runs side by side; none where it is any other, or not as it
    is made here: it may come from a cluster."""
    if tuple(words[-4:-1]) != (*MODULE, VERB):
        return []
    try:
        found = [one["words"] for one in json.loads(words[-1])["commands"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    return found if all(map(is_command, found)) else []


def is_command(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(word, str) for word in found)
