"""What ``dray doctor`` says of a Kubernetes: its version, the rights, the volumes, the queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dray.clusters.kube import kueue, schedulers, volumes
from dray.clusters.kube.api import Cluster, quantity
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.names import items_of, text_at, value_at
from dray.clusters.kube.queue import condition_of
from dray.errors import ClusterError
from dray.job.model import Finding
from dray.records import NamedTuple


class Right(NamedTuple):
    """What a role has to allow in the namespace, and what for."""

    verbs: tuple[str, ...]
    resource: str
    reason: str
    group: str = ""
    is_needed: bool = True


ONE_NODE = (
    "it can be on one node at a time, so jobs share one and wait where it is full; the helper "
    "makes way for them; a claim that is ReadWriteMany has none of this"
)
ALL = ("create", "get", "list", "delete", "deletecollection")
RIGHTS = (
    Right(ALL, "jobs", "for every job", "batch"),
    Right(("get", "list", "deletecollection"), "pods", "to see and to stop pods"),
    Right(("create",), "pods/exec", "to speak with the helper"),
    Right(("create",), "secrets", "for jobs with secrets", is_needed=False),
    Right(("patch", "delete"), "pods", "to give up pods of a dead node", is_needed=False),
    Right(("list",), "events", "to say why a pod is refused", is_needed=False),
    Right(("list",), "resourcequotas", "to say what is left", is_needed=False),
    Right(("get",), "persistentvolumeclaims", "to check the volumes", is_needed=False),
)


def findings(cluster: Cluster, settings: Mapping[str, Any], place: Place) -> list[Finding]:
    try:
        facts = cluster.facts()
    except ClusterError as error:
        return [Finding(ok=False, what="login", detail=error.message, advice=error.hint)]
    version = ".".join(map(str, facts["version"]))
    place = place._replace(scheduler=schedulers.chosen(settings, facts), versions=facts["versions"])
    return [
        Finding(ok=True, what="kubernetes", detail=f"{version}, namespace {place.namespace}"),
        *(right_finding(cluster, place.namespace, one) for one in RIGHTS),
        *(volume_finding(cluster, one) for one in volumes.of(settings)),
        *quota_findings(cluster),
        scheduler_finding(settings, place, facts),
        *queue_findings(cluster, place),
    ]


def right_finding(cluster: Cluster, namespace: str, right: Right) -> Finding:
    lacking = [verb for verb in right.verbs if not may(cluster, namespace, right, verb)]
    if not lacking:
        detail = f"{right.resource}: {', '.join(right.verbs)}"
        return Finding(ok=True, what="right", detail=detail)
    only = "" if right.is_needed else "only "
    return Finding(
        ok=not right.is_needed,
        what="right",
        detail=f"{right.resource}: you may not {', '.join(lacking)}; needed {only}{right.reason}",
        advice="Ask the namespace's admins for it." if right.is_needed else "",
    )


def may(cluster: Cluster, namespace: str, right: Right, verb: str) -> bool:
    resource, _, sub = right.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "resource": resource,
        "subresource": sub,
        "group": right.group,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return value_at(cluster.api.create(path, review).record, "status", "allowed") is True


def volume_finding(cluster: Cluster, volume: volumes.Volume) -> Finding:
    what = f"volume {volume.path}"
    if volume.kind != "pvc":
        return Finding(ok=True, what=what, detail=f"{volume.kind} {volume.source}")
    reply = cluster.claim(volume.source)
    if reply.code == 404:
        detail = f"there is no claim {volume.source} in this namespace"
        return Finding(ok=False, what=what, detail=detail, advice="See kubectl get pvc.")
    if not reply.ok:
        return Finding(ok=True, what=what, detail=f"claim {volume.source}, not looked at")
    return claim_finding(what, volume, reply.record)


def claim_finding(what: str, volume: volumes.Volume, claim: Mapping[str, Any]) -> Finding:
    phase, modes = text_at(claim, "status", "phase"), volumes.modes_of(claim)
    told = f"{phase}, bound once a pod uses it" if phase == "Pending" else phase
    detail = f"claim {volume.source}, {told}, {', '.join(modes)}"
    problem = volumes.find_problem(modes)
    if problem is not None and not volume.is_readonly:
        return Finding(ok=False, what=what, detail=detail, advice=problem.advice)
    if phase == "Lost":
        return Finding(ok=False, what=what, detail=detail, advice="Its volume is gone.")
    if volumes.is_for_one_node(modes) and not volume.is_readonly:
        return Finding(ok=True, what=what, detail=f"{detail}: {ONE_NODE}")
    return Finding(ok=True, what=what, detail=detail)


def quota_findings(cluster: Cluster) -> Iterator[Finding]:
    for quota in items_of(cluster.api.get(f"{cluster.core}/resourcequotas").record):
        hard, used = (value_at(quota, "status", part) for part in ("hard", "used"))
        if not isinstance(hard, dict) or not isinstance(used, dict):
            continue
        told = [f"{used.get(name, 0)} of {most} {name}" for name, most in sorted(hard.items())]
        full = [name for name, most in hard.items() if is_full(str(used.get(name, 0)), str(most))]
        detail = ", ".join(told) + (f"; used up: {', '.join(full)}" if full else "")
        yield Finding(ok=True, what="quota", detail=detail)


def is_full(used: str, most: str) -> bool:
    return quantity(used) >= quantity(most)


def scheduler_finding(
    settings: Mapping[str, Any], place: Place, facts: Mapping[str, Any]
) -> Finding:
    problem = schedulers.find_problem(settings, facts)
    if problem is not None:
        return Finding(ok=False, what="scheduler", detail=problem.what, advice=problem.advice)
    there = [one for one in facts["schedulers"] if one != place.scheduler]
    words = place.scheduler + (f", queue {place.queue}" if place.queue else "")
    more = f"; there is {', '.join(there)} too (settings scheduler, queue)" if there else ""
    return Finding(ok=True, what="scheduler", detail=words + more)


def queue_findings(cluster: Cluster, place: Place) -> Iterator[Finding]:
    """Say whether the queue is there and takes jobs, as far as this user may know."""
    if place.scheduler != "kueue" or not place.queue:
        return
    what = f"queue {place.queue}"
    reply = cluster.ask_addition(place, kueue.GROUP, f"{kueue.QUEUES}/{place.queue}")
    if reply.code == 404:
        detail = f"this namespace has no queue {place.queue}"
        yield Finding(ok=False, what=what, detail=detail, advice="See kubectl get localqueues.")
    elif not reply.ok:
        yield Finding(ok=True, what=what, detail="not looked at: you may not")
    else:
        yield kueue_finding(what, reply.record)


def kueue_finding(what: str, queue: Mapping[str, Any]) -> Finding:
    status, _, said = condition_of(queue, "Active")
    counts = [value_at(queue, "status", one) for one in ("admittedWorkloads", "pendingWorkloads")]
    runs, waits = (one if isinstance(one, int) else 0 for one in counts)
    if status == "False":
        advice = "Only the cluster's admins can change that."
        return Finding(ok=False, what=what, detail=f"it lets no job in: {said}", advice=advice)
    return Finding(ok=True, what=what, detail=f"{runs} let in, {waits} waiting")
