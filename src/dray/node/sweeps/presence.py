"""Tells which parameters of a space are there: one may exist only if a choice has some value.

``when`` of a parameter has the values for which it is there, by the names of choices; all of them
must be met. What follows from a parameter (a formula, a table) is there if that is."""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set

    from ..formats.records import Parameter


def present(space: "List[Parameter]", values: "Dict[str, Any]") -> "List[Parameter]":
    """Return the parameters that are there with these values of the choices, in their order."""
    if not is_conditional(space):
        return space
    found = {}  # type: Dict[str, Any]
    for one in in_order(space):
        if all(name in found for name in one.get("of") or ()) and holds(one, found):
            found[one["name"]] = values.get(one["name"])
    return [one for one in space if one["name"] in found]


def is_conditional(space: "List[Parameter]") -> bool:
    return any(one.get("when") for one in space)


def holds(parameter: "Parameter", found: "Dict[str, Any]") -> bool:
    """Return whether a parameter is there beside these values, which have all that are there of
    those before it."""
    return all(
        name in found and is_among(found[name], wanted)
        for name, wanted in (parameter.get("when") or {}).items()
    )


def is_among(value: "Any", values: "List[Any]") -> bool:
    """Return whether it is one of the values; 1, 1.0 and true are three."""
    wanted = json.dumps(value, sort_keys=True)
    return any(json.dumps(one, sort_keys=True) == wanted for one in values)


def in_order(space: "List[Parameter]") -> "List[Parameter]":
    """Return the parameters, each behind those that it depends on. What depends on itself, or on
    what is not there, is left out."""
    ordered, names = [], set()  # type: List[Parameter], Set[str]
    waiting = list(space)
    while waiting:
        ready = [one for one in waiting if all(name in names for name in needed_by(one))]
        if not ready:
            break
        ordered += ready
        names.update(one["name"] for one in ready)
        waiting = [one for one in waiting if one["name"] not in names]
    return ordered


def needed_by(parameter: "Parameter") -> "List[str]":
    return list(parameter.get("of") or ()) + list(parameter.get("when") or {})


def optional(space: "List[Parameter]") -> "Set[str]":
    """Return the names of the parameters that are not always there."""
    found = set()  # type: Set[str]
    for one in in_order(space):
        if one.get("when") or any(name in found for name in one.get("of") or ()):
            found.add(one["name"])
    return found
