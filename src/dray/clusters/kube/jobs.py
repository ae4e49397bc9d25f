"""The jobs of a namespace: the agent has their files, the API server says what becomes of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.clusters.agent import answers
from dray.clusters.kube import lost_nodes, queue, without_files
from dray.clusters.kube.cluster import PodCluster
from dray.clusters.kube.helper import NoRoom
from dray.clusters.kube.looking import NAMED, Look
from dray.clusters.kube.submitting import SubmittingQueue
from dray.clusters.kube.without_files import Told
from dray.clusters.protocol import Statuses
from dray.job.model import JobState, JobView
from dray.node.jobs.arrays import fold

if TYPE_CHECKING:
    from dray.node.formats.records import Asked, QueueGroup

WRITTEN_ENDS = (JobState.DONE, JobState.FAILED, JobState.STOPPED)


class KubernetesQueue(SubmittingQueue):
    def __init__(self, cluster: PodCluster) -> None:
        super().__init__(cluster)
        self._stopped: set[str] = set()  # that had nothing but their Jobs

    @property
    def _told(self) -> Told:
        return Told(self.cluster.kube, self.cluster.name, self._seen)

    def _look(self, ids: Sequence[str]) -> Look:
        self._seen = self.cluster.kube.look(self.cluster.place(), ids)
        return self._seen

    def news(self, *ids: str) -> Asked:
        seen = self._look(ids)
        told: Asked = {"queue": queue.grouped(seen.rows), "ends": seen.ends}
        if seen.overdue:
            told["overdue"] = fold(list(seen.overdue))
        return told

    def heed(self, answer: Mapping[str, Any], asked: Collection[str]) -> None:
        """Delete the Jobs of those that wait and are to be stopped; the pods of those that run are
        asked to end, so that they look for the request at once. Pods of a node that is gone are
        given up once their job gives no sign of life."""
        place = self.cluster.place()
        with answers.reading(self.cluster.name):
            cancelled = answers.unfold(answer.get("cancel", []), answers.MOST_JOBS)
            interrupted = answers.unfold(answer.get("interrupt", []), answers.MOST_JOBS)
            silent = answers.unfold(answer.get("give_up", []), answers.MOST_JOBS)
        self.cluster.kube.delete_jobs(place, [one for one in cancelled if one in asked])
        self.cluster.kube.delete_pods(place, [one for one in interrupted if one in asked])
        for job_id in silent:
            lost_nodes.give_up(self.cluster.kube, self._seen.overdue.pop(job_id, []))

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        """Ask the agent, as everywhere; of what it has no files yet, or where nobody can be asked,
        tell what the API server says."""
        asked = [one for one in ids if one not in self._stopped]
        try:
            if self.cluster.place().one_node:
                self._make_way(asked)
            if brief and len(asked) > NAMED:
                found = self._status_of_many(asked)
            else:
                found = super().status(asked, brief=brief)
        except NoRoom as error:
            found = Statuses(self._told.of(asked, error.message))
            if all(one.is_unreadable for one in found.jobs.values()):
                raise
        self._clear_away(found.jobs)
        unknown = [one for one in asked if one not in found.jobs and one not in found.waiting]
        if self._early is not None and self._early.job_id in unknown:  # its directory never came
            self._take_back()
        more = self._told.of_carried(unknown) if unknown else {}
        for job_id in self._stopped.intersection(ids):
            more[job_id] = self._told.view(job_id, JobState.STOPPED, without_files.STOPPED)
        return Statuses({**found.jobs, **more}, found.waiting)

    def _clear_away(self, views: Mapping[str, JobView]) -> None:
        """Delete the Jobs of those that have written their end down, and whose node does not tell
        that their pods have ended: Kubernetes would wait for that. Given up, a pod would only be
        followed by another."""
        for job_id in self._seen.overdue:
            view = views.get(job_id)
            if view is not None and not view.is_unreadable and view.state in WRITTEN_ENDS:
                self.cluster.kube.delete_job(self._seen.named[job_id])

    def _status_of_many(self, ids: Sequence[str]) -> Statuses:
        """Ask the API server and the agent at the same time. The agent is told that all of them
        wait, and says which have made no attempt: where there are Jobs that have not ended for
        those, they wait. It is asked again about the others, with what Kubernetes says of them."""
        from concurrent.futures import ThreadPoolExecutor  # only for many

        asked, place = set(ids), self.cluster.place()
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(self.cluster.kube.survey, place, ids)
            folded = fold(ids)
            all_wait: list[QueueGroup] = [{"ids": folded, "state": "waiting", "why": ""}]
            try:
                answer = self.cluster.agent.ask("status", ids=folded, brief=True, queue=all_wait)
            except NoRoom:  # then the API server has to tell all of it
                self._look(ids)
                raise
            self._seen = looking.result()
        rows = self._seen.rows
        self.heed(answer, asked)
        with answers.reading(self.cluster.name):
            self._unsent = answers.unsent(answer)
            untried = [job for group, _ in answers.waiting_groups(answer, asked) for job in group]
        waiting = {one: rows[one].why for one in untried if queue.is_waiting(rows.get(one))}
        others = [one for one in ids if one not in waiting]
        told = super().status(others, brief=True) if others else Statuses({})
        return Statuses(told.jobs, {**waiting, **told.waiting})

    def _make_way(self, ids: Sequence[str]) -> None:
        """End the helper where a pod needs the volume on another node, maybe, and do not start one
        only to look. Raises NoRoom then."""
        rows = self._look(ids).rows
        needy = [one for one, row in rows.items() if queue.is_being_made(row.why)]
        if needy and all(map(queue.is_waiting, rows.values())):
            self.cluster.end_helper()
            raise NoRoom(f"the volume goes to the node of {needy[0]}, and nobody can look at it")

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        """Ask the agent; jobs of which nothing is there but their Jobs are stopped by deleting
        those."""
        silence: NoRoom | None = None
        try:
            super().stop(ids, now=now)
        except NoRoom as error:
            silence = error
        self._stop_carried(without_files.waiting(self._seen.rows))
        if silence is not None and not self._stopped.issuperset(ids):
            raise silence

    def _stop_carried(self, ids: Sequence[str]) -> None:
        try:
            known = super().status(ids).jobs
        except NoRoom:
            known = {}
        unfiled = list(self._told.of_carried([one for one in ids if one not in known]))
        self.cluster.kube.delete_jobs(self.cluster.place(), unfiled)
        self._stopped.update(unfiled)

    def remove(self, ids: Sequence[str]) -> None:
        self.cluster.kube.delete_jobs(self.cluster.place(), ids)
        super().remove(ids)
