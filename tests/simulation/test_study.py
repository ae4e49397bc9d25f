"""The files of a sweep under many schedules, and that these find faults at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dray.node.formats import files
from dray.node.sweeps import trial
from dray.node.sweeps.study import Study
from tests.simulation import study
from tests.simulation.study import play

pytestmark = pytest.mark.simulation

SCHEDULES, BLOCK = 400, 50


@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_no_schedule_violates_an_invariant(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        world = play(seed)
        assert not world.violations, f"python -m tests.simulation.study {seed}: {world.violations}"
        counts += world.counts
        counts["deaths"] += world.kernel.deaths
    troubles = ("deaths", "links whose answer was lost", "listings that lag behind")
    for one in (*troubles, "names that were not seen yet"):
        assert counts[one], f"no {one} in {BLOCK} schedules: nothing was tried"


def test_the_same_seed_does_the_same() -> None:
    def traced(seed: int) -> list[str]:
        lines: list[str] = []
        play(seed, lines.append)
        return lines

    assert traced(3) == traced(3)


# -- that it finds what is wrong ------------------------------------------------------------------


def believes_itself(self: Study, configuration: int, record: Any) -> Any:
    """Go on with one's own choice where the other one's cannot be seen yet."""
    if files.write_once(self._trials.path_of(configuration), record):
        return record
    return self.parameters(configuration) or record


def tells_of_another(self: Study, number: int, result: Any, real: Any = Study.tell) -> None:
    real(self, number - number % 2, result)


def forgets_the_end(*_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name", "fault", "found"),
    [
        (Study, "give", believes_itself, study.SAME_VALUES),
        (Study, "tell", tells_of_another, study.OWN_RESULT),
        (trial, "tell_end", forgets_the_end, study.NOT_LOST),
    ],
)
def test_a_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Any, found: str
) -> None:
    monkeypatch.setattr(owner, name, fault)
    for seed in range(100):
        if any(one.invariant == found for one in play(seed).violations):
            return
    pytest.fail(f"100 schedules and no violation of: {found}")
