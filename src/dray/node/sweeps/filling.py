"""Fills a configuration's values into the command of a sweep.

Word by word: ``{lr}`` stands for the value of lr, wherever it is in a word, ``{trial}``,
``{repeat}`` and ``{seed}`` for those numbers, and ``{{`` and ``}}`` for braces. A parameter that no
word names is added at the end, in the way that its ``emit`` says. One that is not there (see
presence) is left out: the laptop refuses a word that names one. It checks a template with the same
function, so nothing here can fail on a node that did not fail there.
"""

import re
from collections import Counter

from .presence import present

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence, Set, Tuple  # noqa: F401

    from ..formats.records import Parameter
    from .space import Space, Values

FLAG, ASSIGNMENT, VALUE, NONE = "flag", "assignment", "value", "none"
NUMBERS = ("trial", "repeat", "seed")
PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class NoSuchName(ValueError):
    """A word has a brace expression that stands for nothing."""


def fill(
    template: "Sequence[str]",
    space: "Space",
    values: "Values",
    trial: int = 0,
    repeat: int = 0,
    seed: int = 0,
) -> "List[str]":
    """Return the command of a trial; raise NoSuchName for a word that cannot be filled."""
    there = present(space, values)
    own = {one["name"]: text_of(values[one["name"]], emission(one) == ASSIGNMENT) for one in there}
    names = names_of(space)
    texts = {name: own[names[name]] for name in names if names[name] in own}
    texts.update(trial=str(trial), repeat=str(repeat), seed=str(seed))
    argv = [filled(word, texts) for word in template]
    named = {names.get(name) for name in names_in(template)}
    for one in there:
        if one["name"] not in named:
            argv += added(one, own[one["name"]])
    return argv


def short_name(name: str) -> str:
    """Return what people call a parameter: ``num_envs`` of ``--num-envs``, ``lr`` of
    ``agent.params.lr``."""
    return re.split("[./]", name.lstrip("-+"))[-1].replace("-", "_") or name


def names_of(space: "Space") -> "Dict[str, str]":
    """Return the full names of parameters, by what may be written for each: the full name, or the
    short one where only one parameter has it."""
    full = [one["name"] for one in space]
    count = Counter(short_name(name) for name in full)
    short = {short_name(name): name for name in full if count[short_name(name)] == 1}
    found = {name: short[name] for name in short if name not in NUMBERS}
    found.update((name, name) for name in full)
    return found


def names_in(template: "Sequence[str]") -> "Set[str]":
    """Return what stands in braces in the words of a template."""
    return {
        found.group(1)
        for word in template
        for found in PARTS.finditer(word)
        if found.group(1) is not None
    }


def filled(word: str, texts: "Dict[str, str]") -> str:
    def put(found: "Any") -> str:
        if found.group() in ("{{", "}}"):
            return str(found.group()[0])
        name = found.group(1)
        if name is None or name not in texts:
            raise NoSuchName(
                "'{}' in the word '{}' stands for nothing; a brace itself is written twice".format(
                    found.group(), word
                )
            )
        return texts[name]

    return PARTS.sub(put, word)


def emission(parameter: "Parameter") -> str:
    """Return how a parameter gets into a command that does not name it."""
    default = FLAG if parameter["name"].startswith("-") else ASSIGNMENT
    return parameter.get("emit") or default


def added(parameter: "Parameter", text: str) -> "List[str]":
    how = emission(parameter)
    if how == FLAG:
        return [parameter["name"], text]
    if how == ASSIGNMENT:
        return ["{}={}".format(parameter["name"], text)]
    return [text] if how == VALUE else []


def text_of(value: "Any", as_assignment: bool) -> str:
    """Return a value as a word: Hydra reads true, false and null, a command line Python's names."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        name = str(value)
        return {"None": "null"}.get(name, name.lower()) if as_assignment else name
    if isinstance(value, (list, tuple)):
        return "[{}]".format(",".join(text_of(one, as_assignment) for one in value))
    if isinstance(value, dict):
        pairs = ["{}:{}".format(key, text_of(one, as_assignment)) for key, one in value.items()]
        return "{{{}}}".format(",".join(pairs))
    return repr(value)  # of a float, the shortest that reads back
