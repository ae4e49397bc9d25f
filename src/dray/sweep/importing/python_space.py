"""Reads search spaces that are made by Python: Isaac Lab's JobCfg classes, and dicts of ray.tune's.

Unlike all other importers this one executes the user's file, in a process of its own (``python
-I``): whoever calls it says so first. What comes back is plain data, and checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from dray.checks import Malformed
from dray.errors import ConfigError, UsageError, nearest
from dray.node.sweeps.filling import short_name
from dray.programs import calling
from dray.sweep import space
from dray.sweep.importing.found import Imported
from dray.sweep.study import Parameter, parameter_name, plain_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHILD = Path(__file__).with_name("python_child.py")
PATIENCE = 120.0  # seconds
LONGEST_ANSWER = 1 << 24
# The defaults of Isaac Lab's tuner.
ISAAC_SAMPLES, ISAAC_REPEATS, ISAAC_METRIC = 100, 3, "rewards/time"
ISAAC_COMMAND = ("./isaaclab.sh", "-p", "scripts/reinforcement_learning/rl_games/train.py")


def isaaclab(where: str, samples: int = ISAAC_SAMPLES, repeats: int = ISAAC_REPEATS) -> Imported:
    """Import a JobCfg class, named FILE.py:CLASS. ``samples`` counts repeats, as it does there."""
    path, name = divided(where)
    configurations = max(samples // repeats, 1)
    answer = asked(path, name, configurations)
    notes = [sample_note(samples, repeats)]
    parameters = parameters_of(path, answer, notes)
    for other, bases in answer.get("others", {}).items():
        notes += bystander_note(str(other), [str(base) for base in bases])
    settings = {
        "sweep.command": list(ISAAC_COMMAND),
        "sweep.trials": configurations,
        "sweep.repeats": repeats,
        "sweep.metric": ISAAC_METRIC,
        "sweep.mode": "max",
    }
    return Imported(where, parameters, settings, tuple(notes))


def ray(where: str, configurations: int) -> Imported:
    """Import a dict of ray.tune's domains, named FILE.py:NAME."""
    path, name = divided(where)
    answer = asked(path, name, configurations)
    notes: list[str] = []
    parameters = parameters_of(path, answer, notes)
    return Imported(where, parameters, {"sweep.trials": configurations}, tuple(notes))


def divided(where: str) -> tuple[Path, str]:
    path, _, name = where.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f"'{where}' names no class in a file: write FILE.py:NAME")
    if not Path(path).is_file():
        raise UsageError(f"{path}: there is no such file")
    return Path(path), name


def asked(path: Path, name: str, configurations: int) -> Mapping[str, Any]:
    """Have the child run the file, and return its answer."""
    argv = [sys.executable, "-I", str(CHILD), str(path), name, str(configurations)]
    ended = calling.ask(argv, patience=PATIENCE)
    try:
        answer = json.loads(ended.output[:LONGEST_ANSWER])
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or "error" in answer:
        said = answer["error"] if isinstance(answer, dict) else last_line(ended)
        raise ConfigError(f"{path}: it cannot be run here: {said}")
    if "names" in answer:
        names = [str(one) for one in answer["names"]]
        known = f"There is {', '.join(names)}." if names else "There is none in it."
        raise UsageError(f"{path}: no '{name}' in it.{nearest(name, names)}", hint=known)
    return answer


def last_line(ended: calling.Ended) -> str:
    lines = ended.errors.strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {ended.code}"


def parameters_of(path: Path, answer: Mapping[str, Any], notes: list[str]) -> tuple[Parameter, ...]:
    found = []
    for one in answer["parameters"]:
        try:
            found.append(parameter_of(one, notes))
        except (Malformed, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: {one.get('key')}: {error}") from None
    try:
        return space.whole(found)
    except space.SpaceError as error:
        raise ConfigError(f"{path}: {error.name}: {error}") from None


def parameter_of(told: Mapping[str, Any], notes: list[str]) -> Parameter:
    name, kind = parameter_name(told["key"]), told["kind"]
    if kind == "unreadable":
        raise Malformed(f"its function fails without the libraries that it needs: {told['why']}")
    if kind == "normal":
        raise Malformed("a normal distribution has no counterpart: give it a low and a high end")
    record = {**told, "name": name, "emit": emission(told["part"], name)}
    if kind == "choice" and len(told["values"]) == 1:
        record.update(kind="fixed", value=told["values"][0])
    if kind == "table":
        record["of"] = [key for _, key in told["of"]]
        record = constant_table(record, notes)
    if kind == "drawn":
        notes.append(drawn_note(name, [key for _, key in told["of"]], len(told["values"])))
    if kind in ("float", "int"):
        record = whole_range(record, notes)
    return Parameter.from_dict(record)


def constant_table(record: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return a fixed value where all rows have the same, and say so."""
    values = [plain_value(own) for _, own in record["rows"]]
    if any(one != values[0] for one in values):
        return record
    of = ", ".join(map(short_name, record["of"]))
    notes.append(
        f"{record['name']} is computed from {of}, but is {values[0]} in all {len(values)} cases"
    )
    return {**record, "kind": "fixed", "value": values[0]}


def whole_range(record: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    step = record.get("step", 1 if record["kind"] == "int" else None)
    if record.get("log") and step not in (None, 1):
        notes.append(f"{record['name']} is logarithmic: its steps of {step} are left out")
        step = 1 if record["kind"] == "int" else None
    if record["low"] == record["high"]:
        notes.append(f"{record['name']} can only be {record['low']}")
    return {**record, "step": step}


def emission(part: str, name: str) -> str:
    """Return how Isaac Lab puts an argument into the command."""
    if part == "hydra_args":
        return "assignment"
    if part == "runner_args":
        is_flag = name.startswith("-") and not name.endswith("_singleton")
        return "flag" if is_flag else "value"
    return "flag" if name.startswith("-") else "assignment"


# -- notes --------------------------------------------------------------------------------------


def sample_note(samples: int, repeats: int) -> str:
    rest = samples % repeats
    left = f"; the {rest} left over would not count there either" if rest else ""
    return (
        f"num_samples = {samples} counts repeats there: {samples // repeats} configurations, "
        f"{repeats} runs of each{left}"
    )


def drawn_note(name: str, of: list[str], number: int) -> str:
    why = f"depends on {', '.join(map(short_name, of))}" if of else "is drawn anew each time"
    return f"{name} {why}: {number} values were drawn here, one for each configuration; not learnt"


def bystander_note(name: str, bases: list[str]) -> list[str]:
    if any(base.endswith("Stopper") for base in bases):
        return [f"{name} is not used: say in stop_if when a trial is to end"]
    if any(base.endswith("Reporter") for base in bases):
        return [f"{name} is not used: dray sweep status shows trials, dray show a trial's metrics"]
    return []
