"""Estimates how much each parameter matters: how differently the best configurations are spread
along it than all of them are.

That is the idea of PED-ANOVA (Watanabe et al., 2023), with histograms: where the best quarter lies
where all lie, the parameter does not matter. It needs no model, and does not mistake what the
sampler has preferred for what is good. What a few points differ by chance is taken off."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence

from dray.node.sweeps import space as spaces
from dray.records import NamedTuple
from dray.sweep.study import LEARNT, Parameter, Study, Trial
from dray.sweep.table import Configuration, configurations, ranking

FEWEST = 12  # configurations below which nothing can be said
FEWEST_BINS, MOST_BINS, PER_BIN = 3, 8, 3  # of a range; good ones for each bin
SHUFFLES = 50
BEST = 4  # one of so many counts as good


class Importance(NamedTuple):
    parameter: Parameter
    share: float  # of all that matters, 0 to 1
    places: tuple[float, ...]  # where the best lie, 0 to 1
    best: tuple[Configuration, ...]


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
            everywhere, good = units(parameter, judged), units(parameter, best)
            found.append(
                Importance(parameter, beyond_chance(parameter, everywhere, good), good, best)
            )
    total = sum(one.share for one in found) or 1.0
    shares = [one._replace(share=one.share / total) for one in found]
    return sorted(shares, key=lambda one: -one.share)


def units(parameter: Parameter, found: Sequence[Configuration]) -> tuple[float, ...]:
    """Return where the values lie, 0 to 1; what is not of the space is left out."""
    return tuple(unit for one in found for unit in unit_of(parameter, one))


def unit_of(parameter: Parameter, one: Configuration) -> Iterator[float]:
    record = parameter.to_dict()
    value = next((trial.to_dict()["values"] for trial in one.trials if trial.values), {})
    try:
        place = spaces.to_unit(record, value.get(parameter.name))  # type: ignore[arg-type]
    except spaces.NoSuchPoint:
        return
    many = len(parameter.values)
    yield (place + 0.5) / many if parameter.kind == "choice" else place


def beyond_chance(
    parameter: Parameter, everywhere: Sequence[float], good: Sequence[float]
) -> float:
    """Return how differently the good ones are spread, less what as many that were picked at random
    would be."""
    bins = max(min(len(good) // PER_BIN, MOST_BINS), FEWEST_BINS)
    bins = len(parameter.values) if parameter.kind == "choice" else bins
    if bins < 2 or not good:
        return 0.0
    base, rng = histogram(everywhere, bins), random.Random(0)
    picked = [rng.sample(everywhere, min(len(good), len(everywhere))) for _ in range(SHUFFLES)]
    chance = [divergence(base, histogram(one, bins)) for one in picked]
    expected = statistics.fmean(chance) + statistics.pstdev(chance)
    return max(divergence(base, histogram(good, bins)) - expected, 0.0)


def divergence(base: Sequence[float], other: Sequence[float]) -> float:
    """Return Pearson's divergence of a histogram from another."""
    return sum(own * (mine / own - 1) ** 2 for own, mine in zip(base, other, strict=True))


def histogram(places: Sequence[float], bins: int) -> list[float]:
    """Return the share of each bin; none is empty, as one point more or less says little."""
    counts = [1.0 / bins] * bins
    for place in places:
        counts[min(int(place * bins), bins - 1)] += 1
    return [count / (len(places) + 1) for count in counts]
