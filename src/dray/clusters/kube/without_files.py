"""Tells of jobs by the API server alone: their files are not on the volume yet, or nobody is there
who could look at them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from dray.clusters.kube import queue
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.looking import Look
from dray.job.model import JobSpec, JobState, JobView
from dray.records import NamedTuple, replace

STOPPED = "stopped on request, before it started"


class Told(NamedTuple):
    """``name``: the cluster's. ``seen``: what the API server has just said."""

    kube: Cluster
    name: str
    seen: Look

    def of(self, ids: Sequence[str], why: str) -> dict[str, JobView]:
        """Tell what is known of jobs where nobody can be asked, and why that is."""
        rows, named = self.seen.rows, self.seen.named
        found = {
            job_id: self.view(job_id, JobState.QUEUED, rows[job_id].why)
            for job_id in ids
            if queue.is_waiting(rows.get(job_id))
        }
        found |= self.of_carried([one for one in ids if one in named and one not in found])
        for job_id in ids:
            if job_id not in found:
                view = self.view(job_id, JobState.RUNNING, why)
                found[job_id] = replace(view, is_unreadable=True)
        return found

    def of_carried(self, ids: Sequence[str]) -> dict[str, JobView]:
        """Tell of those jobs that bring their files along, and have not got to, or never could."""
        found = {}
        named = {one: self.seen.named[one] for one in ids if one in self.seen.named}
        for job_id, job in self.kube.carried(named).items():
            row = self.seen.rows.get(job_id)
            end = self.kube.end_of(job_id, job) if row is None else None
            if row is not None:
                why = row.why or queue.MADE_READY
                found[job_id] = self.view(job_id, JobState.QUEUED, why)
            elif end is not None:
                found[job_id] = self.view(job_id, JobState.FAILED, end["reason"])
        return found

    def view(self, job_id: str, state: JobState, reason: str) -> JobView:
        """Describe it by its state alone: what it is, the store of whoever submitted it knows."""
        return JobView(
            spec=JobSpec(id=job_id, name="", command=()),
            cluster=self.name,
            state=state,
            reason=reason,
            ended=None if state.active else time.time(),
        )


def waiting(rows: Mapping[str, queue.Row]) -> list[str]:
    return [job_id for job_id, row in rows.items() if queue.is_waiting(row)]
