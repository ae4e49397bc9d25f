"""Every call by which dray changes a file may be the last, or fail: the job is done once, or was
never accepted, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.faults.conftest import ELSEWHERE, MISSED, PROPERTY
from tests.faults.kinds import KINDS, Kind
from tests.faults.points import HOWS, Point
from tests.faults.trial import Undisturbed, Verdict, trial

pytestmark = [pytest.mark.faults]

Usual = Callable[[str, str], Undisturbed]
KindOf = Callable[[str], Kind]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "series" in metafunc.fixturenames:
        hows = HOWS if metafunc.config.getoption("--all-points") else ()
        metafunc.parametrize("series", list(combinations(hows)))


def combinations(hows: Iterable[str]) -> Iterable[object]:
    """Kind, life, role and way to disturb it; each kind's on one worker, as it has one cluster."""
    for kind in KINDS.values():
        marks = [pytest.mark.xdist_group(kind.name)] if kind.name != "local" else []
        for life, roles in kind.roles.items():
            for role in roles:
                for how in hows or kind.sample:
                    words = (kind.name, life, role, how)
                    yield pytest.param(words, id=":".join(words), marks=marks)


def test_points(
    series: tuple[str, str, str, str],
    usual: Usual,
    kind_of: KindOf,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    kind, life, role, how = series
    found = usual(kind, life).series(role, how)
    everything = request.config.getoption("--all-points")
    points = found.points() if everything else found.sample(KINDS[kind].sample[how])
    assert points or how not in ("kill", "after"), f"{role} changes no file in this life"
    verdicts = [trial(kind_of(kind), point, usual(kind, life)) for point in points]
    for verdict in verdicts:
        missed = MISSED if verdict.hit is None else PROPERTY
        record_property(ELSEWHERE if verdict.is_elsewhere else missed, str(verdict.point))
    report(verdicts)


def test_point(usual: Usual, kind_of: KindOf, request: pytest.FixtureRequest) -> None:
    """The one that is named: make faults POINT=…"""
    text = request.config.getoption("--point")
    if text.startswith("cut:"):
        pytest.skip("it is a power cut that is named")
    point = Point.read(text)
    report([trial(kind_of(point.kind), point, usual(point.kind, point.life))])


def report(verdicts: list[Verdict]) -> None:
    """Each that failed in a line that tries it again."""
    failed = [str(verdict) for verdict in verdicts if verdict.is_bad]
    assert not failed, "\n" + "\n".join(failed)
