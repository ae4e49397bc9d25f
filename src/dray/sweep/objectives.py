"""Several metrics at once: which configurations no other one beats, and a sweep by one metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.errors import UsageError, nearest
from dray.sweep.study import Study, Trial

Losses = tuple[float, ...]  # of one configuration, by metric: the smaller, the better


def fronts(found: Sequence[Losses]) -> list[int]:
    """Return for each the front that it is on. On 0, the Pareto front, are those that no other one
    beats; on 1 those that are beaten only by these, and so on."""
    members: list[list[Losses]] = []
    places = [0] * len(found)
    for at in sorted(range(len(found)), key=lambda at: found[at]):  # what beats it comes before it
        own = found[at]
        is_beaten = (any(beats(one, own) for one in reversed(front)) for front in members)
        place = next((place for place, beaten in enumerate(is_beaten) if not beaten), len(members))
        if place == len(members):
            members.append([])
        members[place].append(own)
        places[at] = place
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
