"""Measures a thousand trials that do nothing, from the call that submits them to the last end.

``make bench-trials`` runs it, and writes the figures into docs/explanation/sweeps.md. Beside the
sweep, in the same run: an array of the same jobs without a sweep; what one would write by hand; and
Ray Tune with trials that do nothing either. CPU time is that of everything that was started,
Slurm's daemons included: it says more than the clock where the machine is not idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import pages
from bench.measure import best_of, command
from bench.processes import adopt_orphans, cpu_seconds
from bench.slurm import Laptop, short_folder
from dray.config import loading as configuration
from dray.launcher import Launcher
from dray.node.sweeps import asking, sampler
from dray.node.sweeps import study as node
from dray.sweep.study import Parameter, Study

TRIALS = 1000
ROUNDS = 5  # of submitting
NOTHING = "/bin/true"
SPACE = (Parameter("lr", "float", low=1e-5, high=1e-1, log=True), Parameter("x", "float", high=1.0))
UNDER_TUNE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


class Cost(NamedTuple):
    what: str
    seconds: float
    cpu: float | None  # None: not known
    trials: int

    def row(self, bare: Cost) -> str:
        each = 1000 / self.trials
        taken = [f"{self.seconds * each:.0f} ms"]
        beside = [f"{self.seconds / self.trials / (bare.seconds / bare.trials):.2f}×"]
        if self.cpu is not None and bare.cpu is not None:
            taken.append(f"{self.cpu * each:.0f} ms of CPU")
            beside.append(f"{self.cpu / self.trials / (bare.cpu / bare.trials):.2f}× of CPU")
        return (
            f"| {self.what} | {self.trials:,} | {self.seconds:.1f} s | {', '.join(taken)} | "
            f"{', '.join(beside)} |"
        )


def cost(what: str, trials: int, act: Callable[[], object]) -> Cost:
    print(f"{what} …", file=sys.stderr, flush=True)
    begin, used = time.perf_counter(), cpu_seconds()
    act()
    found = Cost(what, time.perf_counter() - begin, cpu_seconds() - used, trials)
    print(f"  {found.seconds:.1f} s, {found.cpu:.1f} s of CPU", file=sys.stderr, flush=True)
    return found


# -- submitting ---------------------------------------------------------------------------------


class Submitting:
    """Submits within one process, as the warm one does: the connection is open, the tree known."""

    def __init__(self, project: Path, on: str, trials: int) -> None:
        self.project, self.on, self.trials = project, on, trials

    def _launcher(self) -> Launcher:
        return Launcher(configuration.load(self.project, {"job.on": self.on}))

    def array(self) -> str:
        ids = self._launcher().run_many([[NOTHING, str(one)] for one in range(self.trials)])
        return ids[0].rpartition(".")[0]

    def sweep(self) -> str:
        study = Study(id="", space=SPACE, metric="reward")
        return self._launcher().sweeping.start(study, [NOTHING], self.trials)


def wait_for_ends(jobs: Path, array: str, trials: int) -> None:
    """Wait until all jobs of an array have ended, and see that they are done."""
    left = {f"{array}.{number}" for number in range(trials)}
    while left:
        time.sleep(0.5)
        left = {one for one in left if not (jobs / one / "end.json").exists()}
    odd = [
        number
        for number in range(trials)
        if json.loads((jobs / f"{array}.{number}/end.json").read_text())["state"] != "done"
    ]
    if odd:
        raise SystemExit(f"{len(odd)} of {trials} are not done: {array}.{odd[0]}")


# -- where --------------------------------------------------------------------------------------


def small_tree(folder: Path) -> Path:
    """Make a project of one file: to unpack thousands for each trial is not what is measured."""
    tree = folder / "small"
    tree.mkdir()
    (tree / "train.py").write_text("")
    return tree


class Place(NamedTuple):
    """A cluster that nothing has run on yet: what ran before would slow down what follows."""

    verbs: Submitting
    jobs: Path
    by_hand: Callable[[], None]

    def end(self, array: str) -> None:
        wait_for_ends(self.jobs, array, self.verbs.trials)


@contextmanager
def slurm(trials: int) -> Iterator[Place]:
    with short_folder() as short, Laptop(short) as laptop:
        os.environ.update(laptop.env)
        laptop.submit()
        script = laptop.root / "by-hand.sh"
        script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\ntrue\n")

        def by_hand() -> None:
            words = ["sbatch", f"--array=0-{trials - 1}", str(script)]
            command(*words, env=laptop.slurm.env)()
            while subprocess.check_output(["squeue", "-h"], env=laptop.slurm.env):
                time.sleep(0.5)

        yield Place(Submitting(small_tree(short), "hpc", trials), laptop.root / "jobs", by_hand)


@contextmanager
def this_machine(trials: int) -> Iterator[Place]:
    with short_folder() as short:
        os.environ["DRAY_HOME"] = str(short / "dray")
        loop = f"seq {trials} | xargs -P {os.cpu_count()} -n 1 {NOTHING}"
        verbs = Submitting(small_tree(short), "local", trials)
        yield Place(verbs, short / "dray/local/jobs", command("sh", "-c", loop))


WAYS: dict[str, Callable[[Place], object]] = {
    "by hand": lambda place: place.by_hand(),
    "an array with dray, no sweep": lambda place: place.end(place.verbs.array()),
    "a sweep of as many trials": lambda place: place.end(place.verbs.sweep()),
}


def on(where: str, made: Callable[[int], AbstractContextManager[Place]], trials: int) -> list[Cost]:
    found = []
    for way, act in WAYS.items():
        with made(trials) as place:
            found.append(cost(f"{where}: {way}", trials, partial(act, place)))
    return found


def under_tune(python: str, trials: int) -> list[Cost]:
    """Start Ray and Ray Tune in a network of their own: Ray listens on all addresses."""
    words = [*UNDER_TUNE, python, str(Path(__file__).parent / "tune.py"), str(trials)]
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": ""}
    told = {}

    def run() -> None:
        ended = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True)
        told.update(json.loads(ended.stdout.splitlines()[-1]))

    spent = cost("Ray Tune", trials, run)
    if told["done"] != trials:
        raise SystemExit(f"only {told['done']} of {trials} trials ended well under Ray Tune")
    start = f"{told['start']:.1f} s to start Ray are not counted"
    name = f"Ray Tune {told['version']}, `Tuner.fit`; {start}"
    # Ray's daemon does not wait for its workers: nobody is told what they have used.
    return [spent._replace(what=name, seconds=told["seconds"], cpu=None)]


def submission(trials: int) -> str:
    """Compare only the submission, of jobs that are held, over a link with 50 ms."""
    with short_folder() as short, Laptop(short, extra=["--hold"]) as laptop:
        os.environ.update(laptop.env)
        laptop.submit()
        laptop.submit()
        laptop.round_trip()
        verbs = Submitting(laptop.tree, "hpc", trials)
        script = laptop.root / "by-hand.sh"
        script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\n#SBATCH --hold\ntrue\n")
        by_hand = command("sbatch", f"--array=0-{trials - 1}", str(script), env=laptop.slurm.env)
        acts = {"sweep": verbs.sweep, "array": verbs.array, "sbatch": by_hand}
        times = best_of(acts, ROUNDS)
    floor = laptop.trip + times["sbatch"]
    return (
        f"Submitting a sweep of {trials:,} trials over a link with 50 ms took "
        f"{times['sweep'] * 1000:.0f} ms, the best of {ROUNDS}: {times['sweep'] / floor:.2f}× a "
        f"round trip and one `sbatch --array` ({floor * 1000:.0f} ms; goal ≤ 1.5×). The same array "
        f"without a sweep: {times['array'] * 1000:.0f} ms."
    )


def last_to_ask(trials: int) -> str:
    """Measure what the last trial of a sweep has to read and compute, once all others have told a
    value."""
    with short_folder() as root:
        record: Any = Study(id="s", space=SPACE, metric="reward", created=1.0).to_dict()
        study = node.Study(str(root), "s")
        study.begin(record, {"id": "s", "first": 0, "count": trials})
        for number in range(trials - 1):
            values = sampler.at_random(record["space"], 0, number)
            result = {"job": f"s.{number}", "state": "done", "value": -values["x"], "step": 100}
            for folder, content in (("trials", {"values": values}), ("results", result)):
                (root / f"sweeps/s/{folder}/{number}.json").write_text(json.dumps(content))
        times = [asked_once(root, trials - 1) for _ in range(ROUNDS)]
    return (
        f"The last of {trials:,} trials, where all others have told a value, uses {times[0]:.0f} "
        f"ms of CPU to choose its parameters where nobody has read their files before, and "
        f"{min(times[1:]):.0f} ms else."
    )


def asked_once(root: Path, number: int) -> float:
    begin = time.process_time()
    study = node.Study(str(root), "s")
    results, trials = study.results(), study.trials()
    study.keep_cache()
    study.give(number, asking.choose(study.record() or {}, number, trials, results))
    took = time.process_time() - begin
    (root / f"sweeps/s/trials/{number}.json").unlink()
    return took * 1000


def main(python: str, trials: int = TRIALS, in_tune: int = TRIALS) -> None:
    adopt_orphans()
    before = os.getloadavg()[0]
    parts = [
        on("Slurm", slurm, trials),
        on("this machine", this_machine, trials),
    ]
    tune = under_tune(python, in_tune)
    told = [submission(trials), "", last_to_ask(trials)]
    load = f"the load was {before:.0f} before and {os.getloadavg()[0]:.0f} after"
    lines = [
        f"{pages.measured()}; {load}. The goal is at most 1.2× of dray's array without a sweep.",
        "",
        "| end to end | trials | took | for one | beside the array |",
        "|---|---|---|---|---|",
        *(one.row(part[1]) for part in parts for one in part),
        *(one.row(parts[1][1]) for one in tune),
        "",
        *told,
    ]
    pages.write("sweeps.md", lines, "trials")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
