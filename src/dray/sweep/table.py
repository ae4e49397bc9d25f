"""How a sweep stands, as rows for ``status`` and ``best``: pure functions of study and trials.

Repeats of a configuration are one row: their mean, ± their spread. What is best is judged on
trainings that went to their end; what a table leaves out is said below it.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dray.job.quantities import show_count, show_duration
from dray.node.sweeps.expressions import Condition, NotAnExpression
from dray.node.sweeps.filling import names_of, short_name
from dray.node.sweeps.stopping import EVEN as PBT
from dray.records import NamedTuple
from dray.sweep.objectives import Losses, fronts
from dray.sweep.space import records_of
from dray.sweep.study import LEARNT, Study, Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ORDER = ("done", "running", "pruned", "stopped", "failed", "queued")
STATES_TOLD = ("done", "running", "queued", "pruned", "failed", "stopped")
WIDTH = 80
GAP = 2
LONGEST_CELL = 18
USUAL_ROWS = 20
NO_METRICS = (
    "no metric at all was seen: dray reads TensorBoard's files, what dray.training.report is "
    "given, and the log with --metric-pattern"
)
NO_REASON = "no reason is known"
USUAL_BEST = 5
MOST_NAMES = 8  # of metrics, in a line


class Configuration(NamedTuple):
    """The trials with the same values: one, or several repeats."""

    number: int
    trials: tuple[Trial, ...]
    repeats: int = 1  # how many there are to be

    @property
    def values(self) -> Mapping[str, Any]:
        """What was chosen; empty where no repeat has begun."""
        return next((one.values for one in self.trials if one.values), {})

    def by_metric(self, study: Study) -> list[Configuration]:
        """Return it once for each metric of the sweep, as if that were the only one."""
        if not study.objectives:
            return [self]
        each = [[one.by_metric(at) for one in self.trials] for at in range(len(study.goals))]
        return [self._replace(trials=tuple(one)) for one in each]

    def losses(self, study: Study) -> Losses:
        """Return what it is ranked by, for each metric."""
        own = zip(study.goals, self.by_metric(study), strict=True)
        return tuple(goal.loss(one.mean) for goal, one in own)

    @property
    def counting(self) -> tuple[Trial, ...]:
        """The repeats whose values count: all but those that have failed, unless all have."""
        sound = tuple(one for one in self.trials if one.state != "failed")
        return sound or self.trials

    @property
    def measured(self) -> tuple[float, ...]:
        """The values that count."""
        return tuple(one.value for one in self.counting if one.value is not None)

    @property
    def mean(self) -> float | None:
        return mean_of(self.measured) if self.measured else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over repeats; None where there are not two values, or no float
        can hold it."""
        values = self.measured
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return None
        try:
            return statistics.stdev(values)
        except OverflowError:  # more than a float can hold
            return None

    @property
    def step(self) -> int | None:
        """How far the shortest of those that count has come."""
        steps = [one.step for one in self.counting if one.value is not None]
        return min((one for one in steps if one is not None), default=None)

    @property
    def is_full(self) -> bool:
        """Whether it can be judged: all repeats were trained to their end, none has failed or was
        cut short, and there is a value."""
        is_done = all(one.state == "done" for one in self.trials)
        return is_done and bool(self.measured) and len(self.trials) >= self.repeats

    @property
    def state(self) -> str:
        """The state of all repeats, or of the one that says most of what is still to come."""
        states = {one.state for one in self.trials}
        if len(self.trials) < self.repeats:
            states.add("queued")
        if len(states) == 1:
            return states.pop()
        if states & {"running", "queued"}:
            return "running"
        return next(state for state in ("pruned", "stopped", "failed") if state in states)


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of values, which may be as large as a float can be."""
    try:
        return statistics.fmean(values)
    except (OverflowError, ValueError):  # their sum is too large, or none: inf and -inf
        return sum(one / len(values) for one in values)


class Table(NamedTuple):
    """What a person is shown: lines above, the table, and what it does not show."""

    above: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: tuple[str, ...]
    state_column: int = -1


def configurations(study: Study, trials: Iterable[Trial]) -> list[Configuration]:
    """Put the repeats of each configuration together, in the order of their numbers."""
    found: dict[int, list[Trial]] = {}
    for one in sorted(trials, key=lambda trial: trial.number):
        found.setdefault(one.configuration, []).append(one)
    return [Configuration(number, tuple(of), study.repeats) for number, of in found.items()]


# -- the two tables -----------------------------------------------------------------------------


def status(
    study: Study,
    trials: Sequence[Trial],
    width: int = WIDTH,
    most: int = USUAL_ROWS,
    names: Sequence[str] = (),
) -> Table:
    """Show how the sweep stands: the best first, then what runs, then what was cut short; where
    ``names`` has metrics or parameters, with a column for each of these alone."""
    every = configurations(study, trials)
    begun = [one for one in every if one.state != "queued"]
    places = fronts_of(study, every)
    ordered = sorted(begun, key=lambda one: standing(study, one, places))
    shown = ordered[:most]
    below = [*left_out(ordered[most:], "--all shows them"), *without_value(study, trials)]
    below += [*never_seen(study, trials), *never_begun(trials), *conditions_met(trials)]
    above = [headline(study), summary(study, trials), *by_cluster(trials)]
    wanted = {name: parameter_called(study, trials, name) for name in names}
    below += [
        f"no trial has told '{name}'{reported(trials)}"
        for name, parameter in wanted.items()
        if not parameter and not any(name in one.levels for one in trials)
    ]
    columns = named(wanted, shown) if names else chosen(displayed(study), shown)
    return drawn_up(study, shown, width, above, below, columns)


def conditions_met(trials: Iterable[Trial]) -> list[str]:
    """Say how many trials each condition has ended."""
    told = [
        one.reason.rpartition(" (step ")[0] or one.reason for one in trials if one.met_condition
    ]
    return [f"{number} pruned by {reason}" for reason, number in Counter(told).most_common()]


def never_begun(trials: Sequence[Trial]) -> list[str]:
    """Say why trials have failed that have not even got their parameters."""
    reasons = [one.reason for one in trials if one.state == "failed" and not one.values]
    if not reasons:
        return []
    often = max(reasons, key=reasons.count)
    return [f"{show_count(len(reasons), 'trial')} failed without parameters: {often}"]


def failures(trials: Iterable[Trial]) -> list[tuple[str, int]]:
    """Return the reasons of those that have failed, and how many have each, the commonest first."""
    reasons = Counter(one.reason or NO_REASON for one in trials if one.state == "failed")
    return reasons.most_common()


def best(
    study: Study, trials: Sequence[Trial], width: int = WIDTH, most: int | None = None
) -> Table:
    """Show the best of the configurations that were trained to their end; of several metrics, the
    Pareto front."""
    every = configurations(study, trials)
    ranked = best_of(study, every)
    rest = [one for one in every if not is_trained(study, one) and not has_no_value(study, one)]
    most = most or (len(ranked) if study.objectives else USUAL_BEST)
    below = left_out(ranked[most:], f"-n {len(ranked)} shows them")
    below += [*without_value(study, trials), *without_number(study, every)]
    if rest:
        below.append(f"not judged, since not trained to the end: {counted(rest)}")
    below += promising(study, ranked, rest)
    columns = chosen(displayed(study), ranked[:most])
    above = [headline(study), *about_front(study, every)]
    return drawn_up(study, ranked[:most], width, above, below, columns)


def about_front(study: Study, found: Sequence[Configuration]) -> list[str]:
    """Say what is listed where there are several metrics."""
    if not study.objectives:
        return []
    judged, front = len(ranking(study, found)), len(best_of(study, found))
    if not judged:
        return ["no configuration was trained to the end, and has a number of each metric"]
    what = "no other one is better in a metric without being worse in another"
    return [f"the Pareto front, {front} of {judged} trained to the end: {what}"]


def ranking(study: Study, found: Iterable[Configuration]) -> list[Configuration]:
    """Return those that can be judged, the best first; of several metrics, front by front."""
    full = [one for one in found if is_judged(study, one)]
    places = fronts_of(study, full)
    return sorted(full, key=lambda one: (places.get(one.number, 0), one.losses(study), one.number))


def best_of(study: Study, found: Iterable[Configuration]) -> list[Configuration]:
    """Return what is best, the very best first; of several metrics, the Pareto front alone."""
    ranked = ranking(study, found)
    places = fronts_of(study, ranked)
    return [one for one in ranked if not places.get(one.number, 0)]


def fronts_of(study: Study, found: Iterable[Configuration]) -> dict[int, int]:
    """Return the front of each that can be judged, by its number; nothing where there is but one
    metric."""
    judged = [one for one in found if is_judged(study, one)] if study.objectives else []
    places = fronts(tuple(one.losses(study) for one in judged))
    return {one.number: place for one, place in zip(judged, places, strict=True)}


def is_judged(study: Study, one: Configuration) -> bool:
    """Return whether it can be judged: by every metric, and by numbers."""
    return is_trained(study, one) and all(map(math.isfinite, one.losses(study)))


def is_trained(study: Study, one: Configuration) -> bool:
    """Return whether it was trained to its end, and has told every metric, be it NaN."""
    return all(each.is_full for each in one.by_metric(study))


def standing(study: Study, one: Configuration, fronts: Mapping[int, int]) -> tuple[Any, ...]:
    """Return what the rows of ``status`` are sorted by. Values at different steps are not compared:
    those that came farther go first."""
    place = ORDER.index(one.state)
    if one.state == "pruned":
        first = min(promise(study, trial) for trial in one.trials if trial.state == "pruned")
        return place, *first, one.number
    far = 0 if one.state in ("done", "failed") else -(one.step or 0)
    front = fronts.get(one.number, math.inf)
    return place, far, front, one.losses(study), one.number


def promise(study: Study, trial: Trial) -> tuple[float, float]:
    """Return what trials that were pruned are sorted by: how far each had come when it was compared
    with others, and how it did then."""
    last = max(trial.rungs, default=0)
    return -last, study.loss(trial.rungs.get(last, trial.value))


def promising(
    study: Study, ranked: Sequence[Configuration], rest: Sequence[Configuration]
) -> list[str]:
    """Name what was pruned by comparison though it was already better than the best."""
    cut = [one for one in rest if one.state == "pruned" and one.mean is not None]
    cut = [one for one in cut if not any(trial.met_condition for trial in one.trials)]
    if study.objectives or not ranked or not cut:
        return []
    first = min(cut, key=lambda one: study.loss(one.mean))
    if study.loss(first.mean) >= study.loss(ranked[0].mean):
        return []
    value = f"{show_measure(first)} at step {first.step}"
    job = next(trial.job for trial in first.trials if trial.state == "pruned")
    go_on = f"dray resume {job} goes on with it"
    return [f"{label(study, first)} was pruned with a better value, {value}: {go_on}"]


def drawn_up(
    study: Study,
    shown: Sequence[Configuration],
    width: int,
    above: Sequence[str],
    below: Sequence[str],
    wanted: Mapping[str, list[str]],
) -> Table:
    """Lay out rows, with as many further columns as there is room for, by their full names."""
    heads = [short_metric(one.metric) for one in study.objectives] or ["VALUE"]
    lead = [("TRIAL", *heads, "STEP", "STATE")]
    lead += [
        (
            label(study, one),
            *map(show_measure, one.by_metric(study)),
            show_step(one.step),
            show_state(one),
        )
        for one in shown
    ]
    used = sum(max(map(len, column)) + GAP for column in zip(*lead, strict=True))
    columns: list[list[str]] = []
    missing: list[str] = []
    for name, cells in wanted.items():
        wide = max(map(len, cells)) + (GAP if columns else 0)
        if missing or used + wide > width:
            missing.append(name)
        else:
            columns.append(cells)
            used += wide
    rows = [(*one, *cells) for one, *cells in zip(lead, *columns, strict=True)]
    below = [*below, *([f"no room for {', '.join(missing)}: --json has them"] if missing else [])]
    return Table(tuple(above), rows[0], tuple(rows[1:]), tuple(below), lead[0].index("STATE"))


def parameter_called(study: Study, trials: Iterable[Trial], name: str) -> str:
    """Return the full name of the parameter that this means; '' where trials tell a metric of that
    name, or there is no such parameter."""
    if any(name in one.levels for one in trials):
        return ""
    return names_of(records_of(study.space)).get(name, "")


def named(wanted: Mapping[str, str], shown: Sequence[Configuration]) -> dict[str, list[str]]:
    """Return a column for each name: of the parameter that it means, or of a metric."""
    parameters = chosen(list(dict.fromkeys(filter(None, wanted.values()))), shown)
    return {
        name: parameters[parameter] if parameter else measure(name, shown)
        for name, parameter in wanted.items()
    }


def chosen(names: Sequence[str], shown: Sequence[Configuration]) -> dict[str, list[str]]:
    """Return a column for each parameter: its head, and a cell for each row."""
    heads = dict(zip(names, tails(names), strict=True))
    return {name: [heads[name], *(show_chosen(row, name) for row in shown)] for name in names}


def tails(names: Sequence[str]) -> list[str]:
    """Return the end of each name that no other one has: lr, or actor.lr beside critic.lr."""
    parts = {name: re.split("[./]", name.lstrip("-+")) for name in names}
    found = []
    for name, own in parts.items():
        others = [one for other, one in parts.items() if other != name]
        sizes = range(1, len(own))
        size = next((n for n in sizes if all(one[-n:] != own[-n:] for one in others)), len(own))
        found.append(".".join(own[-size:]) if size > 1 else short_name(name))
    return found


def measure(name: str, shown: Sequence[Configuration]) -> list[str]:
    """Return the column of a metric: the mean over each configuration's repeats."""
    told = [[one.levels[name] for one in row.trials if name in one.levels] for row in shown]
    cells = [f"{mean_of(levels):.4g}" if levels else "" for levels in told]
    return [short_metric(name), *cells]


