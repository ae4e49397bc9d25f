"""Suggests the next configuration of a sweep. Pure: the same arguments give the same answer.

``suggest`` is a tree-structured Parzen estimator. The told points are divided into few good ones
and the bad rest; both sets become mixtures of product kernels in the unit cube, and of some
candidates drawn from the good mixture the one is taken that the bad one explains worst. Failed
trials, and those that still run, are among the bad ones, so that their surroundings are avoided.
Where a point does not have a parameter (see presence), that one's kernel is the wide one. The first
configurations are spread evenly.
"""

import bisect
import itertools
import json
import math
import random

from . import presence
from . import space as spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union  # noqa: F401

    from ..formats.records import Parameter
    from .space import Point, Space, Values

    Told = Sequence[Tuple[Values, Optional[float]]]

START_UP = 10  # configurations that are spread evenly before anything is learnt
CANDIDATES = 24
MOST_GOOD = 25
RECENT = 25  # points that count in full; older ones fade
FINEST = 100.0  # kernels get no narrower than a hundredth
MOST_BRANCHES = 10**4  # of a grid: combinations of the choices that others depend on
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


# -- what can be asked --------------------------------------------------------------------------


def suggest(
    space: "Space", seed: int, number: int, told: "Told", running: "Sequence[Values]"
) -> "Values":
    """Return the values of configuration ``number``. ``told``: configurations with their losses,
    oldest first; lower is better, None is a failure. ``running``: those without a result yet."""
    points = known_points(space, told)
    good, bad = divide(points)
    if len(points) < START_UP or not good:
        return spread_evenly(space, seed, number)
    bad += [point for point, _ in known_points(space, [(values, None) for values in running])]
    return spaces.values_at(space, most_promising(space, good, bad, rng_of(seed, number)), number)


def spread_evenly(space: "Space", seed: int, number: int) -> "Values":
    """Return a point of a Kronecker sequence (powers of the generalized golden ratio) that is
    shifted by chance."""
    wanted = spaces.learnt(space)
    ratio = 2.0
    for _ in range(50):
        ratio = (1 + ratio) ** (1.0 / (len(wanted) + 1))
    rng = random.Random("{}:shift".format(seed))
    point = []  # type: Point
    for at, one in enumerate(wanted):
        share = (rng.random() + (number + 1) * ratio ** -(at + 1)) % 1.0
        point.append(spaces.spread(one, share))
    return spaces.values_at(space, point, number)


def at_random(space: "Space", seed: int, number: int) -> "Values":
    rng = rng_of(seed, number)
    point = [spaces.spread(one, rng.random()) for one in spaces.learnt(space)]  # type: Point
    return spaces.values_at(space, point, number)


def on_grid(space: "Space", number: int) -> "Values":
    """Return a point of the grid: the last parameter changes first; choices that others depend on
    change last. Behind its end it begins anew."""
    found = list(branches(space))
    sizes = [combinations(free) for _, free in found]
    rest, branch = number % sum(sizes), 0
    while rest >= sizes[branch]:
        rest -= sizes[branch]
        branch += 1
    values, free = found[branch]
    for one in reversed(free):
        rest, at = divmod(rest, spaces.raster_size(one))
        values[one["name"]] = spaces.raster_value(one, at)
    return spaces.complete(space, values, number)


def grid_size(space: "Space") -> int:
    return sum(combinations(free) for _, free in branches(space))


def combinations(space: "Space") -> int:
    size = 1
    for one in space:
        size *= spaces.raster_size(one)
    return size


def branches(space: "Space") -> "Iterator[Tuple[Values, Space]]":
    """Yield each combination of the choices that other parameters depend on, once, with the other
    learnt parameters that are there then."""
    wanted = spaces.learnt(space)
    above = {name for one in space for name in one.get("when") or ()}
    parents = [one for one in wanted if one["name"] in above]
    if combinations(parents) > MOST_BRANCHES:
        raise ValueError("other parameters depend on too many choices for a grid")
    seen = set()
    for values in itertools.product(*(spaces.raster(one) for one in parents)):
        chosen = {one["name"]: values[at] for at, one in enumerate(parents)}
        there = spaces.learnt(presence.present(space, chosen))
        names = {one["name"] for one in there}
        chosen = {name: chosen[name] for name in chosen if name in names}
        mark = json.dumps(chosen, sort_keys=True)
        if mark not in seen:
            seen.add(mark)
            yield chosen, [one for one in there if one["name"] not in above]


def rng_of(seed: int, number: int) -> random.Random:
    return random.Random("{}:{}".format(seed, number))


# -- the estimator ------------------------------------------------------------------------------


def known_points(space: "Space", told: "Told") -> "List[Tuple[Point, Optional[float]]]":
    """Return the points and their losses, without those that are not of this space. What is not a
    number is a failure."""
    found = []
    for values, loss in told:
        try:
            point = spaces.point_of(space, values)
        except spaces.NoSuchPoint:
            continue
        found.append((point, loss if loss is not None and math.isfinite(loss) else None))
    return found


def divide(
    points: "List[Tuple[Point, Optional[float]]]",
) -> "Tuple[List[Point], List[Point]]":
    """Divide into the best tenth and the rest, each in the order in which they were told."""
    losses = sorted((loss, at) for at, (_, loss) in enumerate(points) if loss is not None)
    best = {at for _, at in losses[: min(math.ceil(0.1 * len(points)), MOST_GOOD)]}
    good = [points[at][0] for at in range(len(points)) if at in best]
    return good, [points[at][0] for at in range(len(points)) if at not in best]


