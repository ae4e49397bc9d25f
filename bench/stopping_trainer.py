"""Measures what early stopping is worth at equal cost with a real trainer: rsl_rl, on the CPU.

``make bench-stopping`` runs it after ``bench.stopping``, with the environment of the trainers'
tests, and writes the figures into docs/explanation/sweeps.md. Sweeps are started as users start
them, on this machine. One without ``--stop`` has as many trials as whole trainings are paid for;
one with it is stopped as soon as its trials have done as many iterations together. The
configuration that ``dray sweep best`` names is then trained three times more, with other seeds:
that is its value. Each step of the task sleeps, so that a busy machine changes little.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import pages
from bench.slurm import short_folder

ITERATIONS = 135  # of a whole training
FIRST = 5  # comparison; then at 15 and 45
COST = 8  # in whole trainings
SEEDS = 2
AT_ONCE = 6
MOST = 60  # trials
NAP = "0.03"  # seconds for each of the 16 steps of an iteration
METRIC = "Train/mean_reward"
PROJECT = Path(__file__).parent.parent / "tests/trainers/project"
SPACE = (
    "learning_rate=1e-5..1e-1:log", "entropy_coef=1e-4..0.3:log", "gamma=0.7..0.999",
    "clip_param=0.05..0.5", "desired_kl=0.001..0.1:log", "width=4,16,64",
)  # fmt: skip
ASHA = ("--stop", "asha", "--stop-first", str(FIRST), "--stop-total", str(ITERATIONS))
WAYS: dict[str, tuple[str, ...]] = {"none": (), "asha": ASHA}


class Ended(NamedTuple):
    named: float  # the value of the best one, as the sweep tells it
    again: float  # the same configuration, trained anew
    tried: int
    iterations: int


class User:
    """Calls dray in a home and a project of its own."""

    def __init__(self, folder: Path, python: str) -> None:
        self.project, self.home, self.python = folder / "project", folder / "dray", python
        self.jobs = self.home / "local/jobs"
        self.env = {**os.environ, "DRAY_HOME": str(self.home), "POINT_MASS_NAP": NAP}
        shutil.copytree(PROJECT, self.project)
        shutil.copy(Path(__file__).parent / "rsl_rl_trial.py", self.project)
        self.home.mkdir(mode=0o700)
        (self.home / "config.toml").write_text(f"[clusters.local]\ncpus = {AT_ONCE}\n")

    def __call__(self, *words: str) -> str:
        dray = str(Path(sys.executable).parent / "dray")
        ended = subprocess.run([dray, *words], cwd=self.project, env=self.env, stdout=-1, text=True)
        return ended.stdout.strip()

    def start(self, *flags: str, command: tuple[str, ...]) -> str:
        env = ("--env", f"POINT_MASS_NAP={NAP}", "--env", "OMP_NUM_THREADS=1")
        told = ("--metric", METRIC, *env, *flags, "--", self.python, "rsl_rl_trial.py", *command)
        return self("sweep", "start", *told)

    def configurations(self, sweep: str) -> list[dict[str, Any]]:
        told = json.loads(self("sweep", "status", "--json", sweep))
        return list(told["configurations"])

    def iterations(self, sweep: str) -> int:
        done = self.jobs.glob(f"{sweep}*/outputs/iterations")
        return sum(int(one.read_text() or 0) for one in done)


def tried(user: User, rule: str, seed: int) -> Ended:
    space = [word for one in SPACE for word in ("--space", one)]
    trials = str(MOST if rule != "none" else COST)
    flags = (*space, "--trials", trials, "--at-once", str(AT_ONCE), "--seed", str(seed))
    command = (str(ITERATIONS), "{seed}")
    sweep = user.start(*flags, *WAYS[rule], command=command)
    if rule == "none":
        user("wait", sweep)
    else:
        while user.iterations(sweep) < COST * ITERATIONS:
            time.sleep(2)
        user("sweep", "stop", "--now", sweep)
    spent = user.iterations(sweep)
    began = [one for one in user.configurations(sweep) if one["values"]]
    (best,) = [one for one in began if one["rank"] == 1]
    print(f"{rule}, seed {seed}: {best['value']:.2f}, {len(began)} tried", file=sys.stderr)
    return Ended(best["value"], trained_again(user, sweep), len(began), spent)


def trained_again(user: User, sweep: str) -> float:
    best = shlex.split(user("sweep", "best", "-n", "1", "--command", sweep))
    given = best[best.index("rsl_rl_trial.py") + 3 :]
    again = ("--space", "again=101,102,103", "--sampler", "grid")
    checked = user.start(*again, command=(str(ITERATIONS), "{again}", *given))
    user("wait", checked)
    return statistics.fmean(one["value"] for one in user.configurations(checked))


ABOUT = (
    f"PPO on a small task of our own, {len(SPACE)} parameters; sweeps on this machine with "
    f"{AT_ONCE} trials at once, each at the cost of {COST} whole trainings of {ITERATIONS} "
    f"iterations. One column for each sweep: an example, and no proof. The mean "
    "reward of the configuration that is named best, trained three times anew; in brackets what "
    "the sweep itself had told of it."
)


def main(python: str, seeds: int = SEEDS) -> None:
    columns = range(1, seeds + 1)
    with short_folder() as folder:
        user = User(folder, python)
        ends = {rule: [tried(user, rule, seed) for seed in columns] for rule in WAYS}
    lines = [
        f"{pages.measured('rsl_rl')}. {ABOUT}",
        "",
        "| `--stop` | " + " | ".join(f"seed {one}" for one in columns) + " |",
        "|---" * (seeds + 1) + "|",
    ]
    for rule, found in ends.items():
        cells = [
            f"{one.again:.2f} ({one.named:.2f}); {one.tried} tried in {one.iterations:,} iterations"
            for one in found
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    pages.write("sweeps.md", lines, "stopping a trainer")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
