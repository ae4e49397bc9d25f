"""Measures what early stopping is worth at equal cost, on learning curves that are simulated.

``make bench-stopping`` runs it, and writes the figures into docs/explanation/sweeps.md. What
chooses, compares and ends trials is the code that does so on a node; the curves are made up here:
each rises to the end that the configuration deserves, more slowly for small learning rates, so
that curves cross, with noise of its own at each point and from run to run. The cost is counted in
steps; eight trials run at once. What is judged is what the trial is truly worth that ``dray sweep
best`` would name: the one with the highest value of those that were trained to their end.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from bench import pages
from bench.sweep_problems import OFF_POLICY, Values, off_policy
from dray.node.sweeps import asking, stopping

STEPS = 810  # of a whole training: compared at 30, 90 and 270
AT_ONCE = 8
SEEDS = 20
COSTS = (10, 30)  # in whole trainings
NOISES = {"little noise": 0.02, "noise as in RL": 0.15}
RULES = ("", "median", "asha")
SAMPLERS = ("random", "tpe")
PACE = (0.8, 1.2)  # how long a step takes, from trial to trial


class Ended(NamedTuple):
    """One sweep: the true value of its best trial, and how many configurations it tried."""

    worth: float
    tried: int


def worth(values: Values) -> float:
    """Return what a configuration is worth: the share of the best value, which is 1."""
    return 1 - off_policy(values)


def curve(values: Values, noise: float, rng: random.Random) -> Callable[[int], float]:
    end = worth(values) + rng.gauss(0, noise)  # runs of one configuration differ
    tau = STEPS * (0.1 + 0.3 * abs(math.log10(values["lr"]) + 2.5))
    return lambda step: end * (1 - math.exp(-step / tau)) + rng.gauss(0, noise / 2)


class Trial:
    def __init__(self, number: int, values: Values, noise: float, seed: int) -> None:
        rng = random.Random(f"{seed}:{number}")
        self.number = number
        self.pace = rng.uniform(*PACE)
        self.at = curve(values, noise, rng)
        self.points = stopping.Points()
        self.result: Any = {"state": "running", "rungs": {}}

    def train_until(self, step: int) -> int:
        """Train, and return the steps that it took."""
        before = self.points.last_step()
        for one in range(before + 1, step + 1):
            self.points.add(one, self.at(one))
        return step - before


class Sweep:
    """Trials that ask, are compared and end as the supervisor has it, in simulated time."""

    def __init__(self, sampler: str, rule: str, noise: float, seed: int) -> None:
        stop = {"rule": rule, "total": STEPS} if rule else None
        self.study: Any = {
            "space": OFF_POLICY, "sampler": sampler, "seed": seed, "repeats": 1, "mode": "max",
            "stop": stop,
        }  # fmt: skip
        self.stops = [*stopping.rungs_of(stop), STEPS] if stop else [STEPS]
        self.noise, self.seed = noise, seed
        self.trials: dict[int, Any] = {}
        self.results: dict[int, Any] = {}
        self.queue: list[tuple[float, int, int, Trial]] = []  # by time

    def start(self, now: float) -> None:
        number = len(self.trials)
        chosen = asking.choose(self.study, number, self.trials, self.results)
        self.trials[number] = chosen
        trial = Trial(number, chosen["values"], self.noise, self.seed)
        self.results[number] = trial.result
        self._goes_on(now, trial)

    def _goes_on(self, now: float, trial: Trial) -> None:
        done = trial.points.last_step()
        step = next(one for one in self.stops if one > done)
        heapq.heappush(self.queue, (now + (step - done) * trial.pace, trial.number, step, trial))

    def run(self, cost: float) -> Ended:
        now, spent = 0.0, 0
        while spent < cost * STEPS:
            while len(self.queue) < AT_ONCE:
                self.start(now)
            now, _, step, trial = heapq.heappop(self.queue)
            spent += trial.train_until(step)
            if self._is_over(trial):
                trial.result["value"] = trial.points.level()
            else:
                self._goes_on(now, trial)
        return self.best()

    def _is_over(self, trial: Trial) -> bool:
        """Compare the trial where it has come to a rung."""
        rule, rungs = self.study["stop"], trial.result["rungs"]
        passed = stopping.newly_passed(rule, trial.points, map(int, rungs)) if rule else []
        for rung in passed:
            others = asking.values_by_rung(self.results).get(rung, {}).values()
            own = trial.points.level(rung)
            rungs[str(rung)] = own
            if stopping.why_not_on(rule, "max", rung, own, list(others)):
                trial.result["state"] = "pruned"
                return True
        if trial.points.last_step() >= STEPS:
            trial.result["state"] = "done"
        return bool(trial.result["state"] == "done")

    def best(self) -> Ended:
        whole = {n: one["value"] for n, one in self.results.items() if one["state"] == "done"}
        ended = sum(1 for one in self.results.values() if one["state"] != "running")
        if not whole:
            return Ended(0.0, ended)
        return Ended(worth(self.trials[max(whole, key=lambda n: whole[n])]["values"]), ended)


def cell(sampler: str, rule: str, noise: float, cost: int) -> str:
    ends = [Sweep(sampler, rule, noise, seed).run(cost) for seed in range(SEEDS)]
    low, middle, high = statistics.quantiles([one.worth for one in ends], n=4)
    number = statistics.fmean(one.tried for one in ends)
    return f"{middle:.2f} ({low:.2f} to {high:.2f}; {number:.0f} tried)"


ABOUT = (
    "Simulated, with the code that compares and chooses on a node. The median of "
    f"{SEEDS} sweeps with {AT_ONCE} trials at once, in brackets the middle half of them and how "
    "many configurations were tried: what the trial is truly worth that `dray sweep best` names, "
    "as a share of the best value that there is."
)


def main() -> None:
    columns = [(cost, name) for cost in COSTS for name in NOISES]
    lines = [
        ABOUT,
        "",
        "| sampler, `--stop` | " + " | ".join(f"cost of {a}, {b}" for a, b in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for sampler, rule in ((sampler, rule) for rule in RULES for sampler in SAMPLERS):
        cells = [cell(sampler, rule, NOISES[name], cost) for cost, name in columns]
        lines.append(f"| {sampler}, {rule or 'none'} | {' | '.join(cells)} |")
    pages.write("sweeps.md", lines, "simulated stopping")


if __name__ == "__main__":
    main()
