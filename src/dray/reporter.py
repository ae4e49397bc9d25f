"""How the verbs speak to a person."""

from __future__ import annotations

from collections.abc import Callable

from dray.records import NamedTuple

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


class Reporter(NamedTuple):
    """Silent unless told otherwise."""

    say: Callable[[str], None] = lambda text: None
    progress: Callable[[str], Progress] = lambda label: no_progress
