"""What a sweep varies, as people write it: SPEC texts and TOML values → parameters.

elu,relu,tanh         one of these; each is a number, true, false, JSON in [] or {}, or a text
0.9..0.999            any number between these
1e-5..1e-1:log        the same, even in its logarithm
1..10:int             a whole number; 8..64:int:step=8 every eighth
=num_envs*horizon//4  arithmetic of other parameters
…:when=optimizer:sgd   behind any of these: only if that choice has this value, or one of sgd,adam
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, product

from dray.checks import Malformed, brief
from dray.errors import UsageError, nearest
from dray.node.sweeps import expressions, presence, sampler
from dray.node.sweeps.filling import NoSuchName, fill, names_in, names_of, short_name
from dray.node.sweeps.space import NoSuchPoint, complete, from_unit, to_unit
from dray.sweep.study import (
    EMITS,
    LARGEST,
    LARGEST_WHOLE,
    LEARNT,
    RESERVED,
    Parameter,
    has_huge,
    parameter_name,
    plain_value,
    usual_emit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
WHOLE = re.compile(r"[-+]?\d{1,18}")
SCALAR = re.compile(NUMBER)
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})((?::[^:]*)*)")
OF_RANGE = re.compile(r":(int|float|log|step=\S*)$")
LOOKS_LIKE_RANGE = re.compile(rf"{NUMBER}\.\.(?!\.?/)")
EXAMPLES = {"int": "1..10:int", "float": "1..10:float", "log": "1e-5..1e-1:log"}
WORDS = {"true": True, "True": True, "false": False, "False": False}
FORMS = ("choice", "float", "int", "log", "formula", "fixed", "drawn", "table")
BESIDES = ("step", "of", "emit", "when")  # what a table may hold beside one of these
OPENING, CLOSING = "[{", "]}"
WHEN = ":when="
LONGEST_SHOWN = 100  # characters of a value that cannot be used
MOST_EXTREMES = 1000  # combinations of values that a formula is tried with
MOST_EFFORT = 100_000  # for that, for all formulas of a space: see refuse_extremes
MOST_ORIGINS = 100  # parameters that one is made of, at any depth
MOST_NAMED = 2000  # parameters that all formulas of a space name, each as often as one does


A_KIND = {"float": "a range", "int": "a range", "formula": "a formula", "table": "a table"}
NO_RANGE = re.compile(r"\w+\.\.\w+")  # with ends that are no numbers


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
    spec, *conditions = spec.split(WHEN)
    when = when_of(name, conditions)
    refuse_huge(name, when)
    return without_condition(name, spec.strip())._replace(when=when)


def when_of(name: str, conditions: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Read the texts behind each ``:when=``: optimizer:sgd,adam."""
    found = {}
    for text in conditions:
        choice, colon, values = text.strip().partition(":")
        if not colon or not choice or choice in found:
            raise SpaceError(
                name, f"cannot read ':when={text}': write :when=optimizer:sgd, for each choice once"
            )
        found[choice] = tuple(scalar(name, one) for one in parts_of(name, values))
    return found


def without_condition(name: str, spec: str) -> Parameter:
    if spec.startswith("="):
        return made(name, kind="formula", formula=spec[1:].strip())
    if "..." in spec and LOOKS_LIKE_RANGE.match(spec):  # else 1e-5...1e-1 would end at .1e-1
        raise SpaceError(name, f"'{spec}' has three dots: a range has two, as in 1e-5..1e-1")
    if found := RANGE.fullmatch(spec):
        return ranged(name, found[1], found[2], found[3])
    if LOOKS_LIKE_RANGE.match(spec):
        raise SpaceError(name, f"cannot read the range '{spec}': write 1e-5..1e-1:log or 1..10:int")
    words = parts_of(name, spec)
    if OF_RANGE.search(words[-1]) and words[-1][0] not in '[{"':
        said = words[-1].rpartition(":")[2]
        example = EXAMPLES.get(said, "8..64:int:step=8")
        raise SpaceError(name, f"':{said}' is for ranges: write {example}, or a list alone")
    values = [scalar(name, one) for one in words]
    refuse_twins(name, values)
    if len(values) == 1 and NO_RANGE.fullmatch(words[0]):
        raise SpaceError(name, f"'{spec}' is no range, whose ends are numbers: write 0.1..0.9")
    if len(values) == 1:
        return made(name, kind="fixed", value=values[0])
    return made(name, kind="choice", values=tuple(values))


