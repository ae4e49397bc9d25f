"""Jobs on their way to Kubernetes: their directories by the agent, their Jobs by the API server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dray.clusters.agent.cluster import AgentQueue
from dray.clusters.kube import carrying, manifest, volumes
from dray.clusters.kube.api import Replaces
from dray.clusters.kube.cluster import PodCluster
from dray.clusters.kube.early import EarlyJob
from dray.clusters.kube.helper import NoRoom
from dray.clusters.kube.looking import Look
from dray.errors import ClusterError, DrayError, Refused
from dray.job.model import Plan, Private, Snapshot
from dray.node.formats import faults
from dray.node.jobs.arrays import size_of
from dray.reporter import Progress
from dray.transport.channel import LinkLost
from dray.transport.link import Answer

if TYPE_CHECKING:
    from dray.node.formats.records import End, RequestedJob


def secret_files(secrets: Private) -> dict[str, bytes]:
    """Return what goes into the job's Secret; where to notify is kept with its files."""
    return secrets._replace(notify={}).files()


class SubmittingQueue(AgentQueue):
    cluster: PodCluster

    def __init__(self, cluster: PodCluster) -> None:
        super().__init__(cluster)
        self._is_unclear = False  # whether a Job may be there that was being created
        self._end_before: End | None = None  # of the job that was resumed last
        self._has_gone_on = False  # whether somebody else had resumed it before
        self._seen = Look({}, {}, {}, {})  # what the API server said last
        self._early: EarlyJob | None = None  # of the submission that is under way, or is unclear

    @property
    def may_have_got(self) -> bool:
        return super().may_have_got or self._is_unclear

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        try:
            words = self.cluster.python_words()
            self._require_volume()
            self._early = self._early_job(plan, words, secrets)
            self._send("submit", plan, secrets._replace(secrets={}), code, progress)
        except NoRoom as error:
            self._take_back()
            self._create_carrying(plan, secrets, code, progress, error)
            return
        except LinkLost:  # the directory may be there: its pod, or the next status, finds out
            raise
        except DrayError:
            self._take_back()
            raise
        if self._early is None or not self._early.is_in_time():
            self._take_back()
            self._create(plan, words, secrets, resumes=False)
        self._early = None
        faults.reach("run:job-created")

    def _early_job(self, plan: Plan, words: Sequence[str], secrets: Private) -> EarlyJob | None:
        """Return a Job that can be created at once. Where the volume is on one node, the helper has
        to make way first."""
        if plan.is_array or self.cluster.place().one_node:
            return None
        (described,) = self._described(plan, words)
        return EarlyJob(self.cluster.kube, plan.job.id, described, secret_files(secrets))

    def meanwhile(self) -> None:
        if self._early is not None:
            self._is_unclear = True
            self._early.create()

    def before_more(self) -> None:
        """Take the Job back: while more has to be sent, there is none."""
        self._take_back()

    def _take_back(self) -> None:
        if self._early is not None:
            self._early.take_back()
            self._early, self._is_unclear = None, False

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        words = self.cluster.python_words()
        self._early = None  # whether there is a Job to create is known from the answer
        self._send("resume", plan, secrets._replace(secrets={}), code, progress)
        if not self._has_gone_on:
            self._create(plan, words, secrets, resumes=True)
            faults.reach("run:job-created")

    def _create(self, plan: Plan, words: Sequence[str], secrets: Private, *, resumes: bool) -> None:
        """Create the Jobs of a plan whose directory is there; take that back where one is
        refused."""
        self._is_unclear = True
        faults.reach("run:directory-sent")
        described = self._described(plan, words)
        try:
            had_ended = resumes and self._end_before is not None
            replaces = Replaces(any=had_ended, ended=resumes)
            if had_ended:
                self._delete_former(plan.job.id, described)
            self.cluster.kube.create_jobs(described, secret_files(secrets), replaces)
        except LinkLost:
            raise
        except (ClusterError, Refused):
            about: RequestedJob = {"id": plan.job.id, "created": plan.job.created}
            end = self._end_before if resumes else None
            self.cluster.agent.ask("discard", job=about, array=plan.is_array, end=end)
            self._is_unclear = False
            raise
        if self.cluster.place().one_node:
            self.cluster.end_helper()

    def _delete_former(self, job_id: str, described: Sequence[manifest.Object]) -> None:
        """Delete the Job with which the job had ended: where its node is lost, Kubernetes would
        wait for its pod."""
        former = self._seen.named.get(job_id)
        if former and former not in [one["metadata"]["name"] for one in described]:
            self.cluster.kube.delete_job(former)

    def _require_volume(self) -> None:
        """Refuse what cannot work, which is known once somebody has looked: the first job finds
        nothing that was known before."""
        problem = volumes.find_problem(self.cluster.kube_facts().get("modes", ()))
        if problem is not None:
            raise Refused(f"{self.cluster.name}: {problem.what}", hint=problem.advice)

    def _create_carrying(
        self,
        plan: Plan,
        secrets: Private,
        code: Snapshot | None,
        progress: Progress,
        why: NoRoom,
    ) -> None:
        """Create a Job that brings its submission along, since nobody is there to take it."""
        if plan.is_array:
            raise Refused(
                f"{why.message}. Without it, several jobs cannot be submitted together",
                hint="Free room in the quota, or submit them one by one.",
            )
        request = self.request_of(plan, secrets._replace(secrets={}))
        content = carrying.parcel(request, code, self._last_manifest(), progress, why.message)
        content = {**content, **secret_files(secrets)}
        self._is_unclear = True
        described = manifest.carrying(json.loads(plan.files["manifest.json"]))
        described = manifest.with_python(described, self.cluster.python_words_unasked())
        self.cluster.kube.create_jobs([described], content, Replaces())
        faults.reach("run:job-created")

    def _described(self, plan: Plan, words: Sequence[str]) -> list[manifest.Object]:
        return [manifest.with_python(one, words) for one in self._manifests(plan)]

    def _manifests(self, plan: Plan) -> list[manifest.Object]:
        if not plan.is_array:
            return [json.loads(plan.files["manifest.json"])]
        jobs = size_of(json.loads(plan.files["job.json"]))
        settings, place = self.cluster.settings, self.cluster.place()
        return [
            manifest.job_manifest(plan.job, settings, place, index=index) for index in range(jobs)
        ]

    def _take_news(self, answer: Answer) -> None:
        super()._take_news(answer)
        self._has_gone_on = answer.record.get("gone_on") is True
        end = answer.record.get("end")
        self._end_before = cast("End", end) if isinstance(end, dict) else None
