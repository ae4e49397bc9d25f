"""The space of a sweep: its parameters as points of the unit cube, and what follows from them.

A parameter that is learnt (``choice``, ``float``, ``int``) is one dimension: a number from 0 to 1,
or the place of the value among the choices. The others (``drawn``, ``fixed``, ``table``,
``formula``) follow from these and from the configuration's number. See records.Parameter. Some may
be there only with certain choices: see presence.
"""

import json
import math

from . import presence
from .filling import short_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union  # noqa: F401

    from ..formats.records import Parameter

    Values = Dict[str, Any]
    # In the order of the learnt parameters; None: one that is not there.
    Point = List[Optional[Union[int, float]]]
    Space = List[Parameter]

LEARNT = ("choice", "float", "int")
DIGITS = "{:.12g}"  # of a value that lies on a raster: 0.3, not 0.30000000000000004


class NoSuchPoint(ValueError):
    """The values are not of this space."""


def learnt(space: "Space") -> "Space":
    return [one for one in space if one["kind"] in LEARNT]


def is_choice(parameter: "Parameter") -> bool:
    return parameter["kind"] == "choice"


# -- one parameter ------------------------------------------------------------------------------


def step_of(parameter: "Parameter") -> "Optional[float]":
    step = parameter.get("step")
    return step or (1 if parameter["kind"] == "int" else None)


def edges(parameter: "Parameter") -> "List[float]":
    """Return the ends of the range, on its scale. With a raster, each value has a step's room."""
    low, high = float(parameter["low"]), float(parameter["high"])
    half = (step_of(parameter) or 0.0) / 2.0
    if not parameter.get("log"):
        return [low - half, high + half]
    return [math.log(max(low - half, low / 2.0)), math.log(high + half)]


def to_unit(parameter: "Parameter", value: "Any") -> "Union[int, float]":
    """Return where a value lies; raise NoSuchPoint where it is none of the parameter's."""
    if is_choice(parameter):
        return place_of(value, parameter["values"])
    low, high = edges(parameter)
    try:
        at = math.log(value) if parameter.get("log") else float(value)
    except (TypeError, ValueError, OverflowError):
        raise NoSuchPoint(parameter["name"])
    unit = (at - low) / (high - low) if high > low else 0.5
    if not -1e-9 <= unit <= 1 + 1e-9:
        raise NoSuchPoint(parameter["name"])
    return min(max(unit, 0.0), 1.0)


def place_of(value: "Any", values: "List[Any]") -> int:
    """Return which of the values it is; 1, 1.0 and true are three."""
    wanted = json.dumps(value, sort_keys=True)
    for place, one in enumerate(values):
        if json.dumps(one, sort_keys=True) == wanted:
            return place
    raise NoSuchPoint(wanted[:100])


def from_unit(parameter: "Parameter", unit: "Union[int, float]") -> "Any":
    if is_choice(parameter):
        return parameter["values"][int(unit)]
    low, high = edges(parameter)
    at = low + min(max(unit, 0.0), 1.0) * (high - low)
    value = math.exp(at) if parameter.get("log") else at
    step = step_of(parameter)
    if step:
        value = on_raster(parameter, value, step)
    value = min(max(value, parameter["low"]), parameter["high"])
    return int(value) if parameter["kind"] == "int" else float(value)


def on_raster(parameter: "Parameter", value: float, step: float) -> float:
    low, high = parameter["low"], parameter["high"]
    last = math.floor((high - low) / float(step) + 1e-9)
    steps = min(max(round((value - low) / float(step)), 0), last)
    return float(DIGITS.format(low + step * steps))


def spread(parameter: "Parameter", share: float) -> "Union[int, float]":
    """Return the coordinate at this share (0 ≤ share < 1) of the parameter's range."""
    return int(share * len(parameter["values"])) if is_choice(parameter) else share


def raster_size(parameter: "Parameter") -> int:
    """Return how many values a parameter has; raise ValueError where there is no end to them."""
    if is_choice(parameter):
        return len(parameter["values"])
    step = step_of(parameter)
    if not step:
        raise ValueError("{} has no step: a grid has no end there".format(parameter["name"]))
    if parameter["kind"] == "int":
        return (int(parameter["high"]) - int(parameter["low"])) // int(step) + 1
    return math.floor((parameter["high"] - parameter["low"]) / float(step) + 1e-9) + 1