def refuse_twins(name: str, values: Sequence[Any]) -> None:
    """Refuse a value that is listed twice: a grid would run it twice, under one name."""
    seen = [as_word(one) for one in values]
    for at, word in enumerate(seen):
        if word in seen[:at] and values[seen.index(word)] == values[at]:
            raise SpaceError(name, f"{word} is there twice")


def ranged(name: str, low: str, high: str, options: str) -> Parameter:
    words = [one.strip() for one in options.split(":")[1:]]
    known = {"int", "float", "log"}
    for word in words:
        if word not in known and not re.fullmatch(rf"step={NUMBER}", word):
            guess = nearest(word, [*known, "step=N"])
            raise SpaceError(name, f"':{word}' says nothing of a range.{guess}")
    is_int = "int" in words
    ends = (low, high)
    if "float" in words and is_int:
        raise SpaceError(name, "a range is of whole numbers (:int) or of any (:float), not both")
    if float(low) > float(high):
        raise SpaceError(name, f"{low} is more than {high}: the smaller end comes first")
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
    if any(part.count("(") != part.count(")") for part in parts if part.strip()[:1] != '"'):
        raise SpaceError(
            name,
            f"'{spec}' has a comma inside parentheses, which divides it: write a range as "
            "1e-5..1e-1:log or 1..10:int, and a text with commas in double quotes",
        )
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
    """Read { log = [1e-5, 1e-1] }, { int = [8, 64], step = 8 }, { choice = […], emit = "none" },
    any of them with when = { optimizer = "sgd" }."""
    for key in table:
        if key not in (*FORMS, *BESIDES):
            raise SpaceError(name, f"unknown key '{key}'.{nearest(key, (*FORMS, *BESIDES))}")
    emit = table.get("emit", usual_emit(name))
    if emit not in EMITS:
        raise SpaceError(name, f"emit = {shown(emit)} is none of {', '.join(EMITS)}")
    forms = [key for key in FORMS if key in table and not isinstance(table.get("log"), bool)]
    forms = forms or [key for key in FORMS if key in table and key != "log"]
    if len(forms) != 1:
        raise SpaceError(name, f"write one of {', '.join(FORMS)}")
    when = when_in(name, table.get("when", {}))
    return made(name, emit=emit, when=when, **fields_of(name, forms[0], table))


def when_in(name: str, table: Any) -> dict[str, tuple[Any, ...]]:
    """Read { optimizer = "sgd", depth = [2, 3] }: a list has the values of which any will do."""
    if not isinstance(table, dict):
        raise SpaceError(name, f'when = {shown(table)}: write when = {{ optimizer = "sgd" }}')
    lists = {key: one if isinstance(one, list) else [one] for key, one in table.items()}
    return {key: read_value(name, one) for key, one in lists.items()}


def fields_of(name: str, form: str, table: Mapping[str, Any]) -> dict[str, Any]:
    value = table[form]
    if form in ("float", "int", "log"):
        return range_fields(name, form, table)
    if form == "formula":
        return {"kind": form, "formula": str(value).removeprefix("=").strip()}
    if form == "fixed":
        return {"kind": form, "value": read_value(name, value)}
    if not isinstance(value, list):
        raise SpaceError(name, f"{form} = {shown(value)} is not a list")
    if form == "table":
        of = table.get("of", [])
        if not isinstance(of, list) or not all(isinstance(one, str) for one in of):
            raise SpaceError(name, f'of = {shown(of)} is no list of names: write of = ["num_envs"]')
        return {"kind": form, "of": tuple(of), "rows": tuple(rows_of(name, one) for one in value)}
    return {"kind": form, "values": read_value(name, value)}


def rows_of(name: str, row: Any) -> tuple[Any, Any]:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], list):
        raise SpaceError(name, f"{shown(row)} is not a row: write [[512, 16], 2048]")
    return read_value(name, row[0]), read_value(name, row[1])


def range_fields(name: str, form: str, table: Mapping[str, Any]) -> dict[str, Any]:
    ends = table[form]
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
        raise SpaceError(name, f"{form} = {shown(ends)} is not a range: write {form} = [1, 10]")
    is_int = form == "int"
    step = table.get("step", 1 if is_int else None)
    if step is not None and not is_number(step):
        raise SpaceError(name, f"step = {shown(step)} is not a number")
    low, high = ends if is_int else map(float, ends)
    is_log = form == "log" or table.get("log") is True
    return {"kind": "int" if is_int else "float", "low": low, "high": high, "log": is_log} | {
        "step": step
    }


def is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST


