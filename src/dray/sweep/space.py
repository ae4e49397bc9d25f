"""What a sweep varies, as people write it: SPEC texts and TOML values → parameters.

elu,relu,tanh         one of these; each is a number, true, false, JSON in [] or {}, or a text
0.9..0.999            any number between these
1e-5..1e-1:log        the same, even in its logarithm
1..10:int             a whole number; 8..64:int:step=8 every eighth
=num_envs*horizon//4  arithmetic of other parameters
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from dray.checks import Malformed
from dray.errors import UsageError, nearest
from dray.node.sweeps import expressions, sampler
from dray.node.sweeps.filling import NoSuchName, fill, names_in, names_of
from dray.sweep.study import EMITS, RESERVED, Parameter, parameter_name, plain_value, usual_emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
WHOLE = re.compile(r"[-+]?\d{1,18}")
SCALAR = re.compile(NUMBER)
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})((?::[^:]*)*)")
LOOKS_LIKE_RANGE = re.compile(rf"{NUMBER}\.\.(?!\.?/)")
WORDS = {"true": True, "True": True, "false": False, "False": False}
FORMS = ("choice", "float", "int", "log", "formula", "fixed", "drawn", "table")
OPENING, CLOSING = "[{", "]}"


class SpaceError(ValueError):
    """A parameter that cannot be used; ``name`` is which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


# -- a text -------------------------------------------------------------------------------------


def from_flag(text: str) -> Parameter:
    """Read NAME=SPEC, as ``--space`` takes it."""
    name, equals, spec = text.partition("=")
    if not equals or not name:
        raise SpaceError(name, f"'{text}' is not NAME=SPEC: write lr=1e-5..1e-1:log")
    return from_spec(name, spec)


def from_spec(name: str, spec: str) -> Parameter:
    """Read a SPEC text. Raises SpaceError."""
    spec = spec.strip()
    if spec.startswith("="):
        return made(name, kind="formula", formula=spec[1:].strip())
    if found := RANGE.fullmatch(spec):
        return ranged(name, found[1], found[2], found[3])
    if LOOKS_LIKE_RANGE.match(spec):
        raise SpaceError(name, f"cannot read the range '{spec}': write 1e-5..1e-1:log or 1..10:int")
    values = [scalar(name, one) for one in parts_of(name, spec)]
    if len(values) == 1:
        return made(name, kind="fixed", value=values[0])
    return made(name, kind="choice", values=tuple(values))


def ranged(name: str, low: str, high: str, options: str) -> Parameter:
    words = [one.strip() for one in options.split(":")[1:]]
    known = {"int", "float", "log"}
    for word in words:
        if word not in known and not re.fullmatch(rf"step={NUMBER}", word):
            guess = nearest(word, [*known, "step=N"])
            raise SpaceError(name, f"':{word}' says nothing of a range.{guess}")
    is_int = "int" in words
    ends = (low, high)
    if not known & {*words} and all(map(WHOLE.fullmatch, ends)):
        raise SpaceError(
            name, f"write {low}..{high}:int for whole numbers, {low}..{high}:float for any"
        )
    steps = [as_number(word[5:]) for word in words if word.startswith("step=")]
    return made(
        name,
        kind="int" if is_int else "float",
        low=as_number(low) if is_int else float(low),
        high=as_number(high) if is_int else float(high),
        log="log" in words,
        step=steps[-1] if steps else 1 if is_int else None,
    )


