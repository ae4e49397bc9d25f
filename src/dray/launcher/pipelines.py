"""The jobs that come before a new one: those it waits for, and those whose outputs it reads."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from dray.clusters.protocol import Cluster, Selection
from dray.errors import NotFound, Refused, UsageError
from dray.job.model import JobSpec, JobState, JobView, Snapshot
from dray.landing import Landing, raise_if_refused
from dray.launcher.context import Context
from dray.launcher.given import freeze_files
from dray.launcher.watching import Watching
from dray.node.formats.files import files_below
from dray.node.formats.shapes import is_path_inside
from dray.node.jobs.arrays import fold
from dray.node.jobs.following import ANY, HOW, OK
from dray.records import NamedTuple, replace

WHEN = (OK, ANY)
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,50}")


class Before(NamedTuple):
    """What a new job takes from others: it comes ``after`` JOB[:ok|any], and has as ``inputs``, by
    name, JOB[:PATH]."""

    after: tuple[str, ...] = ()
    inputs: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, after: Sequence[str], inputs: Sequence[str] | Mapping[str, str]) -> Before:
        """Read what the user has written: inputs as NAME=JOB[:PATH], or by name."""
        pairs = inputs.items() if isinstance(inputs, Mapping) else map(input_of, inputs)
        named: dict[str, str] = {}
        for name, reference in pairs:
            require_name(name)
            if name.upper() in (one.upper() for one in named):
                raise UsageError(f"the input {name} is given twice")
            named[name] = reference
        return cls(tuple(after), named)


NOTHING = Before()


def input_of(text: str) -> tuple[str, str]:
    name, equals, reference = text.partition("=")
    if not equals or not reference:
        raise UsageError(
            f"--input {text}: it is written NAME=JOB or NAME=JOB:PATH",
            hint="The command finds it in $DRAY_INPUT_NAME.",
        )
    return name, reference


def require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--input {name}: a name is of letters, digits and '_', and begins with a letter"
        )


def read_after(reference: str) -> tuple[str, str]:
    """Read JOB[:ok|any]."""
    job, colon, when = reference.partition(":")
    if colon and when not in WHEN:
        raise UsageError(
            f"--after {reference}: behind the colon comes ok, if it has to be done, or any, if it "
            "only has to have ended"
        )
    return job, when or OK


def read_input(name: str, reference: str) -> tuple[str, str]:
    """Read JOB[:PATH]."""
    job, _, path = reference.partition(":")
    path = path if path.startswith("/") else path.rstrip("/")
    if not is_path_inside(path):
        raise UsageError(
            f"--input {name}={reference}: the path has to lie among the job's outputs",
            hint="It is written as below $DRAY_OUTPUTS there, without a slash at its beginning.",
        )
    return job, path


class Pipelines:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)
        self.jobs = self.watching.jobs

    def planned(self, job: JobSpec, before: Before, target: Cluster) -> JobSpec:
        """Return the job as ``plan`` shows it; no other machine is asked."""
        if not before.after and not before.inputs:
            return job
        inputs: dict[str, Mapping[str, str]] = {}
        found = self._after(before.after, target)
        for name, reference in before.inputs.items():
            given, path = read_input(name, reference)
            view = self.jobs.last_seen(self.jobs.find(given)[0])
            told = f"{view.id}:{path}" if path else view.id
            inputs[name] = {"job": view.id, "path": path, "told": told}
            if self._is_of(view, target):
                self._require_output(view.id, path, target)
                if view.state.active:
                    found.setdefault(view.id, OK)
        seen = (self.jobs.last_seen(one) for one in found)
        require_waiting(job, [one.id for one in seen if one.state.active], target)
        after = {one: when for when in WHEN for one in fold(only(found, when))}
        return replace(job, after={**job.after, **after}, inputs={**job.inputs, **inputs})

    @contextmanager
    def bound(
        self, job: JobSpec, before: Before, target: Cluster
    ) -> Iterator[tuple[JobSpec, Sequence[Snapshot]]]:
        """Yield the job with what it takes from others, and what has to be sent to its cluster
        first: inputs from other clusters."""
        job = self.planned(job, before, target)
        inputs, sent = dict(job.inputs), []
        with ExitStack() as stack:
            for name in before.inputs:
                one = job.inputs[name]
                view = self.jobs.last_seen(one["job"])
                if self._is_of(view, target):
                    continue
                files = stack.enter_context(self._fetched(view.id, one["path"], target))
                inputs[name] = {"snapshot": files.id, "path": one["path"], "told": one["told"]}
                sent.append(files)
            yield replace(job, inputs=inputs), sent

    def _after(self, references: Sequence[str], target: Cluster) -> dict[str, str]:
        found: dict[str, str] = {}
        for reference in references:
            given, when = read_after(reference)
            for job_id in self.jobs.find_all([given]):
                view = self.jobs.last_seen(job_id)
                if not self._is_of(view, target):
                    raise Refused(
                        f"{job_id} runs on {view.cluster}: a job on {target.name} cannot wait for "
                        "it",
                        hint=f"Run both on one cluster, or wait here: dray wait {given} && dray "
                        "run …",
                    )
                if when == OK:
                    self._require_hope(view)
                found[job_id] = when
        return found

    def _require_hope(self, view: JobView) -> None:
        """Refuse to wait for a job that has ended, and is not done. Its cluster is asked: another
        machine may have resumed it."""
        if view.state.active or view.state is JobState.DONE:
            return
        view = self.watching.show(view.id)
        if not view.state.active and view.state is not JobState.DONE:
            raise Refused(
                f"{view.id}, {HOW[view.state]}, would have to be done first",
                hint=f"Resume it (dray resume {view.id}), or start however it ended: --after "
                f"{view.id}:{ANY}",
            )

    def _is_of(self, view: JobView, target: Cluster) -> bool:
        """Return whether the job's files lie where the target's do."""
        place = self.context.open_store().place(view.id)
        place = place or self.context.cluster(view.cluster).files.path()
        return place == target.files.path()

    def _require_output(self, job_id: str, path: str, target: Cluster) -> None:
        """Refuse an output that a job of this machine has not written, and will not. Elsewhere the
        job itself finds out: it would take a request to know."""
        if not path or not target.capabilities.is_local:
            return
        state = self.watching.show(job_id).state
        if state.active or state is JobState.LOST:  # what a lost one has written is saved later
            return
        if not os.path.lexists(os.path.join(target.files.path(job_id), "outputs", path)):
            raise NotFound(
                f"{job_id}, which is {state}, has no output {path}",
                hint=f"What it has is below {os.path.join(target.files.path(job_id), 'outputs')}",
            )

    @contextmanager
    def _fetched(self, job_id: str, path: str, target: Cluster) -> Iterator[Snapshot]:
        """Yield outputs of another cluster's job, frozen, to be sent on."""
        view = self.watching.require_files(job_id)
        if view.state.active:
            raise Refused(
                f"{job_id} runs on {view.cluster}, and has not ended: what it will have written "
                f"cannot be brought to {target.name} yet",
                hint=f"Wait for it: dray wait {job_id}",
            )
        source = self.context.cluster(view.cluster)
        wanted = Selection((path, f"{path}/**")) if path else Selection()
        cache = self.context.config.home.cache
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="input-", dir=cache) as folder:
            progress = self.context.reporter.progress("fetching input")
            with Landing(Path(folder)) as landing:
                source.files.pull(job_id, landing, progress, wanted)
            raise_if_refused(landing)
            found = [one for one in files_below(folder) if not Path(one).is_symlink()]
            if not found:
                raise NotFound(f"{job_id} has no output {path}".rstrip())
            progress = self.context.reporter.progress("reading input")
            yield freeze_files(found, folder, progress)


def only(found: Mapping[str, str], when: str) -> list[str]:
    return sorted((one for one, other in found.items() if other == when), key=in_order)


def in_order(job_id: str) -> tuple[int, str]:
    return len(job_id), job_id  # sweep.9 comes before sweep.10


def require_waiting(job: JobSpec, before: Collection[str], target: Cluster) -> None:
    """Refuse where a job would hold GPUs while it waits for others, which have not ended."""
    if not before or not job.resources.gpus or target.capabilities.awaits_jobs:
        return
    raise Refused(
        f"{target.name}: a job that waits for another would hold its GPUs meanwhile",
        hint="Nothing starts it later while this machine is off. Submit it once the other is done "
        f"(dray wait {next(iter(before))} && dray run …), or put both commands into one job.",
    )