def shown(value: object) -> str:
    """Show a value of TOML, however large it is: Python writes no number of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return brief(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


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
    refuse_huge(name, (parameter.values, parameter.value, parameter.rows, parameter.when))
    if problem := parameter.problem():
        raise SpaceError(name, problem)
    if parameter.step and parameter.step > parameter.high - parameter.low > 0:
        raise SpaceError(name, f"the step {parameter.step:g} is larger than the whole range")
    return parameter


def refuse_huge(name: str, values: Any) -> None:
    if has_huge(values):
        raise SpaceError(name, f"a number in it is out of bounds: at most {LARGEST:g} can be used")


# -- all of them together -----------------------------------------------------------------------


def whole(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Make a space of parameters: names once, and each formula with what it is made of. Raises
    SpaceError."""
    space = once(parameters)
    names = names_of(records_of(space.values()))
    for one in list(space.values()):
        when = {known(one, key, names): values for key, values in one.when.items()}
        space[one.name] = one._replace(when=when)
    for one in list(space.values()):
        if one.kind == "formula":
            space[one.name] = one._replace(of=formula_parts(one, names))
        elif one.kind == "table":
            space[one.name] = one._replace(of=tuple(known(one, part, names) for part in one.of))
    if sum(len(one.of) for one in space.values()) > MOST_NAMED:
        longest = max(space.values(), key=lambda parameter: len(parameter.of))
        raise SpaceError(longest.name, f"all formulas together name more than {MOST_NAMED} others")
    for one in sorted(space.values(), key=lambda parameter: len(origins(space, parameter.name))):
        refuse_without_value(space, one.name)
    for one in space.values():
        refuse_condition(space, one)
    refuse_circle(space)
    left = MOST_EFFORT
    for one in space.values():
        if one.kind == "formula":
            left -= refuse_extremes(space, one, left)
    return possible(space)


