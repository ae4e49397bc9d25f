"""Reads what Kubernetes says of a RayCluster: whether its head is ready, and what it waits for.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.kube import queue
from dray.clusters.kube.names import text_at, value_at
from dray.records import NamedTuple

CLUSTER_LABEL, TYPE_LABEL = "ray.io/cluster", "ray.io/node-type"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
REFUSED = "InvalidRayCluster"  # how the reasons of such events begin
NOT_SEEN = "for KubeRay's operator to take note of it"
# A container that waits for one of these will not start by waiting; and what to do about it.
PULLING = "Is the image's name right, and may the namespace pull it?"
FIRM = {
    "ErrImagePull": PULLING,
    "ImagePullBackOff": PULLING,
    "ErrImageNeverPull": PULLING,
    "InvalidImageName": PULLING,
    "CreateContainerConfigError": "'kubectl describe pod' says more.",
    "CreateContainerError": "'kubectl describe pod' says more.",
    "CrashLoopBackOff": "Does the image have Ray, and is it of the version that was said? "
    "'kubectl logs' of the pod says more.",
}
QUOTA_ADVICE = "Ask for fewer GPUs, CPUs or workers, or see 'kubectl describe resourcequota'."
UNSCHEDULED_ADVICE = "'kubectl get nodes' shows what there is; ask for less, or wait for nodes."


class State(NamedTuple):
    """``waits``: what the head waits for, in plain words; '' where it is ready. ``advice``: what
    can be done about it; ``is_firm``: whether it will not pass by itself."""

    waits: str = ""
    advice: str = ""
    is_firm: bool = False
    workers: int = 0
    wanted: int = 0

    @property
    def is_ready(self) -> bool:
        return not self.waits


def state_of(
    cluster: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
) -> State:
    """Say how a RayCluster is; ``pods`` and ``events`` are its own."""
    state = State(*_waits(cluster, pods, events))
    counts = [value_at(cluster, "status", key) for key in ("readyWorkerReplicas", WANTED)]
    workers, wanted = (one if isinstance(one, int) else 0 for one in counts)
    return state._replace(workers=workers, wanted=wanted)


WANTED = "desiredWorkerReplicas"


def _waits(
    cluster: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
) -> tuple[str, str, bool]:
    if is_suspended(cluster):
        queued = text_at(cluster, "metadata", "labels", QUEUE_LABEL)
        where = f" in queue {queued}" if queued else ""
        return f"to be admitted{where}: it is suspended", "'dray queue' does not show it.", False
    if queue.condition_of(cluster, "HeadPodReady")[0] == "True":
        return "", "", False
    said = _said_of_spec(cluster, events)
    if said:
        return queue.told("nothing: KubeRay refuses it", said), "", True
    heads = [one for one in pods if text_at(one, "metadata", "labels", TYPE_LABEL) == "head"]
    if heads:
        return _pod_waits(heads[0], events)
    status, _, said = queue.condition_of(cluster, "ReplicaFailure")
    if status == "True":
        return _refusal(said)
    if text_at(cluster, "status", "state") == "failed":
        said = text_at(cluster, "status", "reason")
        return queue.told("nothing: KubeRay refuses it", said), "", True
    refused = [one for one in events if text_at(one, "type") == "Warning"]
    if refused:
        return _refusal(text_at(refused[-1], "message"))
    if not isinstance(value_at(cluster, "status"), dict):
        return NOT_SEEN, "Does its operator run? Its admins know.", False
    return "for the head's pod to be created", "", False


def _said_of_spec(cluster: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> str:
    """Return why the operator refuses what the cluster is to be; '' where it does not. Its word
    stays for an hour: it counts as long as the operator has taken no note of the newest change."""
    if value_at(cluster, "status", "observedGeneration") == value_at(
        cluster, "metadata", "generation"
    ):
        return ""
    refused = [one for one in events if text_at(one, "reason").startswith(REFUSED)]
    return text_at(refused[-1], "message") if refused else ""


def is_suspended(cluster: Mapping[str, Any]) -> bool:
    return (
        value_at(cluster, "spec", "suspend") is True
        or queue.condition_of(cluster, "RayClusterSuspended")[0] == "True"
    )


def _refusal(said: str) -> tuple[str, str, bool]:
    if "exceeded quota" in said:
        return queue.told("for room in the namespace's quota", said), QUOTA_ADVICE, False
    if "is invalid" in said or "Invalid" in said or "denied" in said:
        return queue.told("nothing: it is refused", said), "", True
    return queue.told("for the head's pod to be created", said), "", False


def _pod_waits(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> tuple[str, str, bool]:
    name = text_at(pod, "metadata", "name")
    for status in queue.containers_of(pod):
        reason = text_at(status, "state", "waiting", "reason")
        if reason in FIRM:
            said = queue.waiting_reason(pod)
            return f"for its container in pod {name}: {said}", FIRM[reason], True
    why = queue.waiting_reason(pod)
    if why == queue.MADE_READY:
        own = [one for one in events if text_at(one, "involvedObject", "name") == name]
        why = queue.making_reason(own) or why
        return f"for pod {name}: {why}", "", False
    if why:
        return f"for a node for pod {name}: {why}", UNSCHEDULED_ADVICE, False
    return f"for Ray to answer in pod {name}", "", False