def raster_value(parameter: "Parameter", at: int) -> "Any":
    """Return one of the values of a parameter, by its place among them."""
    if is_choice(parameter):
        return parameter["values"][at]
    low, step = parameter["low"], step_of(parameter) or 0
    if parameter["kind"] == "int":
        return int(low) + int(step) * at
    return float(DIGITS.format(low + step * at))


def raster(parameter: "Parameter") -> "List[Any]":
    """Return all values of a parameter; raise ValueError where there is no end to them."""
    return [raster_value(parameter, at) for at in range(raster_size(parameter))]


# -- all of them --------------------------------------------------------------------------------


def point_of(space: "Space", values: "Values") -> "Point":
    """Return the point of a configuration; raise NoSuchPoint where it is not of this space."""
    found = chosen_in(space, values)
    for one in learnt(space):
        if one["name"] in found and not is_choice(one) and not is_of_kind(one, found[one["name"]]):
            raise NoSuchPoint(one["name"])
    return [
        to_unit(one, found[one["name"]]) if one["name"] in found else None for one in learnt(space)
    ]


def chosen_in(space: "Space", values: "Values") -> "Values":
    """Return the values of the learnt parameters that are there; raise NoSuchPoint where one has
    none."""
    try:
        return {one["name"]: values[one["name"]] for one in learnt(presence.present(space, values))}
    except KeyError as error:
        raise NoSuchPoint(str(error))


def is_of_kind(parameter: "Parameter", value: "Any") -> bool:
    """Return whether this is a number such as the parameter has: float() would read texts, too."""
    kinds = int if parameter["kind"] == "int" else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)


def values_at(space: "Space", point: "Point", number: int) -> "Values":
    """Return all values of the configuration of this number: those at the point, and what
    follows."""
    return complete(space, learnt_at(space, point), number)


def learnt_at(space: "Space", point: "Point") -> "Values":
    """Return the values of the learnt parameters that the point has a place for."""
    found = {}  # type: Values
    for at, one in enumerate(learnt(space)):
        place = point[at]
        if place is not None:
            found[one["name"]] = from_unit(one, place)
    return found


def without_absent(space: "Space", point: "Point") -> "Point":
    """Return a point without the coordinates of what is not there with its choices."""
    there = presence.present(space, learnt_at(space, point))
    names = {one["name"] for one in there}
    return [point[at] if one["name"] in names else None for at, one in enumerate(learnt(space))]


def complete(space: "Space", values: "Values", number: int) -> "Values":
    """Add what is not learnt: a formula or a table may need others, whose turn comes first. What is
    not there with these choices is left out."""
    there = presence.present(space, values)
    found = dict(values)
    waiting = [one for one in there if one["kind"] not in LEARNT]
    while waiting:
        ready = [one for one in waiting if all(name in found for name in needs_of(one))]
        if not ready:
            raise ValueError("{} needs what is not there".format(waiting[0]["name"]))
        for one in ready:
            found[one["name"]] = follow(one, found, number)
        waiting = [one for one in waiting if one["name"] not in found]
    return {one["name"]: found[one["name"]] for one in there}


def needs_of(parameter: "Parameter") -> "List[str]":
    return list(parameter.get("of") or ())


def follow(parameter: "Parameter", values: "Values", number: int) -> "Any":
    kind = parameter["kind"]
    if kind == "fixed":
        return parameter["value"]
    if kind == "drawn":
        return parameter["values"][number % len(parameter["values"])]
    if kind == "formula":
        known = {short_name(name): values[name] for name in needs_of(parameter)}
        known.update((name, values[name]) for name in needs_of(parameter))
        from . import expressions  # with ast: not for every sweep

        return expressions.evaluate(parameter["formula"], known)
    if kind == "table":
        return look_up(parameter, [values[name] for name in needs_of(parameter)])
    raise ValueError("{} is of an unknown kind: {}".format(parameter["name"], kind))


def look_up(parameter: "Parameter", key: "List[Any]") -> "Any":
    rows = parameter["rows"]
    try:
        return rows[place_of(key, [row[0] for row in rows])][1]
    except NoSuchPoint:
        names = ", ".join(needs_of(parameter))
        raise NoSuchPoint("the table has no row for {} = {}".format(names, json.dumps(key)[1:-1]))
