"""What really happened, kept apart from dray's files, and what must hold whatever happens."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dray.job.model import JobState, JobView
from tests.simulation.kernel import FOREVER, Kernel, Process

# The invariants, by name.
GONE = "an accepted job is never gone"
AT_ONCE = "never two attempts of one job at once"
AGAIN = "a run that is done is never started again"
HAPPENED = "what is told is what happened"
STILL_RUNS = "no job is told ended while it can still run"
DOUBLED = "a submission is one batch job"
SECRET_LEFT = "no secret is left once a job has ended and was looked at"
SECRET_MISSING = "no attempt lacks a secret that it needs"
RETRIES = "no more retries than were asked for"
BUDGET = "no attempt begins once the job's total time is used up"
ONE_JOB = "no request fails for a reason that is not told in a sentence"
LEAK = "a process that goes on leaves nothing open"
ENDS = "once the faults are over, everything comes to an end"
RESUMES = "once the faults are over, what has not succeeded can be resumed"
GPU_TWICE = "no GPU is given to two jobs at once"
LEFT = "a removed job leaves nothing behind"

# Of batch systems this is a guess, where an attempt was told to end and the books tell nothing.
CANCELLED = "cancelled in Kubernetes"

KNOWN: tuple[str, ...] = ()  # invariants that are not looked at; empty but while one is mended

# Reasons for which a job fails without a command that failed.
GIVEN_UP = ("given up", "without a new checkpoint", "no checkpoint is set", "could not be queued")
UNSEEN = 15.0  # seconds of running time that a full disk may hide
BEFORE_IT_RAN = ("before it ran", "it could not be killed")


class Violation(NamedTuple):
    invariant: str
    detail: str


class Run:
    """One start of a job's command."""

    def __init__(self, job: str, attempt: int, started: float) -> None:
        self.job = job
        self.attempt = attempt
        self.started = started
        self.ended = FOREVER
        self.code: int | None = None  # exit code; None where it was killed
        self.asked = False  # it was told to end, in time or too late
        self.heeded = False  # and that is why it did
        self.supervisor: Process | None = None
        self.gpus: list[int] = []  # on the machine that all share, where there is one

    @property
    def finished(self) -> bool:
        return self.code == 0 and not self.asked

    @property
    def was_seen(self) -> bool:
        """Whether its supervisor lived to tell of its end."""
        return self.supervisor is not None and not self.supervisor.dead

    def __repr__(self) -> str:
        return f"attempt {self.attempt} (exit code {self.code})"


class Deed:
    """A submission or a resumption, from the laptop's first word to its last agent's end."""

    def __init__(self, ids: Iterable[str], kind: str, began: float) -> None:
        self.ids = frozenset(ids)
        self.kind = kind
        self.began = began
        self.ended = FOREVER  # for the laptop
        self.agents: list[Process] = []

    def acted_since(self, moment: float) -> bool:
        """It, or an agent that it left behind, or a command that this one left behind."""
        actors = [*self.agents, *(one for agent in self.agents for one in agent.helpers)]
        return max([self.ended, *(one.ended_at for one in actors)]) >= moment


