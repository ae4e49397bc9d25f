"""Kubernetes, from a laptop through the user's own kubectl: a Job for each job.

The laptop speaks to the API server. An agent in a small helper pod, on the same volume as the jobs,
keeps their files. See dray.clusters.kube for the objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.clusters.agent.cluster import AgentQueue
from dray.clusters.agent.facts import Problem
from dray.clusters.kube import manifest, schedulers, volumes
from dray.clusters.kube.cluster import PodCluster
from dray.clusters.kube.jobs import KubernetesQueue
from dray.clusters.kube.manifest import Place
from dray.clusters.options import kubernetes as options
from dray.clusters.protocol import Sessions, Situation
from dray.job.model import Capabilities, Equipment, Finding, JobArray, JobSpec, Plan
from dray.node.formats import files

if TYPE_CHECKING:
    from dray.clusters.suggestion import Suggestion
    from dray.node.formats.records import Description

OLDEST = (1, 31)  # successPolicy: without it, a Job would never be complete


# -- pure ---------------------------------------------------------------------------------------


def description(job: JobSpec) -> Description:
    """Return what is in job.json. The pod is the container: nothing more is started in it."""
    return {**job.to_dict(), "container": None, "scheduler": {"kind": "kubernetes"}}


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any], place: Place) -> Plan:
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description(job)).decode(),
            "manifest.json": json.dumps(manifest.job_manifest(job, settings, place), indent=2),
        },
        command=create_words(place, f"{place.root}/jobs/{job.id}/manifest.json"),
        notes=plan_notes(job, place),
    )


def make_array_plan(
    array: JobArray, cluster: str, settings: Mapping[str, Any], place: Place
) -> Plan:
    """One directory for all, and a Job for each: a queue may admit them one by one, and each is
    resumed by itself. The manifest is that of the first one."""
    common = {**description(array.common), "commands": array.commands}
    first = manifest.job_manifest(array.common, settings, place, index=0)
    return Plan(
        job=array.common,
        cluster=cluster,
        files={"job.json": json.dumps(common), "manifest.json": json.dumps(first, indent=2)},
        command=create_words(place, f"{place.root}/arrays/{array.id}/manifest.json"),
        notes=plan_notes(array.common, place),
        is_array=True,
    )


def create_words(place: Place, path: str) -> tuple[str, ...]:
    where = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
    return ("kubectl", "create", "--raw", where, "--filename", path)


def plan_notes(job: JobSpec, place: Place) -> tuple[str, ...]:
    notes = [f"secret {name}: its value goes into a Secret of the job" for name in job.secrets]
    if job.resources.nodes > 1 and place.scheduler != "kueue":
        notes.append(
            "pods are started one by one there, not all or none: those that have a node wait for "
            "the others, and keep their GPUs meanwhile"
        )
    return tuple(notes)


def find_problem(
    job: JobSpec, settings: Mapping[str, Any], facts: Mapping[str, Any]
) -> Problem | None:
    kube = facts.get("kube", {})
    version = tuple(kube.get("version", OLDEST))
    if version < OLDEST:
        shown, least = (".".join(map(str, one)) for one in (version, OLDEST))
        return Problem(f"its Kubernetes is {shown}, and dray needs {least} or newer")
    if not job.container and not options.IMAGE.of(settings):
        advice = "Write --image NAME, or set image in the cluster's settings."
        return Problem("a pod needs an image, and none is named", advice)
    if job.container and job.container.image.startswith(("/", "sha256:")):
        advice = "Push it to a registry (dray image push), and write --image REGISTRY/NAME:TAG."
        return Problem("its images come from a registry, by name", advice)
    if job.container and job.container.binds:
        advice = 'Name what pods mount in the cluster\'s settings: volumes = ["pvc:CLAIM:/path"].'
        return Problem("pods mount volumes, not folders of a node", advice)
    if job.resources.gpus % 1 and schedulers.chosen(settings, kube) != "kai":
        advice = "Ask for a whole number; KAI and Run:ai can share a GPU (setting scheduler)."
        return Problem("it gives whole GPUs only", advice)
    if job.resources.nodes > 1 and job.launch == "none":
        advice = "Write --launch srun or --launch torchrun, or leave out --nodes."
        return Problem("a command that is started once has no way to its other pods", advice)
    modes = kube.get("modes", ())
    if job.resources.nodes > 1 and volumes.is_for_one_node(modes):
        advice = "Name a claim that is ReadWriteMany in volumes, or leave out --nodes."
        return Problem("its volume can be used on one node at a time", advice)
    if facts.get("links") is False:
        advice = "Name another volume: dray keeps the code of jobs by hard links."
        return Problem("files on its volume cannot be linked", advice)
    return volumes.find_problem(modes) or schedulers.find_problem(settings, kube)


# -- acting -------------------------------------------------------------------------------------


class KubernetesCluster(PodCluster):
    kind = "kubernetes"
    capabilities = Capabilities(arrays=True, registry_images=True, found_by="kubectl")

    @staticmethod
    def suggest(settings: Mapping[str, Any], *, asks: bool) -> Suggestion:
        from dray.clusters.kube.suggesting import suggest  # only for a new cluster

        return suggest(settings, asks=asks)

    def make_queue(self) -> AgentQueue:
        return KubernetesQueue(self)

    @property
    def sessions(self) -> Sessions:
        from dray.clusters.kube.sessions import PodSessions  # not for a listing of jobs

        return PodSessions(self.name, self.agent, self.kube, self.kubectl, self.place)

    def plain_image(self) -> str:
        return str(options.IMAGE.of(self.settings) or options.AGENT_IMAGE.of(self.settings))

    def equipment(self) -> Equipment:
        return self.kube.largest_node(options.GPU_RESOURCE.of(self.settings))

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        kube = facts.get("kube") or self.kube_facts()
        return find_problem(job, self.settings, {**facts, "kube": kube})

    def partitions(self) -> Sequence[str]:
        return ()

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return make_array_plan(work, self.name, self.settings, self.place())
        return make_plan(work, self.name, self.settings, self.place())

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        return queued["why"]

    def doctor(self) -> list[Finding]:
        from dray.clusters.kube.doctor import findings  # only here

        own = findings(self.kube, self.settings, self.place())
        return own if any(not one.ok for one in own) else [*own, *super().doctor()]

    @property
    def situation(self) -> Situation:
        from dray.clusters.kube.situation import KubernetesSituation  # not for a listing

        return KubernetesSituation(self.kube, self.settings, self.place())

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        words = about.get("pod_python")
        detail = about.get("pod_python_error", "") if not words else f"in {words[-1]}"
        return [Finding(ok=bool(words), what="python of jobs", detail=str(detail))]
