"""Pods of a node that does not answer: found, and given up once nothing of them runs any more.

Kubernetes marks such a pod for deletion, and then waits for its kubelet to say that it has ended.
With a pod failure policy the Job's controller waits as well, and so the next pod never comes. A
kubelet that answers ends a pod when its grace is over: one that is there long after that has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dray.clusters.kube.names import is_name, text_at, value_at

if TYPE_CHECKING:
    from dray.clusters.kube.api import Cluster

LATE = 30.0  # seconds after its grace in which any kubelet has ended a pod, and said so
TRACKING = "batch.kubernetes.io/job-tracking"  # of the Job's controller, which waits for the end
MARKED = ("Terminating", "Unknown")  # as ``kubectl get pods`` shows them


def overdue(pods: Iterable[Mapping[str, Any]], now: float) -> list[Mapping[str, Any]]:
    """Return the pods that should have ended by now."""
    return [pod for pod in pods if now > end_of_grace(pod) + LATE]


def end_of_grace(pod: Mapping[str, Any]) -> float:
    """Return when a pod that is being deleted is to have ended; never, for all others."""
    try:
        moment = datetime.fromisoformat(text_at(pod, "metadata", "deletionTimestamp"))
    except ValueError:
        return float("inf")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def other_finalizers(pod: Mapping[str, Any]) -> list[str]:
    found = value_at(pod, "metadata", "finalizers")
    listed = found if isinstance(found, list) else []
    return [one for one in listed if isinstance(one, str) and one != TRACKING]


def give_up(cluster: Cluster, pods: Sequence[Mapping[str, Any]]) -> None:
    """Take pods out of Kubernetes without waiting for their node, so that the next one is created
    at once. Where that is not allowed, they stay: ``doctor`` names the right."""
    for pod in pods:
        name = text_at(pod, "metadata", "name")
        if not is_name(name):
            continue
        path = f"{cluster.core}/pods/{name}"
        if cluster.api.delete(f"{path}?gracePeriodSeconds=0").ok:
            cluster.api.patch(path, {"metadata": {"finalizers": other_finalizers(pod)}})
