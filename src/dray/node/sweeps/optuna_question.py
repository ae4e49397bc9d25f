"""What Optuna is asked for a configuration, and what its answer has to be. Pure.

A sampler of Optuna's is named ``optuna:CmaEsSampler``, with its arguments behind it where it has
any: ``optuna:TPESampler,multivariate=true,n_startup_trials=20``. It is asked by ``optuna_child``,
in a Python that has Optuna; nothing of it is imported here."""

import json
import re

from . import asking, presence, sampler, space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple  # noqa: F401

    from ..formats.records import Parameter, Record, StudyRecord, TrialRecord  # noqa: F401
    from .asking import Results, Trials, Vectors

PREFIX = "optuna:"
NAME = re.compile(r"optuna:([A-Za-z_][A-Za-z0-9_]{0,99})(,.*)?$")
ARGUMENT = re.compile(r",\s*([A-Za-z_][A-Za-z0-9_]{0,99})=")
PYTHON = re.compile(r"(.*/)?python[^/]*$")
LONGEST_NAME = 1000  # with its arguments
LONGEST_TOLD = 500  # characters of what went wrong there
DEFAULT_PYTHON = ["python3"]
MODULE = ["-m", "dray_node", "ask-optuna"]  # on the path of every Python in a job
SEEDS = 2**31 - 1
KNOWN = (
    "TPESampler",
    "GPSampler",
    "CmaEsSampler",
    "NSGAIISampler",
    "NSGAIIISampler",
    "RandomSampler",
    "BruteForceSampler",
)
ONE_METRIC = ("CmaEsSampler",)  # those that cannot learn from several
# Those that count in a database which all of their processes share, or want more than plain values.
OTHERWISE = {
    "QMCSampler": "use quasi",
    "GridSampler": "use grid",
    "PartialFixedSampler": "fix a parameter in the space instead",
}


class NoAnswer(ValueError):
    """Optuna could not be asked, or has answered what is not of the space. Says why."""


def is_optuna(name: str) -> bool:
    return name.startswith(PREFIX)


def parsed(name: str) -> "Tuple[str, Dict[str, Any]]":
    """Return the class and the arguments that a name stands for; raise ValueError with what is
    wrong with it. An argument is JSON, or a text."""
    found = NAME.match(name)
    if found is None or len(name) > LONGEST_NAME:
        raise ValueError("write optuna:CmaEsSampler, or optuna:TPESampler,multivariate=true")
    arguments = {}  # type: Dict[str, Any]
    rest = found.group(2) or ""
    while rest:
        key = ARGUMENT.match(rest)
        if key is None:
            raise ValueError("'{}' is not an argument: write ,name=value".format(rest[:100]))
        if key.group(1) in arguments:
            raise ValueError("{} is given twice".format(key.group(1)))
        arguments[key.group(1)], rest = value_in(rest[key.end() :])
    if found.group(1) in OTHERWISE:
        raise ValueError("{} cannot be used here: {}".format(name, OTHERWISE[found.group(1)]))
    if "seed" in arguments:
        raise ValueError("the seed is that of the sweep: --seed")
    return found.group(1), arguments


def value_in(text: str) -> "Tuple[Any, str]":
    """Return the value at the beginning of a text, and what follows."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        if text[end:].lstrip()[:1] in ("", ","):
            return value, text[end:].lstrip()
    except (ValueError, RecursionError):
        pass
    word, comma, rest = text.partition(",")
    return word.strip(), comma + rest


def python_of(study: "StudyRecord", command: "List[str]") -> "List[str]":
    """Return the Python that is asked: the one that the sweep names, or else the command's own."""
    named = [str(one) for one in study.get("sampler_python") or ()]
    if named:
        return named
    return command[:1] if command and PYTHON.match(command[0]) else DEFAULT_PYTHON


# -- the question -------------------------------------------------------------------------------


