"""What of a sweep is refused before anything is submitted. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dray.errors import Refused, UsageError, nearest
from dray.job.model import JobSpec
from dray.job.quantities import show_count
from dray.node.metrics.sources import NAMELESS, name_in_log
from dray.node.sweeps import mlflow, optuna_question, population, sampler
from dray.node.sweeps.asking import LEARNING
from dray.node.sweeps.expressions import Condition, NotAnExpression
from dray.node.sweeps.filling import names_in as names_in_words
from dray.node.sweeps.stopping import EVEN as PBT
from dray.node.sweeps.study import MOST_OBJECTIVES
from dray.sweep.options import USUAL_TRIALS
from dray.sweep.space import records_of
from dray.sweep.study import LEARNT, MOST_TRIALS, Study


def require_sound(study: Study) -> None:
    """Refuse what could only go wrong on a node."""
    for text in study.stop_if:
        try:
            Condition(text)
        except NotAnExpression as error:
            raise UsageError(f"--stop-if: {error}") from error
    if study.stop and not study.stop.first and not study.stop.total:
        raise UsageError(
            f"--stop {study.stop.rule} needs to know when trials are compared",
            hint="Name the steps of a whole training: --stop-total 1500, or the first look: "
            "--stop-first 100",
        )
    if study.stop and study.stop.rule == PBT:
        require_population(study)
    if study.stop and study.stop.first and study.stop.total:
        require_comparison(study.stop.first, study.stop.total)


def require_readable(study: Study) -> None:
    """Refuse a sweep that could be submitted, and then neither looked at nor stopped: what is read
    back is checked."""
    try:
        Study.from_dict(json.loads(json.dumps(study.to_dict())))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"this sweep could not be read again once it is submitted: {error}",
            hint="Change what is named here, in its file or among the flags.",
        ) from None


def require_objectives(study: Study, pattern: str | None) -> None:
    """Refuse several metrics where only one can be compared, or read."""
    names = [one.metric for one in study.objectives]
    if not names:
        return
    both = f"{len(names)} metrics"
    if len(set(names)) < len(names) or len(names) > MOST_OBJECTIVES:
        raise UsageError(f"--metric: name each metric once, and {MOST_OBJECTIVES} at most")
    if study.stop:
        raise UsageError(
            f"--stop {study.stop.rule} compares trials by one metric, and there are {both}",
            hint="Leave out --stop, or name one metric; --stop-if can watch the others.",
        )
    if pattern:
        raise UsageError(f"metrics.pattern reads one metric from the log, and there are {both}")
    own = study.sampler.partition(":")[2].partition(",")[0]
    if study.sampler == LEARNING or own in optuna_question.ONE_METRIC:
        raise UsageError(
            f"{study.sampler} learns from one metric, and there are {both}",
            hint="Use a sampler of Optuna's that knows of several: --sampler optuna:TPESampler, "
            "NSGAIISampler, GPSampler; or one that learns nothing: quasi, random, grid.",
        )


def require_python(study: Study, command: Sequence[str]) -> None:
    """Refuse a Python that cannot be there when the sampler is asked."""
    if not optuna_question.is_optuna(study.sampler):
        if study.sampler_python:
            raise UsageError("--sampler-python goes with --sampler optuna:NAME")
        return
    record: Any = {"sampler_python": study.sampler_python}
    first = optuna_question.python_of(record, list(command))[0]
    if "/" in first and not first.startswith("/"):
        raise UsageError(
            f"{study.sampler} is asked before the project's code is unpacked: there is no {first}",
            hint="Name a Python of the cluster, or of the image: --sampler-python "
            "/opt/conda/bin/python",
        )


def notes_on_sampler(study: Study) -> list[str]:
    """Say so where Optuna may have no such sampler: only the node knows which Optuna is there."""
    own = study.sampler.partition(":")[2].partition(",")[0]
    if not own or own in optuna_question.KNOWN:
        return []
    known = ", ".join(optuna_question.KNOWN)
    guess = nearest(own, optuna_question.KNOWN)
    unless = "trials fail unless the Optuna there has a sampler of that name"
    return [f"{study.sampler}: {unless}; dray knows {known}.{guess}"]


def require_private(study: Study, secrets: Sequence[str]) -> None:
    """Refuse to send credentials to an MLflow server in the clear."""
    if study.experiment and not study.mlflow:
        raise UsageError("--mlflow-experiment goes with --mlflow URI")
    wanted = [one for one in (mlflow.TOKEN, mlflow.PASSWORD) if one in secrets]
    given = dict.fromkeys([*wanted, mlflow.USER], "x")
    if study.mlflow and mlflow.Connection(study.mlflow, given, 1.0).is_exposed():
        raise Refused(
            f"{study.mlflow} is not encrypted, and {wanted[0]} would go to it in the clear",
            hint="Use https://, or leave out the secret.",
        )


def require_population(study: Study) -> None:
    """Refuse a population in which nothing could be taken over, or changed."""
    if optuna_question.is_optuna(study.sampler):
        raise UsageError(
            f"--stop pbt begins with values that are spread evenly, and asks no {study.sampler}",
            hint="Leave out --sampler.",
        )
    if study.repeats > 1:
        raise UsageError("--stop pbt has no repeats: each trial goes a way of its own")
    wanted = study.stop.change if study.stop else ()
    names = {one.name for one in study.space if one.kind in LEARNT}
    for one in wanted:
        if one not in names:
            raise UsageError(
                f"--stop-change {one}: no parameter that is chosen has that name",
                hint=f"There is {', '.join(sorted(names))}.",
            )
    if not wanted and not any(one.kind == "float" for one in study.space):
        raise UsageError(
            "--stop pbt would change nothing: no parameter is a floating-point number",
            hint="Say which ones can change while a training goes on: --stop-change NAME",
        )


def require_enough(study: Study, trials: int) -> None:
    """Refuse a population in which no quarter is anybody."""
    if study.stop and study.stop.rule == PBT and trials < population.FEWEST:
        raise UsageError(
            f"--stop pbt takes over from the best quarter of at least {population.FEWEST} trials, "
            f"and there {'is' if trials == 1 else 'are'} {trials}",
            hint=f"Write --trials {population.FEWEST} or more, all of them side by side.",
        )


def notes_on_population(study: Study, at_once: int | None) -> list[str]:
    """Say so where too few trials run side by side for one to take over from another."""
    if not study.stop or study.stop.rule != PBT or not at_once or at_once >= population.FEWEST:
        return []
    few = f"--stop pbt compares {population.FEWEST} trials at least, and --at-once {at_once} runs"
    return [f"{few} fewer side by side: hardly one will take over from another"]


def require_resumable(job: JobSpec) -> None:
    if not job.resume.checkpoint:
        raise UsageError(
            "--stop pbt goes on from checkpoints, and it is not known what they are",
            hint="Say so: --checkpoint 'logs/**/model_*.pt', or --recipe NAME",
        )
    if job.resume.anew:
        raise Refused(
            "--stop pbt needs a trainer that counts on from a checkpoint's step, and this one "
            "begins to count anew"
        )


def require_comparison(first: int, total: int) -> None:
    if first >= total:
        raise UsageError(
            f"trials would never be compared: the first time at step {first}, and a training has "
            f"{show_count(total, 'step')}",
            hint="--stop-first has to be smaller than --stop-total.",
        )


def notes_on_repeats(study: Study, command: Sequence[str]) -> list[str]:
    """Say so where nothing in the command differs from one repeat to the next."""
    if study.repeats < 2 or {"seed", "repeat", "trial"} & names_in_words(command):
        return []
    missing = f"{study.repeats} repeats, and neither {{seed}} nor {{repeat}} in the command"
    unless = "unless it reads DRAY_SEED from its environment"
    return [f"{missing}: {unless}, all repeats of a configuration are the same"]


def require_metric(study: Study, pattern: str | None) -> None:
    """Refuse a metric that is not what is read: with a pattern there is one metric alone, and all
    trials would be ranked by that one, under another one's name. A pattern without a word before
    its value may be any."""
    read = name_in_log(pattern) if pattern else NAMELESS
    if not study.metric or read == NAMELESS or read.lower() in study.metric.lower():
        return
    raise UsageError(
        f"the metric {study.metric} is not what metrics.pattern reads from the log, '{pattern}': "
        "values that the trainer reports, and TensorBoard's, are not looked at beside a pattern",
        hint=f"Name what it reads: --metric {read}. Or change the pattern (--metric-pattern), or "
        "take it out of [job.metrics].",
    )


def notes_on_metric(study: Study, pattern: str | None) -> list[str]:
    """Say so where a condition can never hold: with a pattern there is one metric, whatever it is
    called."""
    if not pattern:
        return []
    named = study.metric or name_in_log(pattern)
    others = [one for one in map(Condition, study.stop_if) if one.name not in ("", named)]
    return [
        f"--stop-if '{one.text}' never holds: metrics.pattern reads {named} from the log, and "
        f"nothing tells {one.name}"
        for one in others
    ]


def number_of(study: Study, asked: int | None) -> int:
    """Return how many configurations there are to be: of a grid, all, where nobody says."""
    number = asked or USUAL_TRIALS if study.sampler != "grid" else number_on_grid(study, asked)
    fewer = ", with fewer --repeats" if study.repeats > 1 else ""
    hint = f"Say how many configurations are tried: --trials N{fewer}"
    require_room(number * study.repeats, hint)
    return number


def require_room(trials: int, hint: str = "Add fewer, or start another sweep.") -> None:
    """Refuse more trials than can be read back."""
    if trials > MOST_TRIALS:
        raise UsageError(
            f"a sweep has at most {MOST_TRIALS:,} trials, and these would be {trials:,}", hint=hint
        )


def number_on_grid(study: Study, asked: int | None) -> int:
    try:
        most = sampler.grid_size(records_of(study.space))
    except ValueError as error:
        hint = "Name its values (1e-4,1e-3), give it a step (0..1:float:step=0.1), or use quasi."
        raise UsageError(str(error), hint=hint) from error
    if asked and asked > most:
        raise UsageError(f"the grid has {show_count(most, 'point')}, and {asked} are asked for")
    return asked or most
