"""When a command is asked to end: learned from what was measured before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.checkpoints.timing import MARGIN, Timing


def timing(*before: dict[str, Any], signal: str | None = None, **resume: Any) -> Timing:
    return Timing({"grace": 30.0, "signal": signal, **resume}, list(before))


def test_without_experience_the_whole_grace_is_given() -> None:
    assert timing().lead() == 30.0


def test_the_lead_is_learned_from_the_longest_of_the_last_endings() -> None:
    long_ago, *lately = ({"ending": seconds} for seconds in (20.0, 2.0, 4.0, 3.0))
    assert timing(long_ago, *lately).lead() == 4.0 * 1.5 + MARGIN


@given(st.lists(st.floats(0, 1000), max_size=9))
def test_the_lead_is_never_more_than_the_grace(endings: list[float]) -> None:
    assert 0 < timing(*({"ending": one} for one in endings)).lead() <= 30.0


def seen(told: Timing, *moments: float) -> Timing:
    for moment in moments:
        told.saw_checkpoint(moment)
    return told


@pytest.mark.parametrize(("now", "is_last"), [(80.0, False), (90.0, True)])
def test_one_who_only_saves_now_and_then_ends_after_the_last_that_fits(
    now: float, is_last: bool
) -> None:
    told = seen(timing(saves="periodically"), now - 20, now - 10, now)
    assert told.is_last(101.0, now) is is_last


def test_one_who_saves_when_asked_is_not_ended_early() -> None:
    assert not seen(timing(signal="USR1"), 80.0, 90.0).is_last(101.0, 90.0)


def test_which_sort_it_is_is_learned() -> None:
    did, did_not = {"saved_at_end": True}, {"saved_at_end": False}
    assert not seen(timing(did_not, did), 80.0, 90.0).is_last(101.0, 90.0)
    assert seen(timing(did, did_not), 80.0, 90.0).is_last(101.0, 90.0)
    assert not seen(timing(), 80.0, 90.0).is_last(101.0, 90.0), "nothing is known yet"


def test_the_interval_is_known_from_the_attempt_before() -> None:
    told = timing({"interval": 10.0}, saves="periodically")
    assert told.is_last(101.0, 95.0)
    assert not told.is_last(None, 95.0)
    assert told.is_near(101.0, 80.0)
    assert not told.is_near(101.0, 50.0)
