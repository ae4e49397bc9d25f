"""Finds out what is the matter with a job: why it waits, what slows it, why it ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from dray.errors import ClusterError
from dray.job.model import Attempt, JobSpec, JobState, JobView, Resources, idle_words
from dray.job.quantities import show_duration
from dray.job.situation import Explanation, Reason
from dray.launcher.causes import cause_of
from dray.launcher.context import Context, message_of
from dray.launcher.logs import Logs
from dray.launcher.watching import GONE, Watching
from dray.records import NamedTuple

SILENT = 300.0  # seconds without a heartbeat after which that is worth telling
FEWEST = 3  # earlier waits that say something
LAST_LINES = 10


class Waits(NamedTuple):
    """How long earlier jobs waited on the same cluster, in seconds."""

    jobs: int
    shortest: float
    half: float  # half of them waited no longer than this
    longest: float
    alike: bool  # they asked for the same GPUs


class Diagnosis(NamedTuple):
    """What is the matter with a job."""

    view: JobView
    explanation: Explanation | None = None  # of one that waits
    waits: Waits | None = None
    findings: tuple[str, ...] = ()  # of one that runs, or has ended
    last_lines: tuple[str, ...] = ()
    cause: str = ""


class Explaining:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)
        self.logs = Logs(context)

    def why(self, reference: str) -> Diagnosis:
        view = self.watching.show(reference)
        if view.state is JobState.QUEUED:
            return self._waiting(view)
        if view.state is JobState.RUNNING:
            return Diagnosis(view, findings=tuple(slowed_by(view, time.time())))
        if view.reason.endswith(GONE):
            return Diagnosis(view)
        lines = self.logs.last_lines(view, LAST_LINES) if view.state is not JobState.DONE else []
        return Diagnosis(
            view,
            findings=tuple(end_of(view)),
            last_lines=tuple(lines),
            cause=cause_of(lines) if view.state is JobState.FAILED else "",
        )

    def _waiting(self, view: JobView) -> Diagnosis:
        """Explain it as far as the cluster can: what it says of the job itself is known already."""
        try:
            found = self.context.cluster(view.cluster).situation.explain(view)
        except ClusterError as error:
            found = Explanation(Reason(view.reason), remarks=(message_of(error),))
        if not found.reason.words:
            found = found._replace(reason=found.reason._replace(words=view.reason))
        waits = self.context.open_store().waits(view.cluster)
        return Diagnosis(view, explanation=found, waits=earlier_waits(view.spec, waits))


# -- pure ---------------------------------------------------------------------------------------


def earlier_waits(spec: JobSpec, waits: Sequence[tuple[Resources, float]]) -> Waits | None:
    """Sum up how long jobs like this one waited; where there are few of them, all jobs."""
    alike = [seconds for wanted, seconds in waits if asks_alike(wanted, spec.resources)]
    chosen = alike if len(alike) >= FEWEST else [seconds for _, seconds in waits]
    if len(chosen) < FEWEST:
        return None
    return Waits(len(chosen), min(chosen), median(chosen), max(chosen), chosen is alike)


def asks_alike(one: Resources, other: Resources) -> bool:
    return (one.gpus, one.gpu_type, one.nodes) == (other.gpus, other.gpu_type, other.nodes)


def slowed_by(view: JobView, now: float) -> list[str]:
    """Say what may slow a running job, or that nothing is seen."""
    if not view.attempts:
        return ["its batch job has begun, and no attempt yet: it is being made ready"]
    last, found = view.attempts[-1], []
    silence = now - (last.heartbeat or last.started or now)
    if silence > SILENT:
        found.append(
            f"no sign of life for {show_duration(silence)}: its node may hang, or its disk"
        )
    idle = idle_words(last.gpu_idle, last.heartbeat or now)
    if idle:
        found.append(f"{idle}: it may wait for data, or for something that never comes")
    elif last.gpu_use is not None:
        found.append(f"its GPUs are busy for {last.gpu_use:.0f} % of the time")
    if last.deadline and last.deadline > now:
        found.append(f"its attempt is ended in {show_duration(last.deadline - now)} at the latest")
    found += [f"attempt {one.number} {told_end(one)}" for one in view.attempts[:-1]][-3:]
    return found or ["nothing unusual is seen"]


def told_end(attempt: Attempt) -> str:
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"was {attempt.outcome}{reason}" if attempt.outcome else f"did not end{reason}"


def end_of(view: JobView) -> list[str]:
    """Say how the last attempt ended, where the job's own reason does not."""
    if not view.attempts:
        return ["it made no attempt"]
    last = view.attempts[-1]
    found = []
    if last.reason and last.reason not in view.reason:
        found.append(f"attempt {last.number}: {last.reason}")
    if last.exit_code and f"exit code {last.exit_code}" not in view.reason:
        found.append(f"its command ended with exit code {last.exit_code}")
    if last.signal and last.signal not in view.reason:
        found.append(f"its command was ended by {last.signal}")
    if len(view.attempts) > 1:
        found.append(f"it made {len(view.attempts)} attempts")
    return found
