"""Timing whole commands and functions, fairly: alternating, the best of several."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One row of the table: what was measured against what, and the goal."""

    what: str
    value: float
    unit: str
    against: str
    ratio: float | None
    goal: str
    met: bool

    def row(self) -> str:
        ratio = f"{self.ratio:.2f}×" if self.ratio is not None else ""
        sign = "yes" if self.met else "**no**"
        value = f"{self.value:.3g} {self.unit}"
        return f"| {self.what} | {value} | {self.against} | {ratio} | {self.goal} | {sign} |"


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def best_of(acts: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the shortest time of each, measured in turns so that all meet the same load."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            times[name].append(seconds(act))
    return {name: min(values) for name, values in times.items()}


def command(*words: str, **more: object) -> Callable[[], object]:
    def act() -> object:
        return subprocess.run(words, stdout=subprocess.DEVNULL, check=True, **more)  # type: ignore[call-overload]

    return act
