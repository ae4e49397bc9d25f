"""Estimates how much each parameter matters: how much of the order of the configurations it alone
explains.

The configurations are ranked, and put into bins along the parameter: what the bins' mean ranks
differ by, against all differences, is its share (an analysis of variance, of ranks, as values may
lie far apart). What shuffled ranks would explain by chance is taken off. Interactions of parameters
are not seen."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from dray.node.sweeps import space as spaces
from dray.records import NamedTuple
from dray.sweep.study import LEARNT, Parameter, Study, Trial
from dray.sweep.table import Configuration, configurations, ranking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FEWEST = 12  # configurations below which nothing can be said
ENOUGH = 40  # below which another sweep of the same space may well order parameters otherwise
FEWEST_BINS, MOST_BINS, PER_BIN = 3, 8, 6  # of a range; configurations for each bin
SHUFFLES = 50
BEST = 4  # one of so many counts as good


class Importance(NamedTuple):
    parameter: Parameter
    share: float  # of all that matters, 0 to 1
    places: tuple[float, ...]  # where the best lie, 0 to 1
    best: tuple[Configuration, ...]
    judged: int  # configurations that were trained to their end


def importances(study: Study, trials: Sequence[Trial]) -> list[Importance]:
    """Return the parameters, the most important first; none where too few were trained to their
    end."""
    ranked = ranking(study, configurations(study, trials))
    judged = [one for one in ranked if math.isfinite(study.loss(one.mean))]
    if len(judged) < FEWEST:
        return []
    best = tuple(judged[: math.ceil(len(judged) / BEST)])
    found = []
    for parameter in study.space:
        if parameter.kind in LEARNT:
            places = [place_of(parameter, one) for one in judged]
            good = tuple(one for one in places[: len(best)] if one is not None)
            share = explained(parameter, places)
            found.append(Importance(parameter, share, good, best, len(judged)))
    total = sum(one.share for one in found) or 1.0
    shares = [one._replace(share=one.share / total) for one in found]
    return sorted(shares, key=lambda one: -one.share)


def place_of(parameter: Parameter, one: Configuration) -> float | None:
    """Return where its value lies, 0 to 1; None where it is not of the space."""
    values = [trial.to_dict()["values"] for trial in one.trials if trial.values]
    record: Any = parameter.to_dict()
    try:
        place = spaces.to_unit(record, values[0].get(parameter.name) if values else None)
    except spaces.NoSuchPoint:
        return None
    return (place + 0.5) / len(parameter.values) if parameter.kind == "choice" else place


def explained(parameter: Parameter, places: Sequence[float | None]) -> float:
    """Return the share of the order that a parameter explains, beyond chance. ``places`` are in the
    order of the ranking."""
    known = [(rank, place) for rank, place in enumerate(places) if place is not None]
    ranks = [float(rank) for rank, _ in known]
    bins = max(min(len(known) // PER_BIN, MOST_BINS), FEWEST_BINS)
    bins = len(parameter.values) if parameter.kind == "choice" else bins
    if bins < 2 or len(known) < FEWEST:
        return 0.0
    where = [min(int(place * bins), bins - 1) for _, place in known]
    rng = random.Random(0)
    chance = [between(rng.sample(ranks, len(ranks)), where) for _ in range(SHUFFLES)]
    expected = statistics.fmean(chance) + statistics.pstdev(chance)
    return max(between(ranks, where) - expected, 0.0)


def between(ranks: Sequence[float], where: Sequence[int]) -> float:
    """Return the variance of the bins' means, as a share of all variance."""
    groups: dict[int, list[float]] = {}
    for rank, at in zip(ranks, where, strict=True):
        groups.setdefault(at, []).append(rank)
    middle = statistics.fmean(ranks)
    among = sum(len(one) * (statistics.fmean(one) - middle) ** 2 for one in groups.values())
    return among / (sum((rank - middle) ** 2 for rank in ranks) or 1.0)
