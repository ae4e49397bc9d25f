"""The files of a sweep under many schedules: trials that ask for their parameters and tell how they
do, on nodes that share a folder as NFS shares it.

Processes take turns at every file operation, die at any of them, and meet failing disks. What a
network adds: link(2) whose answer is lost, listings that lag behind, and names that another node
has made and this one does not see yet. What each command was really started with, and what it
reached, is kept apart from the files and compared with them.

``python -m tests.simulation.study SEED`` shows what happens in one schedule.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from dray.node.jobs import policy
from dray.node.jobs.jobdir import JobDir
from dray.node.metrics.sources import Point
from dray.node.sweeps import sampler, trial
from dray.node.sweeps.study import Study
from tests.simulation.kernel import Fault, Kernel, Process, describe, simulated
from tests.simulation.luck import ERRORS
from tests.simulation.system import is_expected, replaced, replacements

SWEEP = "sweep-1"
STEPS = 4  # that a command reports
MOST_OPERATIONS = 90  # of an attempt, among which its fault is
UNSEEN = 40.0  # seconds for which a node may not see what another one has made
FAULTY = 3  # attempts of a trial that may go wrong; the next ones do not
LATEST = 3600.0

SAME_VALUES = "a trial's parameters never change, and all repeats have the same"
WRITTEN_DOWN = "the parameters that are written down are those that were used"
OWN_RESULT = "a result is that of its own trial"
NOT_LOST = "how a trial has ended is not lost"
ENDS = "every trial ends"


class Violation(NamedTuple):
    invariant: str
    what: str


class Network:
    """What a shared folder does that a disk does not, for simulated processes."""

    def __init__(self, kernel: Kernel, random: Random, folder: str) -> None:
        self.kernel = kernel
        self.random = random
        self.folder = folder
        self.trouble = random.choice((0.0, 0.1, 0.3))
        self.made: dict[str, tuple[str, float]] = {}  # path → its host, and until when unseen
        self.counts: Counter[str] = Counter()

    def happens(self) -> bool:
        return self.random.random() < self.trouble

    def replacements(self, below: list[tuple[Any, str, Any]]) -> list[tuple[Any, str, Any]]:
        real = {(owner, name): new for owner, name, new in below}
        return [
            (os, "link", self.linking(real[os, "link"])),
            (os, "open", self.opening(real[os, "open"])),
            (os, "scandir", self.listing(real[os, "scandir"])),
        ]

    def linking(self, real: Callable[..., None]) -> Callable[..., None]:
        def link(source: str, target: str, **options: Any) -> None:
            process = simulated()
            if process is None:
                return real(source, target, **options)
            real(source, target, **options)
            self.made[target] = (process.host, self.kernel.now + self.random.random() * UNSEEN)
            if self.happens():  # it was made, and sent again: the second one finds it there
                self.counts["links whose answer was lost"] += 1
                raise OSError(self.random.choice((errno.EEXIST, errno.EIO)), "answer lost")
            return None

        return link

    def is_unseen(self, path: Any, process: Process) -> bool:
        host, until = self.made.get(path, ("", 0.0)) if isinstance(path, str) else ("", 0.0)
        if not host or host == process.host or self.kernel.now >= until:
            return False
        return self.trouble > 0

    def opening(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            process = simulated()
            if process is not None and not flags & os.O_CREAT and self.is_unseen(path, process):
                self.counts["names that were not seen yet"] += 1
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return real(path, flags, *rest, **options)

        return opened

    def listing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def scandir(path: Any) -> Iterator[Any]:
            process = simulated()
            with real(path) as entries:
                found = list(entries)
            if process is not None and self.happens():  # what is new is not listed yet
                self.counts["listings that lag behind"] += 1
                found = [one for one in found if self.random.random() < 0.5]
            yield iter(found)

        return scandir


class World:
    def __init__(self, seed: int, folder: Path, trace: Callable[[str], None] | None) -> None:
        self.random = Random(seed)
        self.kernel = Kernel(seed)
        self.kernel.trace = trace
        self.root = str(folder)
        self.network = Network(self.kernel, self.random, self.root)
        self.repeats = self.random.choice((1, 1, 2))
        self.trials = self.random.randrange(2, 13) * self.repeats
        self.used: dict[int, list[Any]] = {}  # by trial: the values of each start
        self.reached: dict[int, float] = {}  # by trial: its last value
        self.ended: dict[int, str] = {}
        self.untold: set[int] = set()  # whose end met a disk that failed, and said so
        self.attempts: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self.write_files()

    def write_files(self) -> None:
        space = [
            {"name": "lr", "kind": "float", "low": 1e-5, "high": 0.1, "log": True},
            {"name": "act", "kind": "choice", "values": ["elu", "relu"]},
        ]
        record: Any = {"version": 1, "id": SWEEP, "created": 1.0, "space": space, "seed": 5}
        record.update(metric="reward", mode="max", repeats=self.repeats)
        record["sampler"] = self.random.choice(("tpe", "tpe", "random"))
        if self.random.random() < 0.5:
            record["stop"] = {"rule": "asha", "first": 1, "factor": 2, "total": STEPS}
        self.record = record
        part: Any = {"id": SWEEP, "first": 0, "count": self.trials, "at_once": None}
        Study(self.root, SWEEP).begin(record, part)
        for number in range(self.trials):
            place = self.job_dir(number)
            os.makedirs(place.attempts)
            job = {
                "id": place.id,
                "command": ["train"],
                "env": {},
                "resources": {"gpus": 0, "cpus": 1, "nodes": 1, "memory": None, "time": None},
                "resume": {"checkpoint": "", "grace": 1.0, "signal": ""},
                "outputs": [],
                "sweep": {"id": SWEEP, "trial": number},
            }
            Path(place.job).write_text(json.dumps(job))

    def job_dir(self, number: int) -> JobDir:
        return JobDir(os.path.join(self.root, "jobs", f"{SWEEP}.{number}"))

    # -- one attempt --------------------------------------------------------------------------

    def attempt(self, number: int) -> None:
        """What the loop and the supervisor do with a trial, in their order."""
        place = self.job_dir(number)
        with open(place.job) as file:
            job = json.load(file)
        end = trial.ask(place, job)
        if end is not None:
            self.violations.append(Violation(ENDS, f"{number} ended before it began: {end.reason}"))
            self.ended[number] = end.state
            return
        self.used.setdefault(number, []).append(job["sweep"]["values"])
        following = trial.Following(place, job)
        value = job["sweep"]["values"]["lr"]
        for step in range(1, STEPS + 1):
            following.note(Point("reward", step, value * step, 0.0))
            reason = following.look(None)  # type: ignore[arg-type]
            time.sleep(self.random.random() * 20)
            if reason:
                break
        self.reached[number] = value * step
        following.write()
        trial.tell_end(place, job, policy.Decision("done", ""))
        self.ended[number] = "done"

    def spawn(self, number: int) -> None:
        process = self.kernel.spawn(f"trial {number}", lambda: self.attempt(number))
        self.attempts[number] += 1
        process.host = f"node-{number}-{self.attempts[number]}"
        if self.attempts[number] <= FAULTY and self.random.random() < 0.5:
            at = self.random.randrange(MOST_OPERATIONS)
            process.fault = Fault(at, self.random.choice((0, 0, 0, *ERRORS)))
        process.output = lambda text: self.heard(number, text)
        process.at_end.append(lambda ended: self.again(number, ended))
        self.counts["attempts"] += 1

    def heard(self, number: int, text: bytes) -> None:
        if b"could not be told" in text:
            self.untold.add(number)

    def again(self, number: int, process: Process) -> None:
        """Make another attempt where one was lost, as the scheduler or the keeper would."""
        if not is_expected(process.error):
            assert process.error is not None
            self.violations.append(Violation(ENDS, f"{number}: {describe(process.error)}"))
            return
        if number not in self.ended and self.kernel.now < self.stop_at:
            self.spawn(number)

    def play(self) -> None:
        self.stop_at = self.kernel.now + LATEST
        for number in range(self.trials):
            self.spawn(number)
            self.kernel.run(self.random.random() * 10)
        self.kernel.run(LATEST)

    # -- afterwards ---------------------------------------------------------------------------

    def judge(self) -> None:
        study = Study(self.root, SWEEP)
        results = study.results()
        for number in range(self.trials):
            self.judge_trial(number, study, results.get(number, {}))

    def judge_trial(self, number: int, study: Study, result: Any) -> None:
        if number not in self.ended:
            self.violations.append(Violation(ENDS, f"{number} has not ended"))
            return
        first = number - number % self.repeats
        siblings = range(first, first + self.repeats)
        used = [one for sibling in siblings for one in self.used.get(sibling, [])]
        if any(one != used[0] for one in used):
            self.violations.append(Violation(SAME_VALUES, f"{number}: {used}"))
        given = study.parameters(number // self.repeats)
        if given is None or given["values"] != used[0]:
            self.violations.append(Violation(WRITTEN_DOWN, f"{number}: {given}, used {used[0]}"))
        if result and result.get("job") != self.job_dir(number).id:
            self.violations.append(Violation(OWN_RESULT, f"{number}: {result}"))
        if number in self.untold:
            return
        if result.get("state") != "done":
            self.violations.append(Violation(NOT_LOST, f"{number}: {result}"))
        elif "value" in result and result["value"] > self.reached[number] * (1 + 1e-9):
            self.violations.append(Violation(OWN_RESULT, f"{number}: {result}"))


def play(seed: int, trace: Callable[[str], None] | None = None) -> World:
    """Play one schedule, in the machine's memory where it can be; nothing of it is left."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="dray-simulation-", dir=place))
    try:
        world = World(seed, folder, trace)
        table = replacements(world.kernel)
        learns_early = (sampler, "START_UP", 2)  # so that who knows more chooses otherwise
        with replaced([*table, learns_early]), replaced(world.network.replacements(table)):
            try:
                world.play()
            finally:
                world.kernel.end_all()
        world.judge()
        world.counts += world.network.counts
        return world
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    shown = play(int(sys.argv[1]), print)
    for found in shown.violations:
        print(found.invariant, "|", found.what)