def short_metric(name: str) -> str:
    """Return what stands above a column: mean_reward of Train/mean_reward."""
    return name.rpartition("/")[2] or name


# -- what is said around it ---------------------------------------------------------------------


def headline(study: Study) -> str:
    rule = study.stop.rule if study.stop else ""
    times = f"{study.repeats} repeats" if study.repeats > 1 else ""
    return f"{study.id}   {', '.join(filter(None, [study.sampler, study.goal, rule, times]))}"


def by_cluster(trials: Sequence[Trial]) -> list[str]:
    """Count the trials of each cluster, where there are several."""
    names = list(dict.fromkeys(one.cluster for one in trials))
    told = [
        f"{name}: {in_states([one for one in trials if one.cluster == name])}" for name in names
    ]
    return told if len(names) > 1 else []


def in_states(trials: Iterable[Trial]) -> str:
    counts = Counter(one.state for one in trials)
    return "  ".join(f"{state} {counts[state]}" for state in STATES_TOLD if counts[state])


def summary(study: Study, trials: Sequence[Trial]) -> str:
    """Count trials by state, tell what pruning has saved, and how often one of a population has
    taken over from another."""
    told = in_states(trials)
    spent = sum(one.gpu_seconds for one in trials)
    gpu = f"{show_duration(spent)} of GPU time" if spent else ""
    saved = saved_seconds(study, trials)
    if saved and spent:
        gpu += f", {saved / (saved + spent):.0%} saved by pruning"
    is_population = study.stop is not None and study.stop.rule == PBT
    taken = show_count(sum(one.taken for one in trials), "takeover") if is_population else ""
    return "   ".join(filter(None, [told or "no trial has begun", gpu, taken]))


