"""Asks Optuna: ``python -m dray_node ask-optuna``, in a Python that has it, and in a folder with
the question (see ``optuna_question``). The answer is written there.

The study is made anew in memory from what the trials have told, with what a sampler has noted on
them (CMA-ES keeps its state so). There is no database."""

import inspect
import json
import os
import sys

from .presence import holds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

QUESTION, ANSWER = "question.json", "answer.json"
MOST_ATTRIBUTES = 2 << 20  # bytes of what a sampler notes on a trial


def main() -> int:
    with open(QUESTION) as file:
        question = json.load(file)
    try:
        answer = ask(question)
    except ImportError as error:
        answer = {"problem": why_not_there(str(question["sampler"]), error)}
    except Exception as error:
        why = "{}: {}".format(type(error).__name__, error)
        answer = {"problem": "{} could not choose: {}".format(question["sampler"], why)}
    with open(ANSWER + ".new", "w") as file:
        json.dump(answer, file)
    os.rename(ANSWER + ".new", ANSWER)
    return 0


def why_not_there(sampler: str, error: ImportError) -> str:
    missing = getattr(error, "name", None) or str(error)
    if missing == "optuna":
        message = "{} is Optuna's, and {} has no Optuna: install it there, or name another Python"
        return message.format(sampler, sys.executable) + " (--sampler-python)"
    return "{} needs {}, which {} has not: {}".format(sampler, missing, sys.executable, error)


def ask(question: "Dict[str, Any]") -> "Dict[str, Any]":
    import optuna  # type: ignore[import-not-found]

    cls = getattr(optuna.samplers, question["sampler"], None)
    if not isinstance(cls, type) or not issubclass(cls, optuna.samplers.BaseSampler):
        message = "Optuna {} has no sampler {}"
        return {"problem": message.format(optuna.__version__, question["sampler"])}
    arguments = dict(question["arguments"])
    if "seed" in inspect.signature(cls).parameters:
        arguments["seed"] = question["seed"]
    wanted = {one["name"]: distribution(optuna, one) for one in question["space"]}
    directions = ["minimize"] * question["metrics"]
    study = optuna.create_study(sampler=cls(**arguments), directions=directions)
    study.add_trials([as_trial(optuna, one, wanted) for one in question["trials"]])
    trial = study.ask()
    values = {}  # type: Dict[str, Any]
    for one in question["space"]:
        if holds(one, values):
            values[one["name"]] = suggested(trial, one)
    frozen = study.get_trials(deepcopy=False)[-1]
    return {"values": values, "attrs": attributes(frozen.system_attrs)}


def distribution(optuna: "Any", asked: "Dict[str, Any]") -> "Any":
    kinds = optuna.distributions
    if "choices" in asked:
        return kinds.CategoricalDistribution(asked["choices"])
    own = {"low": asked["low"], "high": asked["high"], "log": asked["log"]}
    if asked["kind"] == "int":
        return kinds.IntDistribution(step=int(asked["step"] or 1), **own)
    return kinds.FloatDistribution(step=asked["step"], **own)


def suggested(trial: "Any", asked: "Dict[str, Any]") -> "Any":
    """Return the value that the sampler chooses for a parameter."""
    if "choices" in asked:
        return trial.suggest_categorical(asked["name"], asked["choices"])
    own = {"low": asked["low"], "high": asked["high"], "log": asked["log"]}
    if asked["kind"] == "int":
        return trial.suggest_int(asked["name"], step=int(asked["step"] or 1), **own)
    return trial.suggest_float(asked["name"], step=asked["step"], **own)


def as_trial(optuna: "Any", told: "Dict[str, Any]", wanted: "Dict[str, Any]") -> "Any":
    states = optuna.trial.TrialState
    state = {"done": states.COMPLETE, "failed": states.FAIL}.get(told["state"], states.RUNNING)
    return optuna.trial.create_trial(
        state=state,
        values=told["losses"],
        params=told["values"],
        distributions={name: wanted[name] for name in told["values"]},
        system_attrs=told["attrs"],
    )


def attributes(found: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return what the sampler has noted on its trial, as far as it can be written down."""
    kept, room = {}, MOST_ATTRIBUTES
    for name, value in found.items():
        try:
            text = json.dumps(value)
        except (TypeError, ValueError):
            continue
        room -= len(text)
        if room > 0:
            kept[name] = value
    return kept
