"""Measures the sampler of sweeps against Optuna's default and against random choice, side by side,
and writes the figures into docs/explanation/sweeps.md.

``make bench-sweep`` runs it in an environment that has Optuna (tests/sweeps/requirements.txt).
Trials end one by one, after durations of all kinds, as the jobs of an array do: whoever asks knows
what has ended by then. P(better) is the share of all pairs of runs, one of each sampler, in which
the first has found the better value; a draw counts half.
"""

from __future__ import annotations

import heapq
import math
import multiprocessing
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from bench import pages
from bench.sweep_problems import FUNCTIONS, Problem, Values, tables
from dray.node.sweeps import sampler

SEEDS = 20
TRIALS = 100
AT_ONCE = (8, 32)
LOOKS = (25, 50, 100)


# -- samplers -----------------------------------------------------------------------------------


class Ours:
    """Asks as a trial does on its node."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.space: Any = problem.space
        self.seed = seed
        self.told: list[tuple[Values, float | None]] = []
        self.running: dict[int, Values] = {}

    def ask(self, number: int) -> Values:
        values = self.choose(number)
        self.running[number] = values
        return values

    def choose(self, number: int) -> Values:
        running = list(self.running.values())
        return sampler.suggest(self.space, self.seed, number, self.told, running)

    def tell(self, number: int, loss: float) -> None:
        self.told.append((self.running.pop(number), loss))


class Random(Ours):
    def choose(self, number: int) -> Values:
        return sampler.at_random(self.space, self.seed, number)


class Optuna:
    """Optuna with what it does by default."""

    def __init__(self, problem: Problem, seed: int) -> None:
        import optuna

        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = {one["name"]: distribution(optuna, one) for one in problem.space}
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self.trials: dict[int, Any] = {}

    def ask(self, number: int) -> Values:
        self.trials[number] = self.study.ask(self.space)
        return dict(self.trials[number].params)

    def tell(self, number: int, loss: float) -> None:
        self.study.tell(self.trials.pop(number), loss)


def distribution(optuna: Any, parameter: dict[str, Any]) -> Any:
    kinds = optuna.distributions
    if parameter["kind"] == "choice":
        return kinds.CategoricalDistribution(parameter["values"])
    made = kinds.IntDistribution if parameter["kind"] == "int" else kinds.FloatDistribution
    return made(parameter["low"], parameter["high"], log=parameter["log"])


SAMPLERS: dict[str, Callable[[Problem, int], Any]] = {
    "dray": Ours,
    "Optuna": Optuna,
    "random": Random,
}


# -- one run ------------------------------------------------------------------------------------


class Task(NamedTuple):
    problem: str
    sampler: str
    at_once: int
    seed: int


class Result(NamedTuple):
    task: Task
    best: dict[int, float]  # after so many trials
    seconds: float  # of CPU, for asking and telling


PROBLEMS: dict[str, Problem] = {}  # filled before the processes are started


def run(task: Task) -> Result:
    """Play one sweep: so many trials run at once, and each takes its own time."""
    problem = PROBLEMS[task.problem]
    asked = SAMPLERS[task.sampler](problem, task.seed)
    rng = random.Random(task.seed)
    ends: list[tuple[float, int, float]] = []
    now, started, ended, best, spent = 0.0, 0, 0, math.inf, 0.0
    found: dict[int, float] = {}
    while ended < TRIALS:
        begin = time.process_time()
        fresh = []
        while started < TRIALS and len(ends) + len(fresh) < task.at_once:
            fresh.append((started, asked.ask(started)))
            started += 1
        spent += time.process_time() - begin
        for number, values in fresh:
            lasts = rng.lognormvariate(0, 0.5)
            heapq.heappush(ends, (now + lasts, number, problem.loss(values)))
        now, number, loss = heapq.heappop(ends)
        begin = time.process_time()
        asked.tell(number, loss)
        spent += time.process_time() - begin
        ended, best = ended + 1, min(best, loss)
        if ended in LOOKS:
            found[ended] = best
    return Result(task, found, spent)


# -- all of them --------------------------------------------------------------------------------


def better(one: list[float], other: list[float]) -> float:
    """Return how often the first is better: the share of pairs, a draw is half."""
    wins = sum((a < b) + 0.5 * (a == b) for a in one for b in other)
    return wins / (len(one) * len(other))


class Summary:
    def __init__(self, results: list[Result]) -> None:
        self.results = results
        self.values: dict[tuple[str, str, int], list[Result]] = {}
        for one in results:
            key = (one.task.problem, one.task.sampler, one.task.at_once)
            self.values.setdefault(key, []).append(one)

    def best(self, problem: str, name: str, at_once: int, look: int) -> list[float]:
        return [one.best[look] for one in self.values[problem, name, at_once]]

    def chance(self, problems: list[str], name: str, other: str, at_once: int, look: int) -> float:
        return statistics.fmean(
            better(self.best(one, name, at_once, look), self.best(one, other, at_once, look))
            for one in problems
        )

    def milliseconds(self, name: str) -> float:
        spent = [one.seconds for one in self.results if one.task.sampler == name]
        return 1000 * statistics.fmean(spent) / TRIALS


def report(summary: Summary, problems: list[str]) -> list[str]:
    groups = {
        "all": problems,
        "functions": [one for one in problems if "/" not in one],
        "tables of real trainings": [one for one in problems if "/" in one],
    }
    lines = [
        "| P(better) after 50 / 100 trials | problems | 8 at once | 32 at once | goal at 100 |"
    ]
    lines.append("|---|---|---|---|---|")
    goals = {("dray", "Optuna"): "≥ 0.50", ("dray", "random"): "≥ 0.75", ("Optuna", "random"): ""}
    for (one, other), goal in goals.items():
        for title, members in groups.items():
            if members:
                cells = [
                    " / ".join(
                        f"{summary.chance(members, one, other, at_once, look):.2f}"
                        for look in (50, 100)
                    )
                    for at_once in AT_ONCE
                ]
                wanted = goal if title == "all" else ""
                told = f"| {one} than {other} | {title} ({len(members)}) | "
                lines.append(told + f"{' | '.join(cells)} | {wanted} |")
    times = ", ".join(f"{name} {summary.milliseconds(name):.1f} ms" for name in SAMPLERS)
    lines += ["", f"CPU for a trial, asked and told: {times}.", "", *medians(summary, problems)]
    return lines


def medians(summary: Summary, problems: list[str]) -> list[str]:
    lines = ["| median best after 25 / 50 / 100 trials, 8 at once | random | Optuna | dray |"]
    lines.append("|---|---|---|---|")
    for problem in problems:
        cells = [
            " / ".join(
                f"{statistics.median(summary.best(problem, name, 8, look)):.4g}" for look in LOOKS
            )
            for name in ("random", "Optuna", "dray")
        ]
        lines.append(f"| {problem} | {' | '.join(cells)} |")
    return lines


def main(seeds: int = SEEDS) -> None:
    PROBLEMS.update({one.name: one for one in (*FUNCTIONS, *tables())})
    tasks = [
        Task(problem, name, at_once, seed)
        for problem in PROBLEMS
        for at_once in AT_ONCE
        for seed in range(seeds)
        for name in SAMPLERS
    ]
    results = []
    with multiprocessing.get_context("fork").Pool() as pool:
        for result in pool.imap_unordered(run, tasks, chunksize=4):
            results.append(result)
            if len(results) % 200 == 0:
                print(f"{len(results)} of {len(tasks)} runs", file=sys.stderr, flush=True)
    told = pages.measured(f"Optuna {metadata.version('optuna')}")
    told += f"; {seeds} runs of {TRIALS} trials for each problem and sampler."
    pages.write("sweeps.md", [told, "", *report(Summary(results), list(PROBLEMS))])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
