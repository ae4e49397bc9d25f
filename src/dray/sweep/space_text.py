"""Says in words how a space was read, so that a slip is seen before trials have run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.job.quantities import show_count
from dray.sweep.study import Parameter
from dray.sweep.table import show_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_LINES = 12
MOST_VALUES = 6
LONGEST_NAME = 30
LONGEST_VALUE = 60


def space_lines(space: Sequence[Parameter]) -> list[str]:
    """Return a line for each parameter: its name, and what it can be."""
    shown = space[:MOST_LINES] if len(space) > MOST_LINES + 1 else space
    names = [show_value(one.name, LONGEST_NAME) for one in shown]
    wide = max(map(len, names), default=0)
    lines = [f"  {name.ljust(wide)}  {told(one)}" for name, one in zip(names, shown, strict=True)]
    rest = len(space) - len(shown)
    return [*lines, f"  and {show_count(rest, 'parameter')} more"] if rest else lines


def told(one: Parameter) -> str:
    """Say what a parameter can be: 1e-5 to 0.1, even in its logarithm."""
    if one.kind in ("float", "int"):
        text = in_range(one)
    elif one.kind in ("choice", "drawn"):
        text = f"{'one of' if one.kind == 'choice' else 'drawn from'} {listed(one.values)}"
    elif one.kind == "formula":
        text = f"= {show_value(one.formula, LONGEST_VALUE)}"
    elif one.kind == "table":
        text = f"looked up by {', '.join(one.of)}"
    else:
        text = f"always {written(one.value)}"
    only = [f"{name} is {listed(values, 'or')}" for name, values in one.when.items()]
    return f"{text}, if {' and '.join(only)}" if only else text


def in_range(one: Parameter) -> str:
    ends = f"{one.low:.10g} to {one.high:.10g}"
    kind = "a whole number" if one.kind == "int" else "any number"
    steps = one.step if one.step and (one.kind != "int" or one.step != 1) else None
    step = f", in steps of {steps:.10g}" if steps else ""
    return f"{kind} from {ends}{step}{', even in its logarithm' if one.log else ''}"


def listed(values: Sequence[Any], word: str = "") -> str:
    shown: Iterable[str] = map(written, values[:MOST_VALUES])
    more = len(values) - MOST_VALUES
    if word and len(values) <= MOST_VALUES:
        return f" {word} ".join(shown)
    return ", ".join([*shown, *([f"{more} more"] if more > 0 else [])])


def written(value: Any) -> str:
    """Show a value; a text that looks like another kind of value, or has spaces, in quotes."""
    text = show_value(value, LONGEST_VALUE)
    is_odd = isinstance(value, str) and (not value or not value.isidentifier() or "(" in value)
    return f"'{text}'" if is_odd else text
