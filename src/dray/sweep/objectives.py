"""Several metrics at once: which configurations no other one beats, and a sweep by one metric."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dray.errors import UsageError, nearest
from dray.sweep.study import Study, Trial

TWO = 2
Losses = tuple[float, ...]  # of one configuration, by metric: the smaller, the better


@lru_cache(maxsize=4)  # a table asks for the same ones several times
def fronts(found: tuple[Losses, ...]) -> list[int]:
    """Return for each the front that it is on. On 0, the Pareto front, are those that no other one
    beats; on 1 those that are beaten only by these, and so on."""
    order = sorted(set(found))  # what beats one comes before it
    places = by_two(order) if order and len(order[0]) == TWO else by_many(order)
    return [places[one] for one in found]


def by_two(order: Sequence[Losses]) -> dict[Losses, int]:
    """Return the front of each. Of two metrics the first is in order, and so a front beats one by
    the least that any on it has of the second; the fronts are in the order of these."""
    least: list[float] = []
    places = {}
    for own in order:
        place = bisect_right(least, own[1])
        least[place : place + 1] = [own[1]]
        places[own] = place
    return places


def by_many(order: Sequence[Losses]) -> dict[Losses, int]:
    members: list[list[Losses]] = []
    places = {}
    for own in order:
        is_beaten = (any(beats(one, own) for one in reversed(front)) for front in members)
        place = next((place for place, beaten in enumerate(is_beaten) if not beaten), len(members))
        if place == len(members):
            members.append([])
        members[place].append(own)
        places[own] = place
    return places


def beats(one: Losses, other: Losses) -> bool:
    """Tell whether one is no worse in any metric, and better in some."""
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def by_metric(study: Study, trials: Iterable[Trial], name: str) -> tuple[Study, list[Trial]]:
    """Return a sweep as if this were its only metric; '' is the first. Raises UsageError."""
    names = [one.metric for one in study.goals]
    if name and name not in names:
        raise UsageError(
            f"'{name}' is no metric of {study.id}.{nearest(name, names)}",
            hint=f"It has {', '.join(filter(None, names)) or 'its main metric'}.",
        )
    at = names.index(name) if name else 0
    goal = study.goals[at]
    alone = study._replace(metric=goal.metric, mode=goal.mode, objectives=())
    return alone, [one.by_metric(at) for one in trials]
