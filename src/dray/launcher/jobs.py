"""Finds the jobs that a person means, and whether the current settings lead to them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dray.clusters.protocol import Cluster
from dray.errors import ClusterError, NotFound, UsageError, nearest
from dray.job.model import JobView
from dray.job.quantities import show_duration
from dray.launcher.context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SOME = 10  # of many jobs, those that are named


class Jobs:
    def __init__(self, context: Context) -> None:
        self.context = context

    def find(self, reference: str) -> tuple[str, Cluster]:
        """Return the job that this id, or unique beginning of one, means, and its cluster."""
        store = self.context.open_store()
        found = store.matching(reference) if reference else []
        if not found:
            known = [job_id for job_id, _ in store.recent_ids()]
            raise NotFound(
                f"there is no job '{reference}'.{nearest(reference, known)}",
                hint=f"dray ps --all lists the jobs.{self._elsewhere()}",
            )
        if len(found) > 1:
            self._refuse_several(reference, found)
        job_id, name = found[0]
        return job_id, self.context.cluster(name)

    def _refuse_several(self, reference: str, found: Sequence[tuple[str, str]]) -> NoReturn:
        """Say what to name in place of an id that means several jobs."""
        store = self.context.open_store()
        sweep, array = store.in_sweep(reference), store.in_array(reference)
        together = sweep or array
        if not together:
            raise UsageError(f"'{reference}' is not unique: {self._choices(found)}")
        look = f"dray sweep status {reference}" if sweep else f"dray ps {reference}"
        raise UsageError(
            f"'{reference}' is {len(together)} jobs: name one of them, such as {together[0]}",
            hint=f"'{look}' shows all of them.",
        )

    def _elsewhere(self) -> str:
        """Say how a job is found that another machine has submitted."""
        clusters = self.context.config.clusters
        away = [name for name in clusters if name != "local"]
        if not away:
            return ""
        name = away[0] if len(away) == 1 else "CLUSTER"
        return f" One that another machine submitted: dray ps --on {name} --all"

    def _choices(self, found: Sequence[tuple[str, str]]) -> str:
        """List jobs to choose from, with state and age."""
        store = self.context.open_store()
        views = [store.view(job_id) for job_id, _ in found[:SOME]]
        now = time.time()
        told = [
            f"{one.id} ({one.state}, {show_duration(now - one.spec.created)} ago)"
            for one in views
            if one is not None
        ]
        return ", ".join(told) + (" …" if len(found) > SOME else "")

    def find_all(self, references: Iterable[str]) -> list[str]:
        """Return the ids that these mean; an array's or a sweep's id means all its jobs."""
        store = self.context.open_store()
        found: dict[str, None] = {}
        for reference in references:
            together = store.in_sweep(reference) or store.in_array(reference)
            found.update(dict.fromkeys(together or [self.find(reference)[0]]))
        return list(found)

    def latest(self) -> str:
        """Return the job that was submitted last, from here or as far as is known here."""
        found = self.context.open_store().latest()
        if found is None:
            raise NotFound("no job is known here", hint="Submit one: dray run -- python train.py")
        return found

    def last_seen(self, job_id: str) -> JobView:
        view = self.context.open_store().view(job_id)
        if view is None:
            raise NotFound(f"there is no job '{job_id}'")
        return view

    def find_here(self, reference: str) -> tuple[str, Cluster]:
        """Find a job that the cluster as it is set now can be asked about."""
        job_id, cluster = self.find(reference)
        self.require_here(job_id, cluster)
        return job_id, cluster

    def is_here(self, job_id: str, cluster: Cluster) -> bool:
        """Return whether the cluster, as it is set now, has the job. The settings of another
        folder, or without those that are not trusted, may lead to another root, where nothing is
        known of the job."""
        known = self.context.open_store().place(job_id)
        if known:
            return known == cluster.files.path()
        return not self.context.config.distrusts(cluster.name)

    def require_here(self, job_id: str, cluster: Cluster) -> None:
        if not self.is_here(job_id, cluster):
            known = self.context.open_store().place(job_id)
            raise ClusterError(
                f"{job_id} was submitted to {cluster.name} with other settings"
                + (
                    f": it is in {known}, and this leads to {cluster.files.path()}" if known else ""
                ),
                hint="Run dray in the project the job was submitted from, or restore the cluster's "
                f"host and root. If its files are there now: dray ps --on {cluster.name} --all",
            )

    def require_all_here(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            self.find_here(job_id)