def question(
    study: "StudyRecord", configuration: int, trials: "Trials", results: "Results"
) -> "Record":
    """Return all that Optuna needs to know. Losses are told, which are to be small."""
    name, arguments = parsed(study["sampler"])
    losses = asking.vectors_of(study, results)
    known = [told(study, trials[one], one, losses) for one in sorted(trials)]
    return {
        "sampler": name,
        "arguments": arguments,
        "metrics": len(asking.goals_of(study)),
        "seed": sampler.rng_of(study["seed"], configuration).randrange(SEEDS),
        "space": [as_asked(one) for one in presence.in_order(space.learnt(study["space"]))],
        "trials": [one for one in known if one],
    }


def as_asked(parameter: "Parameter") -> "Record":
    """Return a parameter as Optuna is told of it: the values of a choice are texts, as it takes no
    lists. Each comes behind the choices that it depends on."""
    when = {name: as_texts(values) for name, values in (parameter.get("when") or {}).items()}
    if space.is_choice(parameter):
        choices = as_texts(parameter["values"])
        return {"name": parameter["name"], "when": when, "choices": choices}
    return {
        "name": parameter["name"],
        "when": when,
        "kind": parameter["kind"],
        "low": parameter["low"],
        "high": parameter["high"],
        "log": bool(parameter.get("log")),
        "step": None if parameter.get("log") else space.step_of(parameter),
    }


def as_texts(values: "List[Any]") -> "List[str]":
    return [json.dumps(one, sort_keys=True) for one in values]


def told(study: "StudyRecord", trial: "TrialRecord", number: int, losses: "Vectors") -> "Record":
    """Return a configuration as Optuna is told of it; nothing where it is not of the space."""
    try:
        space.point_of(study["space"], trial["values"])
    except space.NoSuchPoint:
        return {}
    values = space.chosen_in(study["space"], trial["values"])
    for one in space.learnt(study["space"]):
        if space.is_choice(one) and one["name"] in values:
            values[one["name"]] = json.dumps(values[one["name"]], sort_keys=True)
    state = "running"
    if number in losses:
        state = "failed" if losses[number] is None else "done"
    return {
        "values": values,
        "state": state,
        "losses": losses.get(number),
        "attrs": trial.get("attrs") or {},
    }


# -- the answer ---------------------------------------------------------------------------------


def chosen(study: "StudyRecord", configuration: int, answer: "Record") -> "TrialRecord":
    """Return the parameters that an answer has in it; raise NoAnswer where it has none, or others
    than the space."""
    name = parsed(study["sampler"])[0]
    if answer.get("problem"):
        raise NoAnswer(str(answer["problem"])[:LONGEST_TOLD])
    values, attrs = answer.get("values"), answer.get("attrs")
    if not isinstance(values, dict):
        raise NoAnswer("{} has answered nothing".format(name))
    found = {}  # type: Dict[str, Any]
    for one in presence.in_order(space.learnt(study["space"])):
        if not presence.holds(one, found):
            continue
        try:
            found[one["name"]] = value_of(one, values.get(one["name"]))
        except (ValueError, TypeError, OverflowError):
            message = "{} chose {} for {}, which is not of the space"
            raise NoAnswer(message.format(name, repr(values.get(one["name"]))[:100], one["name"]))
    record = {
        "values": space.complete(study["space"], found, configuration),
        "by": PREFIX + name,
    }  # type: TrialRecord
    if isinstance(attrs, dict) and attrs:
        record["attrs"] = attrs
    return record


def value_of(parameter: "Parameter", value: "Any") -> "Any":
    """Return a value as the sweep has it; raise ValueError where it is none of the parameter's."""
    if space.is_choice(parameter):
        return parameter["values"][space.place_of(json.loads(value), parameter["values"])]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(value)
    space.to_unit(parameter, value)
    step = space.step_of(parameter)
    if step and not parameter.get("log"):
        near = space.on_raster(parameter, value, step)
        if abs(near - value) > 1e-6 * step:
            raise ValueError(value)
        value = near
    value = min(max(value, parameter["low"]), parameter["high"])
    if parameter["kind"] == "int" and value != int(value):
        raise ValueError(value)
    return int(value) if parameter["kind"] == "int" else float(value)