def refuse_extremes(space: Mapping[str, Parameter], parameter: Parameter, most: int) -> int:
    """Refuse a formula that has no value at some ends of its ranges, or at zero: trials would fail
    on their nodes, one now and then. Return how much of an effort that was, ``most`` at most: what
    is made of many others is tried with fewer values."""
    names = {parameter.name, *origins(space, parameter.name, lambda one: (*one.of, *one.when))}
    parts = [one for one in space.values() if one.name in names]
    learnt = [one for one in parts if one.kind in LEARNT]
    effort, records = len(parts) * (1 + len(parts) - len(learnt)), records_of(parts)
    tries = list(islice(product(*map(extremes, learnt)), min(MOST_EXTREMES, most // effort)))
    for values in tries:
        chosen = dict(zip([one.name for one in learnt], values, strict=True))
        try:
            refuse_result(parameter.name, complete(records, chosen, 0).get(parameter.name), chosen)
        except NoSuchPoint:  # in a table, which need not have rows for what never meets
            continue
        except expressions.NotAnExpression as error:
            raise SpaceError(parameter.name, f"{error}, with {listed(chosen)}") from None
    return len(tries) * effort


def refuse_result(name: str, value: Any, chosen: Mapping[str, Any]) -> None:
    """Refuse a number that could not be read again from a trial's file."""
    largest = LARGEST_WHOLE if isinstance(value, int) else LARGEST
    if isinstance(value, int | float) and not abs(value) <= largest:
        raise SpaceError(name, f"it is out of bounds, with {listed(chosen)}: at most {largest:g}")


def listed(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in chosen.items())


def extremes(parameter: Parameter) -> list[Any]:
    """Return the values at which a formula may fail: the ends of a range, and zero in it."""
    if parameter.kind == "choice":
        return list(parameter.values)
    record: Any = parameter.to_dict()
    ends = [from_unit(record, 0.0), from_unit(record, 1.0)]
    if ends[0] < 0 < ends[1] and not parameter.log:
        ends.append(from_unit(record, float(to_unit(record, 0))))
    return ends


def refuse_condition(space: Mapping[str, Parameter], parameter: Parameter) -> None:
    """Refuse a condition on what is no choice, or on values that it does not have."""
    for name, wanted in parameter.when.items():
        kind, values = space[name].kind, space[name].values
        if kind not in ("choice", "fixed"):
            raise SpaceError(
                parameter.name,
                f"it can only depend on a parameter whose values are listed (a,b,c), and '{name}' "
                f"is {A_KIND.get(kind, kind)}",
            )
        if not wanted:
            raise SpaceError(parameter.name, f"when: '{name}' has no value in it")
        for value in wanted if kind == "choice" else ():
            if not presence.is_among(value, list(values)):
                valid = [as_word(one) for one in values]
                guess = nearest(as_word(value), valid) or f" It is one of {', '.join(valid)}."
                raise SpaceError(
                    parameter.name, f"when: '{name}' is never {as_word(value)}.{guess}"
                )


def as_word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def refuse_circle(space: Mapping[str, Parameter]) -> None:
    """Refuse conditions that depend on each other."""
    ordered = {one["name"] for one in presence.in_order(records_of(space.values()))}
    for name in space:
        if name not in ordered:
            raise SpaceError(name, f"whether '{name}' is there would depend on itself")


def possible(space: Mapping[str, Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters that can be there, where conditions depend on what is fixed: such a
    condition is always met, and left out, or never."""
    fixed = {one.name: one.value for one in space.values() if one.kind == "fixed"}
    found: dict[str, Parameter] = {}
    for record in presence.in_order(records_of(space.values())):
        one = space[record["name"]]
        settled = [name for name in one.when if name in fixed]
        is_met = all(presence.is_among(fixed[name], list(one.when[name])) for name in settled)
        if is_met and all(name in found for name in (*one.of, *one.when)):
            when = {name: one.when[name] for name in one.when if name not in settled}
            found[one.name] = one._replace(when=when)
    return tuple(found[name] for name in space if name in found)


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


def origins(
    space: Mapping[str, Parameter],
    name: str,
    parts_of: Callable[[Parameter], Iterable[str]] = lambda one: one.of,
) -> set[str]:
    """Return all parameters that one is made of, at any depth."""
    waiting, found = list(parts_of(space[name])), set[str]()
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += parts_of(space[one])
    return found


def refuse_without_value(space: Mapping[str, Parameter], name: str) -> None:
    """Refuse what has no value in the first configuration: it would fail on every node."""
    needed = origins(space, name)
    if name in needed:
        raise SpaceError(name, f"'{name}' is made of itself")
    if len(needed) > MOST_ORIGINS:
        raise SpaceError(name, f"'{name}' is made of more than {MOST_ORIGINS} others")
    try:
        parts = [space[one]._replace(when={}) for one in (*needed, name)]
        sampler.spread_evenly(records_of(parts), 0, 0)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpaceError(name, str(error)) from None


def merged(weaker: Sequence[Parameter], stronger: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Put parameters of a file and of flags together: a flag replaces what the file says, also
    where it calls a parameter by the last part of its name. Raises SpaceError where two flags name
    the same one, or one may be several."""
    own = [under_full_name(one, weaker) for one in stronger]
    once(own)
    return tuple({one.name: one for one in (*weaker, *own)}.values())


def under_full_name(flag: Parameter, known: Sequence[Parameter]) -> Parameter:
    """Return a flag's parameter under the name that the file has for it: agent.lr for lr."""
    if any(one.name == flag.name for one in known) or short_name(flag.name) != flag.name:
        return flag
    meant = [one for one in known if short_name(one.name) == flag.name]
    if len(meant) > 1:
        names = " or ".join(one.name for one in meant)
        raise SpaceError(flag.name, f"the file has several of that name: write {names}")
    return flag._replace(name=meant[0].name, emit=meant[0].emit) if meant else flag


def records_of(space: Iterable[Parameter]) -> list[Any]:
    """Return the space as the node side has it."""
    return [one.to_dict() for one in space]


# -- the command --------------------------------------------------------------------------------


def check_template(command: Sequence[str], space: Sequence[Parameter]) -> None:
    """Refuse a command in which braces name something that is not varied, or not always there."""
    records = records_of(space)
    refuse_optional(command, records)
    try:
        fill(command, records, sampler.spread_evenly(records, 0, 0))
    except NoSuchName as error:
        names = [*names_of(records), *RESERVED]
        unknown = sorted(name for name in names_in(command) if name not in names)
        guess = nearest(unknown[0], names) if unknown else ""
        valid = ", ".join(f"{{{name}}}" for name in names)
        raise UsageError(f"{error}.{guess}", hint=f"There is {valid}.") from None


def refuse_optional(command: Sequence[str], records: list[Any]) -> None:
    """Refuse a word with a parameter that is not always there: it is unknown which words would have
    to go with it."""
    names, optional = names_of(records), presence.optional(records)
    for written in sorted(names_in(command)):
        name = names.get(written, "")
        if name in optional:
            raise UsageError(
                f"{{{written}}} is in the command, and the parameter '{name}' is not always there",
                hint=f"Leave it out: where it is there, it is added at the end as {name}=VALUE, or "
                "as --NAME VALUE where its name begins with dashes. DRAY_PARAMS has it, too.",
            )