def most_promising(
    space: "Space", good: "List[Point]", bad: "List[Point]", rng: random.Random
) -> "Point":
    wanted = spaces.learnt(space)
    best, rest = Mixture(wanted, good), Mixture(wanted, bad)
    candidates = [spaces.without_absent(space, best.draw(rng)) for _ in range(CANDIDATES)]
    return max(candidates, key=lambda point: best.log_density(point) - rest.log_density(point))


class Mixture:
    """Product kernels around points, and a wide one for all that is not known yet."""

    def __init__(self, wanted: "Space", points: "List[Point]") -> None:
        weights = weights_of(len(points)) + [1.0]
        total = sum(weights)
        self.log_weights = [math.log(one / total) for one in weights]
        self.reaches = []  # type: List[float]  # the weights, added up
        for one in weights:
            self.reaches.append((self.reaches or [0.0])[-1] + one / total)
        self.kernels = [
            kernels_of(one, [point[at] for point in points]) for at, one in enumerate(wanted)
        ]

    def draw(self, rng: random.Random) -> "Point":
        around = min(bisect.bisect(self.reaches, rng.random()), len(self.reaches) - 1)
        return [one.draw(around, rng) for one in self.kernels]

    def log_density(self, point: "Point") -> float:
        logs = list(self.log_weights)
        for dimension, one in enumerate(self.kernels):
            at = point[dimension]
            if at is not None:
                one.add_log_densities(at, logs)
        top = max(logs)
        return top + math.log(sum(math.exp(one - top) for one in logs))


def weights_of(count: int) -> "List[float]":
    """Return how much each point counts: those beyond the latest ones less and less."""
    old = count - RECENT
    if old < 0:
        return [1.0] * count
    least = 1.0 / count
    faded = [least + (1 - least) * (at / float(max(old - 1, 1))) for at in range(old)]
    return faded + [1.0] * RECENT


def kernels_of(parameter: "Parameter", places: "List[Any]") -> "Union[Choices, Numbers]":
    if spaces.is_choice(parameter):
        return Choices(len(parameter["values"]), places)
    return Numbers(places)


class Choices:
    """Kernels over the values of a choice: each prefers its own, the more the more points there
    are."""

    def __init__(self, count: int, places: "List[Optional[int]]") -> None:
        self.count = count
        self.places = places
        prior = 1.0 / (len(places) - places.count(None) + 1)
        self.own = (1 + prior) / (1 + prior * count)
        self.log_own = math.log(self.own)
        self.log_other = math.log(prior / (1 + prior * count))

    def draw(self, around: int, rng: random.Random) -> int:
        own = self.places[around] if around < len(self.places) else None
        if own is None:
            return int(rng.random() * self.count)
        if self.count == 1 or rng.random() < self.own:
            return own
        return (own + 1 + int(rng.random() * (self.count - 1))) % self.count

    def add_log_densities(self, at: "Union[int, float]", logs: "List[float]") -> None:
        anything = math.log(self.count)
        for index, place in enumerate(self.places):
            if place is None:
                logs[index] -= anything
            else:
                logs[index] += self.log_own if place == at else self.log_other
        logs[-1] -= anything


class Numbers:
    """Normal kernels on [0, 1], cut off at its ends."""

    def __init__(self, places: "List[Optional[float]]") -> None:
        widths = iter(widths_of([one for one in places if one is not None]))
        self.middles = [0.5 if one is None else one for one in places] + [0.5]
        self.widths = [1.0 if one is None else next(widths) for one in places] + [1.0]
        self.offsets = []  # type: List[float]
        for at, middle in enumerate(self.middles):
            width = self.widths[at]
            self.offsets.append(-math.log(width * mass(middle, width)) - HALF_LOG_TAU)
        self.factors = [0.5 / (width * width) for width in self.widths]

    def draw(self, around: int, rng: random.Random) -> float:
        for _ in range(1000):  # more than a third of them are within
            at = rng.gauss(self.middles[around], self.widths[around])
            if 0 <= at <= 1:
                return at
        return self.middles[around]

    def add_log_densities(self, at: float, logs: "List[float]") -> None:
        for index, middle in enumerate(self.middles):
            away = at - middle
            logs[index] += self.offsets[index] - away * away * self.factors[index]


def widths_of(places: "List[float]") -> "List[float]":
    """Return how wide each kernel is: as far as to the farther neighbour, within limits."""
    if len(places) == 1:
        return [max(places[0], 1 - places[0])]
    least = 1.0 / min(FINEST, len(places) + 2.0)
    order = sorted(range(len(places)), key=lambda at: places[at])
    found = [0.0] * len(places)
    for rank, at in enumerate(order):
        beside = order[max(rank - 1, 0) : rank + 2]
        found[at] = min(max(max(abs(places[at] - places[one]) for one in beside), least), 1.0)
    return found


def mass(middle: float, width: float) -> float:
    """Return how much of a normal kernel lies within [0, 1]."""
    return below((1 - middle) / width) - below(-middle / width)


def below(deviations: float) -> float:
    return 0.5 * math.erfc(-deviations / math.sqrt(2.0))