class Truth:
    def __init__(self, kernel: Kernel, root: str) -> None:
        self.kernel = kernel
        self.root = root
        self.runs: dict[str, list[Run]] = {}
        self.retries: dict[str, int] = {}
        self.total_time: dict[str, float] = {}  # of those that were not given more
        self.accepted: set[str] = set()
        self.deeds: list[Deed] = []
        self.told_ended: dict[str, float] = {}  # when that was asked for
        self.stops: set[str] = set()  # those that somebody asked to end
        self.cancelled: set[str] = set()  # those that somebody ever ended, by whatever way
        self.resumed_after: dict[str, int] = {}
        self.held: dict[Process, tuple[str, list[int]]] = {}  # GPUs, by others than dray's jobs
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()

    def violate(self, invariant: str, detail: str) -> None:
        if invariant not in KNOWN:
            self.kernel.say(f"VIOLATION: {invariant}: {detail}")
            self.violations.append(Violation(invariant, detail))

    # -- deeds ------------------------------------------------------------------------------------

    def begin(self, ids: Iterable[str], kind: str) -> Deed:
        deed = Deed(ids, kind, self.kernel.now)
        self.deeds.append(deed)
        for job in deed.ids:  # what was told or asked for before does not count any more
            self.told_ended.pop(job, None)
            self.stops.discard(job)
        return deed

    def was_changed_since(self, job: str, moment: float) -> bool:
        return any(job in deed.ids and deed.acted_since(moment) for deed in self.deeds)

    def is_being_changed(self, job: str) -> bool:
        return self.was_changed_since(job, self.kernel.now)

    # -- the command ------------------------------------------------------------------------------

    def started(self, run: Run, secret_is_there: bool) -> None:
        before = self.runs.setdefault(run.job, [])
        for other in before:
            if other.ended == FOREVER:
                self.violate(AT_ONCE, f"{run.job}: {run} starts while {other} runs")
            if other.finished and (other.was_seen or self._is_recorded_done(other)):
                self.violate(AGAIN, f"{run.job}: {run} starts after {other}")
        if run.job in self.told_ended and not self.is_being_changed(run.job):
            self.violate(STILL_RUNS, f"{run.job}: {run} starts after its end was told")
        if not secret_is_there:
            self.violate(SECRET_MISSING, f"{run.job}: {run} has no secret")
        self._count_retries(run, before)
        self._count_time(run, before)
        self._count_gpus(f"{run.job}: {run}", run.gpus)
        before.append(run)
        self.counts["commands"] += 1

    def _is_recorded_done(self, run: Run) -> bool:
        path = f"{self.root}/jobs/{run.job}/attempts/{run.attempt:03d}/outcome.json"
        try:
            with open(path, "rb") as file:
                return bool(json.load(file)["outcome"] == "done")
        except (OSError, ValueError):
            return False

    def _count_retries(self, run: Run, before: list[Run]) -> None:
        since = self.resumed_after.get(run.job, 0)
        crashes = [
            one
            for one in before
            if one.attempt > since and one.code and not one.asked and one.was_seen
        ]
        if len(crashes) > self.retries.get(run.job, 0) and not self.is_being_changed(run.job):
            self.violate(RETRIES, f"{run.job}: {run} starts after {len(crashes)} crashes")

    def _count_time(self, run: Run, before: list[Run]) -> None:
        used = sum(one.ended - one.started for one in before if one.was_seen)
        if used > self.total_time.get(run.job, FOREVER) + UNSEEN:
            self.violate(BUDGET, f"{run.job}: {run} starts after {used:.0f} s")

    def _count_gpus(self, who: str, gpus: list[int]) -> None:
        runs = [run for runs in self.runs.values() for run in runs if run.ended == FOREVER]
        taken = [(f"{run.job}: {run}", run.gpus) for run in runs]
        taken += [held for process, held in self.held.items() if not process.ended]
        for other, theirs in taken:
            if set(theirs) & set(gpus):
                self.violate(GPU_TWICE, f"{who} gets {gpus}, and {other} has {theirs}")

    def holds(self, process: Process, name: str, gpus: list[int]) -> None:
        """Somebody else got GPUs."""
        self._count_gpus(name, gpus)
        self.held[process] = (name, gpus)

    def gives_back(self, process: Process) -> None:
        del self.held[process]

    # -- what is told -----------------------------------------------------------------------------

    def told(self, asked: float, views: Mapping[str, JobView]) -> None:
        """What the laptop was told when, by when it had asked."""
        for job, view in views.items():
            self.counts[f"told {view.state}"] += 1
            if view.state.active:
                continue
            self._check_end(asked, view)
            if not self.was_changed_since(job, asked):
                self.told_ended.setdefault(job, asked)

    def _check_end(self, asked: float, view: JobView) -> None:
        runs = self.runs.get(view.id, [])
        said = f"{view.id} is told {view.state} ({view.reason[:90]})"
        if any(run.started < asked and run.ended == FOREVER for run in runs):
            self.violate(STILL_RUNS, f"{said}, and runs")
        if view.state is JobState.DONE and not any(
            run.code == 0 and not run.heeded for run in runs
        ):
            self.violate(HAPPENED, f"{said}, and no attempt of it was: {runs}")
        last = runs[-1] if runs and runs[-1].ended < asked else None
        if last and last.finished and last.was_seen and view.state is not JobState.DONE:
            self.violate(HAPPENED, f"{said}, and its last attempt was done")
        if view.state is JobState.FAILED and not self._has_failed(view, runs):
            self.violate(HAPPENED, f"{said}, and no attempt of it has failed: {runs}")
        if view.reason.startswith(CANCELLED) and view.id not in self.cancelled:
            self.violate(HAPPENED, f"{said}, and nobody did that")
        for attempt in view.attempts:
            self._check_attempt(view.id, attempt, runs)

    def _has_failed(self, view: JobView, runs: list[Run]) -> bool:
        is_explained = any(words in view.reason for words in GIVEN_UP + BEFORE_IT_RAN)
        return is_explained or any(run.code != 0 for run in runs)

    def _check_attempt(self, job: str, attempt: Any, runs: list[Run]) -> None:
        run = next((one for one in runs if one.attempt == attempt.number), None)
        told = f"{job}: attempt {attempt.number} is told {attempt.outcome} ({attempt.reason[:90]})"
        if attempt.outcome == "done" and (run is None or run.code != 0):
            self.violate(HAPPENED, f"{told}, and was {run}")
        if attempt.exit_code is not None and run is not None and attempt.exit_code != run.code:
            self.violate(HAPPENED, f"{told} with {attempt.exit_code}, and was {run}")

    # -- the batch system -------------------------------------------------------------------------

    def queued(self, new: Any, beside: Any) -> None:
        """Two that wait would both make attempts."""
        if beside is not None:
            self.violate(DOUBLED, f"{new.job} is queued as {beside.name} and as {new.name}")

    # -- files ------------------------------------------------------------------------------------

    def files_with_secrets(self) -> list[str]:
        return [path for path in all_files(self.root) if holds_secret(path)]


def all_files(root: str) -> list[str]:
    return [os.path.join(top, name) for top, _, names in os.walk(root) for name in names]


SECRET = "the-secret-of-"


def holds_secret(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return SECRET.encode() in file.read()
    except OSError:
        return False