def saved_seconds(study: Study, trials: Iterable[Trial]) -> float:
    """Estimate the GPU time that all pruned trials would have used, had they run to their end:
    each as long as the mean of those that did, or, before there is one, at its own pace."""
    every = list(trials)
    whole = [one.gpu_seconds for one in every if one.state == "done" and one.gpu_seconds > 0]
    total = study.stop.total if study.stop else None
    saved = 0.0
    for one in every:
        if one.state != "pruned":
            continue
        if whole:
            saved += max(mean_of(whole) - one.gpu_seconds, 0.0)
        elif total and one.step:
            saved += one.gpu_seconds * max(total / one.step - 1, 0.0)
    return saved


def left_out(hidden: Sequence[Configuration], how: str) -> list[str]:
    return [f"{len(hidden)} more ({counted(hidden)}): {how}"] if hidden else []


def counted(found: Iterable[Configuration]) -> str:
    counts = Counter(one.state for one in found)
    return ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])


def without_value(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Say of which metrics nothing was seen, though trials are done."""
    done, told = [one for one in trials if one.state == "done"], []
    for at, goal in enumerate(study.goals):
        number = sum(1 for one in done if one.by_metric(at).value is None)
        what = f"'{goal.metric}'" if goal.metric else "a metric"
        if number:
            lost = f"{number} done without a value of {what}: the sampler learns nothing from them"
            told.append(lost + reported(trials))
    nothing = told and not any(one.metrics for one in trials)
    return [*told, NO_METRICS] if nothing else told


def without_number(study: Study, found: Iterable[Configuration]) -> list[str]:
    """Say how many were trained to their end, and are no number: none of them is the best."""
    number = sum(1 for one in found if is_trained(study, one) and not is_judged(study, one))
    return [f"not judged: {number} done with NaN"] if number else []


def has_no_value(study: Study, one: Configuration) -> bool:
    """Return whether it was trained to its end, and nothing of a metric was seen."""
    states = {trial.state for trial in one.trials}
    is_missing = any(each.mean is None for each in one.by_metric(study))
    return states == {"done"} and is_missing and len(one.trials) >= one.repeats


def never_seen(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Name the conditions whose metrics no trial has reported, once one has told what it did."""
    seen = {name for one in trials for name in one.metrics}
    return [
        f"stop_if {text}: no trial has reported '{name}'{reported(trials)}"
        for text, name in ((text, metric_in(text)) for text in study.stop_if)
        if seen and name and name not in seen
    ]


def metric_in(condition: str) -> str:
    """Return the metric that a condition names; '' where it is the sweep's own."""
    try:
        return Condition(condition).name
    except NotAnExpression:  # of a cluster's own telling
        return ""


def reported(trials: Iterable[Trial]) -> str:
    names = list(dict.fromkeys(name for one in trials for name in one.metrics))
    more = ", …" if len(names) > MOST_NAMES else ""
    return f"; there is {', '.join(names[:MOST_NAMES])}{more}" if names else ""


# -- cells --------------------------------------------------------------------------------------


def label(study: Study, one: Configuration) -> str:
    """Name a configuration as its jobs are called below the sweep: .17, or .51-53."""
    names = [trial.job.removeprefix(study.id) or f".{trial.number}" for trial in one.trials]
    last = names[-1].rpartition(".")[2]
    return names[0] if len(names) == 1 else f"{names[0]}-{last}"


def show_measure(one: Configuration) -> str:
    """Show 312.4 ± 6.1."""
    if one.mean is None:
        return ""
    if one.spread is None:
        return f"{one.mean:.4g}"
    return f"{one.mean:.4g} ± {one.spread:.2g}"


def show_step(step: int | None) -> str:
    return "" if step is None else str(step)


def show_state(one: Configuration) -> str:
    """Show the state, and how many of its repeats have ended where they differ."""
    same = sum(1 for trial in one.trials if trial.state == one.state)
    if same == one.repeats:
        return one.state
    if one.state == "running":
        same = sum(1 for trial in one.trials if trial.state not in ("running", "queued"))
    return f"{'ended' if one.state == 'running' else one.state} {same}/{one.repeats}"


def displayed(study: Study) -> list[str]:
    """Return the parameters worth a column: those that are chosen, then those that follow."""
    chosen = [one.name for one in study.space if one.kind in LEARNT]
    return chosen + [one.name for one in study.space if one.kind in ("formula", "table", "drawn")]


def show_chosen(row: Configuration, name: str) -> str:
    """Show a parameter's value; - where the configuration has its values, and not this one."""
    if row.values and name not in row.values:
        return "-"
    return show_value(row.values.get(name))


def show_value(value: Any, longest: int = LONGEST_CELL) -> str:
    """Show a parameter's value in a few characters: 3.1e-4, 4096, elu, [64,64]."""
    if isinstance(value, float):
        shown = f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")
    elif isinstance(value, list | tuple):
        shown = f"[{','.join(map(show_value, value))}]"
    elif isinstance(value, Mapping):
        pairs = (f"{key}:{show_value(one)}" for key, one in value.items())
        shown = f"{{{','.join(pairs)}}}"
    else:
        shown = "" if value is None else str(value)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


# -- for machines -------------------------------------------------------------------------------


def as_record(study: Study, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the documented form that ``status --json`` and ``best --json`` print."""
    every = configurations(study, trials)
    ranks = {one.number: rank for rank, one in enumerate(ranking(study, every), 1)}
    if study.objectives:
        ranks = {number: place + 1 for number, place in fronts_of(study, every).items()}
    return {
        "sweep": study.to_dict(),
        "counts": dict(Counter(one.state for one in trials)),
        "gpu_seconds": sum(one.gpu_seconds for one in trials),
        "saved_gpu_seconds": saved_seconds(study, trials),
        "failures": [{"reason": reason, "trials": number} for reason, number in failures(trials)],
        "configurations": [
            {
                "number": one.number,
                "rank": ranks.get(one.number),
                "state": one.state,
                "value": finite(one.mean),
                "spread": one.spread,
                "objectives": [
                    {"metric": goal.metric, "value": finite(each.mean), "spread": each.spread}
                    for goal, each in zip(study.objectives, one.by_metric(study), strict=False)
                ],
                "values": next((t.to_dict()["values"] for t in one.trials if t.values), {}),
                "trials": [
                    {
                        **trial.to_dict(),
                        "value": finite(trial.value),
                        "objectives": [finite(value) for value in trial.objectives],
                        "rungs": finite_rungs(trial),
                    }
                    for trial in one.trials
                ],
            }
            for one in every
        ],
    }


def finite(value: float | None) -> float | str | None:
    """Return a number that JSON has; nan and inf as texts."""
    return value if value is None or math.isfinite(value) else str(value)


def finite_rungs(trial: Trial) -> dict[str, float | str | None]:
    return {str(step): finite(value) for step, value in trial.rungs.items()}
