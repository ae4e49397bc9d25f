"""Resumes a job that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from dray.clusters.protocol import Cluster
from dray.description.describing import renewed_limits
from dray.errors import Refused, UsageError
from dray.job.model import JobSpec, JobState, JobView
from dray.job.options import env_name
from dray.launcher.context import Context
from dray.launcher.freezing import Freezer
from dray.launcher.notifying import private_settings, private_values
from dray.launcher.submission import Submission
from dray.launcher.watching import Watching
from dray.node.formats.shapes import DESCRIPTION_VERSION
from dray.node.jobs import budget, following
from dray.records import replace

if TYPE_CHECKING:
    from dray.images.verbs import ImageVerbs


RESUMABLE = (JobState.FAILED, JobState.STOPPED, JobState.LOST)


class Changes(TypedDict, total=False):
    """What is to differ from the last attempt."""

    update_code: bool
    start_from: str  # a checkpoint of the job's, or "scratch" for none
    secrets: Sequence[str]  # in addition to those that it was submitted with from here
    limits: Mapping[str, Any]  # settings of [job.limits], by key, in the place of its own


class Resuming:
    def __init__(self, context: Context, images: Callable[[], ImageVerbs]) -> None:
        self.context = context
        self.images = images
        self.watching = Watching(context)

    def resume(
        self,
        reference: str,
        *,
        update_code: bool = False,
        start_from: str = "",
        secrets: Sequence[str] = (),
        limits: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Start another attempt of an ended job from its newest valid checkpoint, or from the one
        that ``start_from`` names."""
        self.context.config.require_trust()
        self._require_one(reference)
        view = self.watching.show(reference)
        if view.state.active:
            raise Refused(f"{view.id} is {view.state}: it goes on by itself")
        if view.state is JobState.DONE:
            raise Refused(f"{view.id} is done", hint=f"To run it anew: dray run --like {view.id}")
        if view.spec.version > DESCRIPTION_VERSION:
            raise Refused(
                f"{view.id} was submitted by a newer dray than this one",
                hint="Update dray on this machine, or resume the job from where it was submitted.",
            )
        cluster = self.context.cluster(view.cluster)
        require_hope(view, cluster)
        last = view.attempts[-1].number if view.attempts else 0
        job = replace(self._ours(view, secrets), resumed_after=last, start_from=start_from)
        job = replace(job, version=DESCRIPTION_VERSION, sweep=alone(job.sweep))
        job = replace(job, limits=renewed_limits(job, limits, time.time()))
        require_allowance(job, view)
        project = Path(job.project) if update_code else None
        if project is not None and not project.is_dir():
            raise Refused(f"the project's folder {project} is not there any more")
        settings = private_settings(self.context.config, cluster.name, None)
        private = private_values(job.secrets, settings)
        freezer = Freezer(self.context, project, job.outputs) if project is not None else None
        submission = Submission(self.context, self.images, cluster, job, private, freezer)
        submission.resume()
        store = self.context.open_store()
        store.add_event("resumed", view.id)
        queued = replace(view, state=JobState.QUEUED, reason="", ended=None)
        store.save_own(replace(queued, spec=submission.job))
        return view.id

    def _require_one(self, reference: str) -> None:
        """Refuse to resume a sweep, or an array, as a whole: which of its jobs are worth it, and
        from which checkpoint, is for the user to say."""
        store = self.context.open_store()
        trials = store.in_sweep(reference)
        together = trials or store.in_array(reference)
        if len(together) < 2:
            return
        views = filter(None, map(store.view, together))
        ended = [one.id for one in views if one.state in RESUMABLE]
        one = ended[0] if ended else together[-1]
        hint = f"One of them: dray resume {one}."
        if trials:
            look = f"dray sweep status --all {reference}"
            pruned = f"dray sweep go-on {reference} --best 3"
            hint += f" '{look}' shows which have failed; '{pruned}' resumes those that were pruned."
        else:
            hint += f" 'dray ps --all {reference}' shows which have failed."
        raise UsageError(
            f"'{reference}' is {len(together)} jobs, and they are resumed one by one", hint=hint
        )

    def _ours(self, view: JobView, secrets: Sequence[str]) -> JobSpec:
        """Return the job's description, in which no cluster has a say over what leaves this
        machine: for a job that another machine has submitted, the user names the secrets again, and
        the code is that of the current folder."""
        spec = view.spec
        for name in secrets:
            try:
                env_name(name)
            except ValueError as error:
                raise UsageError(f"--secret {name}: {error}") from error
        if not spec.command:
            raise Refused(f"{view.id} cannot be resumed: {view.reason}")
        if self.context.open_store().is_own(view.id):
            return replace(spec, secrets=tuple(dict.fromkeys([*spec.secrets, *secrets])))
        if spec.secrets and not secrets:
            flags = " ".join(f"--secret {name}" for name in spec.secrets)
            raise Refused(
                f"{view.id} is not known to have been submitted from here, and {view.cluster} says "
                f"that it needs secrets: {', '.join(spec.secrets)}",
                hint=f"Name those that it may have: dray resume {view.id} {flags}",
            )
        project = str(self.context.config.project)
        return replace(spec, secrets=tuple(secrets), project=project)


def alone(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """Return which trial a job is, without those that it shared a batch job with: it gets one of
    its own, of the size of its part. It was asked for, and starts though its sweep is closed."""
    own = {key: value for key, value in sweep.items() if key != "per_node"}
    return {**own, "asked_for": True} if own else {}


def require_hope(view: JobView, cluster: Cluster) -> None:
    """Refuse to resume a job that could never start, as one that has to be done first cannot be
    any more. Who has begun waits for nobody."""
    awaited = {} if view.attempts else following.awaited(view.spec.after)
    needed = [one for one, when in awaited.items() if when == following.OK]
    found = cluster.queue.status(needed).jobs if needed else {}
    for one in needed:
        state = str(found[one].state) if one in found else following.REMOVED
        if state not in following.HOW:
            continue
        anew = f"run it anew without that: dray run --like {view.id}"
        is_gone = state == following.REMOVED
        raise Refused(
            f"{view.id} would never start: it comes after {one}, {following.HOW[state]}",
            hint=f"{anew[0].upper()}{anew[1:]}" if is_gone else f"dray resume {one}, or {anew}",
        )


def require_allowance(job: JobSpec, view: JobView) -> None:
    """Refuse to resume a job that has used up its limits."""
    spent = budget.used_up(job.to_dict(), [one.to_dict() for one in view.attempts])
    if spent is not None:
        flag = "--gpu-hours" if job.limits.gpu_hours else "--total-time"
        raise Refused(
            f"{view.id} cannot go on: {spent.reason}",
            hint=f"Give it more, in all: dray resume {view.id} {flag} …",
        )
