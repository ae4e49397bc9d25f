"""Undisturbed lives, made once for each worker, and the numbers at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.faults.kinds import KINDS, Kind
from tests.faults.points import Point, summary
from tests.faults.trial import REPRODUCE, Undisturbed, undisturbed

PROPERTY = "faults"
ELSEWHERE = "faults, elsewhere"  # another call was struck than in the life without a fault
MISSED = "faults, missed"  # that call was not made: it depends on the clock
NAMES = (PROPERTY, ELSEWHERE, MISSED)


@pytest.fixture(scope="session")
def kind_of(request: pytest.FixtureRequest) -> Callable[[str], Kind]:
    return cache(lambda name: KINDS[name](request))


@pytest.fixture(scope="session")
def usual(kind_of: Callable[[str], Kind]) -> Callable[[str, str], Undisturbed]:
    """A life of this kind without a fault."""
    return cache(lambda kind, life: undisturbed(kind_of(kind), life))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of a point that is named are there only where one is."""
    if not config.getoption("--point"):
        items[:] = [item for item in items if item.name not in ("test_point", "test_cut")]


class Herald:
    """Tells of a point that fails at once: all of them take hours."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        for line in report.longreprtext.splitlines() if report.failed and terminal else ():
            if REPRODUCE in line:
                terminal.write_line("\n" + line.removeprefix("E").strip())


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Herald(config))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [one for key in ("passed", "failed") for one in terminalreporter.stats.get(key, [])]
    told = [(name, str(value)) for one in reports for name, value in one.user_properties]
    tried = {name: [text for key, text in told if key == name] for name in NAMES}
    every = [text for texts in tried.values() for text in texts]
    if every:
        points = [Point.read(text) for text in every if not text.startswith("cut:")]
        terminalreporter.write_line(
            f"faults: {summary(points)}; {len(every) - len(points)} power cuts; "
            f"{len(tried[ELSEWHERE])} struck a call beside the one that was meant, "
            f"{len(tried[MISSED])} none"
        )
