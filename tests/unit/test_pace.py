"""How often the supervisor looks: what one look costs tells when the next one is."""

import time

from dray.node.formats.pace import CPU_SHARE, SHARE, Pace


def look(pace: Pace, stall: float = 0.0, work: float = 0.0) -> float:
    """The rest after a look that sleeps and computes for so long."""
    with pace:
        time.sleep(stall)
        until = time.process_time() + work
        while time.process_time() < until:
            pass
    return pace.rest()


def test_one_look_that_stalls_is_no_measure() -> None:
    pace = Pace()
    assert look(pace, stall=0.2) == 0.0  # the first one: nothing to compare it with
    look(pace)
    assert look(pace, stall=0.2) < 0.2 * SHARE


def test_looks_that_are_slow_each_time_are_made_less_often() -> None:
    pace = Pace()
    look(pace, stall=0.05)
    assert look(pace, stall=0.05) >= 0.05 * SHARE


def test_looks_that_compute_are_rarer_still() -> None:
    pace = Pace()
    look(pace, work=0.01)
    assert look(pace, work=0.01) >= 0.01 * CPU_SHARE


def test_the_time_of_a_look_that_fails_counts() -> None:
    pace = Pace()
    for _ in range(2):
        try:
            with pace:
                time.sleep(0.02)
                raise OSError
        except OSError:
            pass
    assert pace.rest() >= 0.02 * SHARE