def parts_of(name: str, spec: str) -> list[str]:
    """Divide a text at its commas, but not at those inside brackets or quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, letter in enumerate(spec):
        if letter == '"' and spec[at - 1 : at] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (letter in OPENING) - (letter in CLOSING)
            if letter == "," and not depth:
                parts.append(spec[start:at])
                start = at + 1
    parts.append(spec[start:])
    if any(not part.strip() for part in parts):
        raise SpaceError(name, f"'{spec}' has an empty value: write a,b,c")
    return [part.strip() for part in parts]


def scalar(name: str, text: str) -> Any:
    if text[0] in '[{"':
        try:
            return plain_value(json.loads(text))
        except (ValueError, RecursionError):
            raise SpaceError(name, f"cannot read {text}: write it as JSON") from None
    if text in WORDS:
        return WORDS[text]
    return as_number(text) if SCALAR.fullmatch(text) else text


def as_number(text: str) -> float:
    return int(text) if WHOLE.fullmatch(text) else float(text)


# -- a value of TOML ----------------------------------------------------------------------------


def from_toml(name: str, value: Any) -> Parameter:
    """Read a value of [sweep.space]: a SPEC, a list to choose from, a table, or a fixed value."""
    if isinstance(value, str):
        return from_spec(name, value)
    if isinstance(value, list):
        return made(name, kind="choice", values=read_value(name, value))
    if isinstance(value, dict):
        return from_table(name, value)
    return made(name, kind="fixed", value=read_value(name, value))


def from_table(name: str, table: Mapping[str, Any]) -> Parameter:
    """Read { log = [1e-5, 1e-1] }, { int = [8, 64], step = 8 }, { choice = […], emit = "none" }."""
    for key in table:
        if key not in (*FORMS, "step", "of", "emit"):
            raise SpaceError(name, f"unknown key '{key}'.{nearest(key, FORMS)}")
    emit = table.get("emit", usual_emit(name))
    if emit not in EMITS:
        raise SpaceError(name, f"emit = {emit!r} is none of {', '.join(EMITS)}")
    forms = [key for key in FORMS if key in table and not isinstance(table.get("log"), bool)]
    forms = forms or [key for key in FORMS if key in table and key != "log"]
    if len(forms) != 1:
        raise SpaceError(name, f"write one of {', '.join(FORMS)}")
    return made(name, emit=emit, **fields_of(name, forms[0], table))


def fields_of(name: str, form: str, table: Mapping[str, Any]) -> dict[str, Any]:
    value = table[form]
    if form in ("float", "int", "log"):
        return range_fields(name, form, table)
    if form == "formula":
        return {"kind": form, "formula": str(value).removeprefix("=").strip()}
    if form == "fixed":
        return {"kind": form, "value": read_value(name, value)}
    if not isinstance(value, list):
        raise SpaceError(name, f"{form} = {value!r} is not a list")
    if form == "table":
        of = tuple(map(str, table.get("of", ())))
        return {"kind": form, "of": of, "rows": tuple(rows_of(name, one) for one in value)}
    return {"kind": form, "values": read_value(name, value)}


def rows_of(name: str, row: Any) -> tuple[Any, Any]:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], list):
        raise SpaceError(name, f"{row!r} is not a row: write [[512, 16], 2048]")
    return read_value(name, row[0]), read_value(name, row[1])


def range_fields(name: str, form: str, table: Mapping[str, Any]) -> dict[str, Any]:
    ends = table[form]
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
        raise SpaceError(name, f"{form} = {ends!r} is not a range: write {form} = [1, 10]")
    is_int = form == "int"
    step = table.get("step", 1 if is_int else None)
    if step is not None and not is_number(step):
        raise SpaceError(name, f"step = {step!r} is not a number")
    low, high = ends if is_int else map(float, ends)
    is_log = form == "log" or table.get("log") is True
    return {"kind": "int" if is_int else "float", "low": low, "high": high, "log": is_log} | {
        "step": step
    }


def is_number(value: object) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(float(value))  # type: ignore[arg-type]


def read_value(name: str, value: Any) -> Any:
    try:
        return plain_value(value)
    except Malformed as error:
        raise SpaceError(name, f"{error}") from None


def made(name: str, *, emit: str = "", **fields: Any) -> Parameter:
    """Make the parameter, checked."""
    try:
        parameter = Parameter(name=parameter_name(name), emit=emit or usual_emit(name), **fields)
    except Malformed as error:
        raise SpaceError(name, f"{error}: it has no spaces, braces or '='") from None
    if name in RESERVED:
        raise SpaceError(
            name,
            f"{{{name}}} is a number of dray's own: write --{name}, which adds --{name} VALUE to "
            f"the command (--space --{name}=1,2; {{--{name}}} stands for it)",
        )
    if problem := parameter.problem():
        raise SpaceError(name, problem)
    return parameter


# -- all of them together -----------------------------------------------------------------------


def whole(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Make a space of parameters: names once, and each formula with what it is made of. Raises
    SpaceError."""
    space = once(parameters)
    names = names_of(records_of(space.values()))
    for one in list(space.values()):
        if one.kind == "formula":
            space[one.name] = one._replace(of=formula_parts(one, names))
        elif one.kind == "table":
            space[one.name] = one._replace(of=tuple(known(one, part, names) for part in one.of))
    for one in sorted(space.values(), key=lambda parameter: len(origins(space, parameter.name))):
        refuse_without_value(space, one.name)
    return tuple(space.values())


def once(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    """Return parameters by their names; refuse one that is there twice."""
    found: dict[str, Parameter] = {}
    for one in parameters:
        if one.name in found:
            raise SpaceError(one.name, f"the parameter '{one.name}' is there twice")
        found[one.name] = one
    return found


def formula_parts(parameter: Parameter, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parameters that a formula is made of."""
    try:
        wanted = expressions.names_in(parameter.formula)
    except expressions.NotAnExpression as error:
        raise SpaceError(parameter.name, f"{error}: write =num_envs*horizon//4") from None
    return tuple(known(parameter, name, names) for name in sorted(wanted))


def known(parameter: Parameter, name: str, names: Mapping[str, str]) -> str:
    if name in names:
        return names[name]
    guess = nearest(name, names)
    raise SpaceError(parameter.name, f"there is no parameter '{name}'.{guess}")


def origins(space: Mapping[str, Parameter], name: str) -> set[str]:
    """Return all parameters that one is made of, at any depth."""
    waiting, found = list(space[name].of), set[str]()
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += space[one].of
    return found


def refuse_without_value(space: Mapping[str, Parameter], name: str) -> None:
    """Refuse what has no value in the first configuration: it would fail on every node."""
    needed = origins(space, name)
    if name in needed:
        raise SpaceError(name, f"'{name}' is made of itself")
    try:
        sampler.spread_evenly(records_of(space[one] for one in (*needed, name)), 0, 0)
    except (ValueError, TypeError) as error:
        raise SpaceError(name, str(error)) from None


def merged(weaker: Sequence[Parameter], stronger: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Put parameters of a file and of flags together: a flag replaces what the file says. Raises
    SpaceError where two flags name the same one."""
    once(stronger)
    return tuple({one.name: one for one in (*weaker, *stronger)}.values())


def records_of(space: Iterable[Parameter]) -> list[Any]:
    """Return the space as the node side has it."""
    return [one.to_dict() for one in space]


# -- the command --------------------------------------------------------------------------------


def check_template(command: Sequence[str], space: Sequence[Parameter]) -> None:
    """Refuse a command in which braces name something that is not varied."""
    records = records_of(space)
    try:
        fill(command, records, sampler.spread_evenly(records, 0, 0))
    except NoSuchName as error:
        names = [*names_of(records), *RESERVED]
        unknown = sorted(name for name in names_in(command) if name not in names)
        guess = nearest(unknown[0], names) if unknown else ""
        valid = ", ".join(f"{{{name}}}" for name in names)
        raise UsageError(f"{error}.{guess}", hint=f"There is {valid}.") from None
