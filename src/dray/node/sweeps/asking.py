"""Chooses the parameters of a configuration from what all trials of the sweep have told. Pure.

Losses are compared: a value where the metric is to be small, else minus the value. Repeats of a
configuration count as one, by their mean. Failed trials are told as such, as bad points; so is a
configuration of which one repeat has failed, since what does not last is not good. Where
trials are ended early, the last values of such ones and of full trainings cannot be compared: what
is told then are the values at the highest rung that enough have reached, and one configuration in
five is chosen without the model, as it has seen little of what does well only later."""

import math
import re

from ..formats import shapes
from . import sampler, stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import ResultRecord, StudyRecord, TrialRecord

    Trials = Dict[int, TrialRecord]  # by configuration
    Results = Dict[int, ResultRecord]  # by trial
    Losses = Dict[int, Optional[float]]  # by configuration; None: failed
    Vectors = Dict[int, Optional[List[float]]]  # the same, with a loss for each metric

STEP = re.compile(r"[0-9]{1,18}$")
ENOUGH = 10  # values at a rung, from which on the model learns from it
WITHOUT_MODEL = 0.2  # of the configurations, where trials are ended early
LEARNING = "tpe"
BLIND = ("random", "grid", "quasi")  # samplers that need to know nothing of other trials


class NoSuchSampler(ValueError):
    """The sweep names a sampler that is not there."""


def choose(
    study: "StudyRecord", configuration: int, trials: "Trials", results: "Results"
) -> "TrialRecord":
    """Return the parameters of a configuration, and by which sampler they were chosen."""
    space, seed, name = study["space"], study["seed"], study.get("sampler") or LEARNING
    if name == "grid":
        return {"values": sampler.on_grid(space, configuration), "by": name}
    if name == "random":
        return {"values": sampler.at_random(space, seed, configuration), "by": name}
    if name == "quasi":
        return {"values": sampler.spread_evenly(space, seed, configuration), "by": name}
    if name != LEARNING:
        raise NoSuchSampler("the sampler {} is not there".format(name))
    losses = losses_of(study, results)
    # In a population, a trial's parameters are not those that it began with.
    is_population = (study.get("stop") or {}).get("rule") == stopping.EVEN
    if is_population or is_start_up(losses, trials) or explores(study, configuration):
        return {"values": sampler.spread_evenly(space, seed, configuration), "by": "start-up"}
    told = [(trials[one]["values"], losses[one]) for one in sorted(losses) if one in trials]
    running = [trials[one]["values"] for one in sorted(trials) if one not in losses]
    return {"values": sampler.suggest(space, seed, configuration, told, running), "by": name}


def is_start_up(losses: "Losses", trials: "Trials") -> bool:
    return sum(1 for one in losses if one in trials) < sampler.START_UP


def explores(study: "StudyRecord", configuration: int) -> bool:
    """Return whether this is one of the configurations that are chosen without the model."""
    if not study.get("stop"):
        return False
    return sampler.rng_of(study["seed"], -1 - configuration).random() < WITHOUT_MODEL


def goals_of(study: "StudyRecord") -> "List[Tuple[str, str]]":
    """Return the metrics of a sweep, each with its mode. A single one may have no name: ''."""
    several = [(one["metric"], one["mode"]) for one in study.get("objectives") or ()]
    return several or [(study.get("metric") or "", study.get("mode") or "max")]


def names_of(study: "StudyRecord") -> "List[str]":
    """Return the metrics that a sweep names."""
    return [name for name, _ in goals_of(study) if name]


def vectors_of(study: "StudyRecord", results: "Results") -> "Vectors":
    """Return the losses that can be compared, one for each metric. A configuration of which a
    metric was not seen, or is not a number, counts as failed."""
    if not study.get("objectives"):
        losses = losses_of(study, results)
        return {one: None if loss is None else [loss] for one, loss in losses.items()}
    each = []  # type: List[Losses]
    for at, (_, mode) in enumerate(goals_of(study)):
        by_this = {number: dict(one, value=value_at(one, at)) for number, one in results.items()}
        each.append(losses_of(dict(study, mode=mode), by_this))  # type: ignore[arg-type]
    found = {}  # type: Vectors
    for configuration in {one for losses in each for one in losses}:
        vector = [loss for loss in (one.get(configuration) for one in each) if loss is not None]
        found[configuration] = vector if len(vector) == len(each) else None
    return found


def value_at(result: "ResultRecord", at: int) -> "Any":
    """Return what a trial has told of one of several metrics."""
    told = result.get("objectives") or []
    return told[at] if at < len(told) else None


def losses_of(study: "StudyRecord", results: "Results") -> "Losses":
    """Return the losses that can be compared. A failed repeat is that of its configuration."""
    losses = means_by_configuration(study, comparable(study, results))
    for number, one in results.items():
        if one["state"] == "failed":
            losses[number // study["repeats"]] = None
    return losses


def comparable(study: "StudyRecord", results: "Results") -> "Dict[int, float]":
    """Return the values that can be compared, by trial: at the end, or at one rung."""
    ended = {number: one for number, one in results.items() if one["state"] == "done"}
    if not study.get("stop"):
        ended.update((number, one) for number, one in results.items() if one["state"] == "pruned")
    at_end = {number: value_of(one) for number, one in ended.items()}
    whole = {number: value for number, value in at_end.items() if value is not None}
    if not study.get("stop") or len(whole) >= ENOUGH:
        return whole
    rungs = values_by_rung(results)
    enough = [step for step in rungs if len(rungs[step]) >= ENOUGH]
    return rungs[max(enough)] if enough else {}


def values_by_rung(results: "Results") -> "Dict[int, Dict[int, float]]":
    found = {}  # type: Dict[int, Dict[int, float]]
    for number, one in results.items():
        for step, value in rungs_of(one).items():
            found.setdefault(step, {})[number] = value
    return found


def rungs_of(result: "ResultRecord") -> "Dict[int, float]":
    """Return the values of a trial where trials are compared, by step; null is not a number."""
    found = {}
    for step, value in (result.get("rungs") or {}).items():
        if STEP.match(step) and (value is None or isinstance(value, (int, float))):
            found[int(step)] = math.nan if value is None else float(value)
    return found


def value_of(result: "ResultRecord") -> "Optional[float]":
    """Return a trial's value; None where it has told none. "nan" is a value, too: the worst."""
    value = result.get("value")  # type: Any
    if isinstance(value, str):
        return math.nan
    return float(value) if isinstance(value, float) or shapes.is_number(value) else None


def means_by_configuration(study: "StudyRecord", values: "Dict[int, float]") -> "Losses":
    """Return the mean loss of each configuration's repeats; None where one is not a number."""
    found = {}  # type: Dict[int, List[float]]
    for number, value in values.items():
        found.setdefault(number // study["repeats"], []).append(value)
    means = {one: sum(values) / len(values) for one, values in found.items()}
    sign = -1.0 if study.get("mode") == "max" else 1.0
    return {one: sign * mean if math.isfinite(mean) else None for one, mean in means.items()}


def failures(results: "Results") -> int:
    return sum(1 for one in results.values() if one["state"] == "failed")
