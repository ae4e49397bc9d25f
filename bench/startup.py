"""How quickly the command line answers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.measure import Figure, best_of, command
from dray.job.model import Attempt, JobSpec, JobState, JobView
from dray.store import Store


def fill(store: Path, count: int) -> None:
    """Fill a store with this many ended jobs, the newest of today."""
    now = time.time()
    Store(store).save(
        JobView(
            spec=JobSpec(
                id=f"train-{number:06d}",
                name="train",
                command=("python", "train.py", f"--seed={number}"),
                created=now - number * 60,
            ),
            cluster="local",
            state=JobState.DONE,
            ended=now - number * 60 + 30,
            attempts=(Attempt(number=1, outcome="done", exit_code=0, started=now, ended=now),),
        )
        for number in range(count)
    )


def run(folder: Path) -> list[Figure]:
    dray = str(Path(sys.executable).parent / "dray")
    envs = {}
    for count in (1_000, 100_000):
        home = folder / f"home-{count}"
        fill(home / "store.db", count)
        envs[count] = {**os.environ, "DRAY_HOME": str(home)}
    times = best_of(
        {
            "python": command(sys.executable, "-c", "pass"),
            "click": command(sys.executable, "-c", "import click"),
            "help": command(dray, "--help"),
            "ps": command(dray, "ps", env=envs[1_000]),
            "ps many": command(dray, "ps", env=envs[100_000]),
            "wait": command(dray, "wait", "train-000001", env=envs[1_000]),
            "clusters": command(dray, "cluster", "list", env=envs[1_000]),
        },
        rounds=25,
    )
    floor = times["python"]

    def figure(what: str, key: str, most: float) -> Figure:
        ratio = times[key] / floor
        value = times[key] * 1000
        return Figure(what, value, "ms", "python -c pass", ratio, f"≤ {most:g}×", ratio <= most)

    return [
        figure("`dray --help`", "help", 5),
        figure("`dray ps`, 1,000 jobs in the store", "ps", 4),
        figure("`dray ps`, 100,000 jobs in the store", "ps many", 4),
        figure("`dray wait`, a job that has ended", "wait", 4),
        figure("`dray cluster list`", "clusters", 4),
    ]
