"""Decides whether a trial goes on, from how it does and how others did at the same step. Pure.

Trials are compared at rungs: steps that grow by a factor. ``asha`` ends a trial that is not among
the best 1/factor there, ``median`` one that is worse than half of the others. ``pbt`` compares at
even distances, and ends none: see ``population``. A value at a rung is
the mean of the last tenth of the points before it, as single ones say little."""

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Sequence, Tuple  # noqa: F401

    from ..formats.records import StopRule

LAST_SHARE = 0.1  # of the points
FIRST_SHARE = 27  # the first rung is this part of the whole, unless it is given
FEWEST_POINTS = 10  # before a rung that nobody has chosen
FEWEST_OTHERS = 5  # for a median
EVEN = "pbt"  # the rule whose rungs are at even distances
EVEN_SHARE = 10  # these are this part of the whole, unless one is given
MOST_EVEN = 1000
MOST_POINTS = 20000
MOST_RUNGS = 60
CONDITION = "stop_if: "  # how the reason of a trial begins that a condition has ended
ORDINALS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


class Points:
    """A metric's values by step. A training that goes on from a checkpoint repeats steps: then the
    later values count."""

    def __init__(self) -> None:
        self.steps = []  # type: List[int]
        self.values = []  # type: List[float]

    def add(self, step: int, value: "Optional[float]") -> None:
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()
        self.steps.append(step)
        self.values.append(math.nan if value is None else value)
        if len(self.steps) > MOST_POINTS:
            self.steps, self.values = self.steps[::2], self.values[::2]

    def last_step(self) -> int:
        return self.steps[-1] if self.steps else 0

    def count_until(self, step: int) -> int:
        return sum(1 for one in self.steps if one <= step)

    def level(self, step: "Optional[int]" = None) -> "Optional[float]":
        """Return the mean of the last tenth of the points, up to a step; None if there are none."""
        count = len(self.steps) if step is None else self.count_until(step)
        if not count:
            return None
        last = self.values[count - math.ceil(count * LAST_SHARE) : count]
        return sum(last) / len(last)


def rungs_of(rule: "Optional[StopRule]") -> "List[int]":
    """Return the steps at which trials are compared."""
    if not rule:
        return []
    if rule.get("rule") == EVEN:
        return even_rungs(rule.get("first"), rule.get("total"))
    factor, total = max(rule.get("factor") or 3, 2), rule.get("total")
    at = rule.get("first") or (total or 0) // FIRST_SHARE
    found = []  # type: List[int]
    while len(found) < MOST_RUNGS and (not total or at < total):
        found.append(max(at, 1))
        at = max(at, 1) * factor
    return found


def even_rungs(first: "Optional[int]", total: "Optional[int]") -> "List[int]":
    distance = max(first or (total or 0) // EVEN_SHARE, 1)
    end = min(total or distance * (MOST_EVEN + 1), distance * (MOST_EVEN + 1))
    return list(range(distance, end, distance))


def newly_passed(rule: "StopRule", points: Points, known: "Sequence[int]") -> "List[int]":
    """Return the rungs that a trial has passed and has not been compared at. Where the first rung
    was not chosen by anybody, those before which there were too few points are left out."""
    fewest = 1 if rule.get("first") else FEWEST_POINTS
    return [
        rung
        for rung in rungs_of(rule)
        if rung not in known and rung <= points.last_step() and points.count_until(rung) >= fewest
    ]


def why_not_on(
    rule: "StopRule", mode: str, rung: int, value: float, others: "Sequence[float]"
) -> str:
    """Say why a trial with this value at a rung does not go on, or '' where it does."""
    if rule.get("rule") == "median":
        return below_median(mode, rung, value, others)
    factor = max(rule.get("factor") or 3, 2)
    ranked = sorted([loss(mode, one) for one in others] + [loss(mode, value)])
    best = max(len(ranked) // factor, 1)
    if loss(mode, value) <= ranked[best - 1] and math.isfinite(value):
        return ""
    if len(ranked) == 1:
        return ""  # nobody to compare it with
    share = ORDINALS.get(factor, "1/{}".format(factor))
    return "pruned at step {}: {:.4g} is not among the best {} of {}".format(
        rung, value, share, len(ranked)
    )


def below_median(mode: str, rung: int, value: float, others: "Sequence[float]") -> str:
    if len(others) < FEWEST_OTHERS:
        return ""
    ranked = sorted(loss(mode, one) for one in others)
    middle = len(ranked) // 2
    median = ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
    if loss(mode, value) <= median and math.isfinite(value):
        return ""
    shown = -median if mode == "max" else median
    return "pruned at step {}: {:.4g} is worse than {:.4g}, the median of {}".format(
        rung, value, shown, len(others)
    )


def loss(mode: str, value: float) -> float:
    """Return what is compared: the smaller, the better; what is not a number is worst."""
    if not math.isfinite(value):
        return math.inf
    return -value if mode == "max" else value
