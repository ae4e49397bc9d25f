"""Reads a sweep of Weights & Biases: its YAML file, nothing else, and nobody is asked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from dray import checks
from dray.config import yaml_subset
from dray.config.migration.found import Text
from dray.errors import ConfigError, nearest
from dray.sweep import space
from dray.sweep.importing.found import Imported
from dray.sweep.options import USUAL_TRIALS
from dray.sweep.study import RESERVED, Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

METHODS = {"grid": "grid", "random": "random", "bayes": "tpe"}
GOALS = {"minimize": "min", "maximize": "max"}
MOST_ETA = 1000  # of hyperband, whose usual one is 3
MOST_BRACKETS = 64
USUAL_COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
# How W&B writes all parameters, by the macro that stands for them.
WORDS = {
    "${args}": "--{plain}={{{name}}}",
    "${args_no_boolean_flags}": "--{plain}={{{name}}}",
    "${args_no_hyphens}": "{plain}={{{name}}}",
}
DROPPED = ("project", "entity", "description", "controller", "job", "image_uri")
KNOWN = ["method", "metric", "parameters", "program", "name", "command", "early_terminate"]
KNOWN += ["run_cap", *DROPPED]


def recognises(text: Text) -> bool:
    """Tell whether this is such a file, by its content."""
    found = re.findall(r"^(method|parameters|metric|program)\s*:", text.content, re.M)
    return {"method", "parameters"} <= {*found}


def read(text: Text) -> Imported:
    return Reader(text).read()


class Reader:
    def __init__(self, text: Text) -> None:
        self.text = text
        self.yaml = yaml_subset.read(text)
        self.notes: list[str] = []
        self.settings: dict[str, Any] = {}

    def read(self) -> Imported:
        content = self.table((), self.yaml.content)
        for key in content:
            if key not in KNOWN:
                raise self.error((key,), f"unknown key '{key}'.{nearest(key, KNOWN)}")
        self.notes += [f"{key} is left out: it is W&B's own" for key in DROPPED if key in content]
        parameters = self.parameters(("parameters",), content.get("parameters"), "")
        try:
            whole = space.whole(parameters)
        except space.SpaceError as error:
            raise self.error(("parameters",), str(error)) from None
        self.settings["sweep.command"] = self.command(content, parameters)
        if "name" in content:
            self.settings |= self.named(str(content["name"]))
        self.method(content)
        self.metric(content)
        self.early(content)
        return Imported(self.text.path, whole, self.settings, tuple(self.notes))

    # -- the sweep ------------------------------------------------------------------------------

    def named(self, name: str) -> dict[str, str]:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
        return {"sweep.name": plain} if plain else {}

    def method(self, content: Mapping[str, Any]) -> None:
        method = self.one_of(content, "method", METHODS)
        self.settings["sweep.sampler"] = method
        if content.get("method") == "bayes":
            self.notes.append("method bayes, a Gaussian process there, becomes tpe")
        if "run_cap" in content:
            self.settings["sweep.trials"] = self.count(("run_cap",), content["run_cap"])
        elif method != "grid":
            self.settings["sweep.trials"] = USUAL_TRIALS
            self.notes.append(f"no run_cap: W&B would go on without end; trials = {USUAL_TRIALS}")

    def metric(self, content: Mapping[str, Any]) -> None:
        metric = self.table(("metric",), content.get("metric", {}))
        if "name" in metric:
            self.settings["sweep.metric"] = str(metric["name"])
        if metric:  # a grid or a random search there may do without
            self.settings["sweep.mode"] = self.one_of(
                {"goal": "minimize", **metric}, "goal", GOALS, ("metric",)
            )
        if "target" in metric:
            self.notes.append("metric.target is left out: a sweep ends after its trials")

    def early(self, content: Mapping[str, Any]) -> None:
        """Turn W&B's hyperband into asha: both keep the best share of trials at each bracket."""
        if "early_terminate" not in content:
            return
        where = ("early_terminate",)
        table = self.table(where, content["early_terminate"])
        if table.get("type") != "hyperband":
            raise self.error((*where, "type"), f"{table.get('type')!r}: only hyperband is known")
        eta = self.count((*where, "eta"), table.get("eta", 3), MOST_ETA)
        stop: dict[str, Any] = {"rule": "asha", "factor": eta}
        if "min_iter" in table:
            stop["first"] = self.count((*where, "min_iter"), table["min_iter"])
        elif "max_iter" in table:
            most = self.count((*where, "max_iter"), table["max_iter"])
            stop["total"] = most
            brackets = self.count((*where, "s"), table.get("s", 1), MOST_BRACKETS)
            stop["first"] = max(most // eta**brackets, 1)
        self.settings["sweep.stop"] = stop
        self.notes.append("early_terminate: W&B counts calls of log(), dray steps of the metric")

    def command(self, content: Mapping[str, Any], parameters: list[Parameter]) -> list[str]:
        """Return the command, with a word for each parameter where W&B would put them."""
        words = content.get("command", USUAL_COMMAND)
        if not isinstance(words, list):
            raise self.error(("command",), "must be a list of words")
        found: list[str] = []
        for at, word in enumerate(map(str, words)):
            if word in WORDS:
                found += [
                    WORDS[word].format(name=one.name, plain=one.name.lstrip("-"))
                    for one in parameters
                ]
            elif word == "${program}":
                found.append(self.program(content))
            elif word == "${interpreter}":
                found.append("python")
            elif word.startswith("${") and word != "${env}":
                raise self.error(("command", at), f"{word} has no counterpart")
            elif word != "${env}":
                found.append(word.replace("{", "{{").replace("}", "}}"))
        if "${args_no_boolean_flags}" in words:
            self.notes.append("${args_no_boolean_flags}: true and false are written out here")
        return found

    def program(self, content: Mapping[str, Any]) -> str:
        if not isinstance(content.get("program"), str):
            raise self.error(("program",), "the program is not named")
        return str(content["program"])

    # -- parameters -----------------------------------------------------------------------------

    def parameters(self, path: yaml_subset.Path, content: Any, before: str) -> list[Parameter]:
        found: list[Parameter] = []
        for name, one in self.table(path, content).items():
            here = (*path, name)
            table = self.table(here, one)
            if "parameters" in table:
                self.notes.append(f"{before}{name} is nested: its parameters are named with dots")
                found += self.parameters(
                    (*here, "parameters"), table["parameters"], f"{before}{name}."
                )
                continue
            full = f"{before}{name}"
            if full in RESERVED:  # {seed} in a command is dray's own number
                full = f"--{full}"
            try:
                found.append(space.from_table(full, self.converted(here, table)))
            except space.SpaceError as error:
                raise self.error(here, str(error)) from None
            except OverflowError:
                raise self.error(here, "its ends are out of all bounds") from None
        return found

    def converted(self, path: yaml_subset.Path, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameter as [sweep.space] would have it."""
        if "probabilities" in table:
            self.notes.append(f"{path[-1]}: probabilities are left out")
        if "values" in table:
            return {"choice": table["values"]}
        if "value" in table:
            return {"fixed": table["value"]}
        kind = str(table.get("distribution", self.usual(table)))
        if kind not in DISTRIBUTIONS:
            raise self.error(
                (*path, "distribution"),
                f"{kind} has no counterpart: there is {', '.join(DISTRIBUTIONS)}",
            )
        ends = [self.number((*path, key), table.get(key)) for key in ("min", "max")]
        found = DISTRIBUTIONS[kind](ends)
        if kind.startswith("q_"):
            self.step(path, table, found)
        return found

    def step(self, path: yaml_subset.Path, table: Mapping[str, Any], found: dict[str, Any]) -> None:
        step = self.number((*path, "q"), table.get("q", 1))
        if "log" in found:
            self.notes.append(f"{path[-1]} is logarithmic: its steps of {step:g} are left out")
        else:
            found["step"] = step

    def usual(self, table: Mapping[str, Any]) -> str:
        whole = all(isinstance(table.get(key), int) for key in ("min", "max"))
        return "int_uniform" if whole else "uniform"

    # -- checks ---------------------------------------------------------------------------------

    def number(self, path: yaml_subset.Path, value: Any) -> float:
        """Read a number; PyYAML takes 1e-5 for a text."""
        if isinstance(value, str) and yaml_subset.FLOAT.fullmatch(value):
            return float(value)
        if not space.is_number(value):
            missing = value is None
            raise self.error(
                path, f"{path[-1]} is missing" if missing else f"{space.shown(value)} is no number"
            )
        return value  # type: ignore[no-any-return]

    def count(self, path: yaml_subset.Path, value: Any, most: int = checks.MOST_COUNT) -> int:
        try:
            return checks.integer(value, 1, most)
        except checks.Malformed as error:
            raise self.error(path, str(error)) from None

    def one_of(
        self,
        table: Mapping[str, Any],
        key: str,
        known: Mapping[str, str],
        path: yaml_subset.Path = (),
    ) -> str:
        value = str(table.get(key, ""))
        if value not in known:
            raise self.error((*path, key), f"'{value}' is none of {', '.join(known)}")
        return known[value]

    def table(self, path: yaml_subset.Path, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.error(path, "must be a table of names")
        return value

    def error(self, path: yaml_subset.Path, message: str) -> ConfigError:
        known = next(path[:end] for end in range(len(path), -1, -1) if self.has_line(path[:end]))
        name = ".".join(map(str, path))
        return self.text.error(self.yaml.lines.get(known, 1), f"{name}: {message}")

    def has_line(self, path: yaml_subset.Path) -> bool:
        return not path or path in self.yaml.lines


def logarithmic(ends: list[float]) -> dict[str, Any]:
    return {"log": ends}


DISTRIBUTIONS: Mapping[str, Callable[[list[float]], dict[str, Any]]] = {
    "uniform": lambda ends: {"float": ends},
    "int_uniform": lambda ends: {"int": ends},
    "q_uniform": lambda ends: {"float": ends},
    "log_uniform_values": logarithmic,
    "q_log_uniform_values": logarithmic,
    # The ends of these two are natural logarithms.
    "log_uniform": lambda ends: logarithmic([math.exp(one) for one in ends]),
    "q_log_uniform": lambda ends: logarithmic([math.exp(one) for one in ends]),
}
