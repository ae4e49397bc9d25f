"""Creates a Ray cluster on Kubernetes, and waits until its head is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from dray.clusters.kube.names import MANAGED, text_at
from dray.clusters.kuberay import manifest
from dray.clusters.kuberay.looking import ADMINS, Namespace
from dray.clusters.kuberay.manifest import Object, Wish
from dray.clusters.kuberay.state import State
from dray.errors import ClusterError, Refused, TimedOut
from dray.transport.kube_api import Reply
from dray.transport.kuberay_api import GROUP, VERSION

LOOK_SECONDS = 2.0
# Where objects of each kind are, and what the right to create them is called.
PLURALS = {
    "RayCluster": (f"/apis/{VERSION}", "rayclusters"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Service": ("/api/v1", "services"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
}
# What Kubernetes itself sets of these is not compared.
COMPARED = {"RayCluster": "spec", "Job": "spec"}


def path_of(kind: str, namespace: str, name: str = "") -> str:
    group, plural = PLURALS[kind]
    return f"{group}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def create(space: Namespace, wish: Wish, tell: Callable[[str], None]) -> None:
    """Create what is not there yet. What is there and differs is an error, before anything else is
    created."""
    space.require_operator()
    objects = manifest.objects_of(wish)
    there = {manifest.told(one): existing(space, one) for one in objects}
    for one in objects:
        found = there[manifest.told(one)]
        if found is not None:
            require_same(one, found)
    uid = ""
    for one in objects:
        found = there[manifest.told(one)]
        if found is None:
            ends = uid and not manifest.is_data(one)
            found = created(space, manifest.owned(one, uid, wish) if ends else one)
            tell(f"created {manifest.told(one)}")
        else:
            tell(f"{manifest.told(one)} is there already")
        if one["kind"] == "Job":
            uid = text_at(found, "metadata", "uid")


def existing(space: Namespace, thing: Object) -> Mapping[str, Any] | None:
    path = path_of(thing["kind"], space.name, thing["metadata"]["name"])
    reply = space.api.get(path)
    if reply.code == 404:
        return None
    if not reply.ok:
        raise refusal(space, thing, "look at", reply)
    return reply.record


def created(space: Namespace, thing: Object) -> Mapping[str, Any]:
    """Create an object; one that has come meanwhile, as where an answer was lost, is found."""
    reply = space.api.create(path_of(thing["kind"], space.name), thing)
    if reply.code == 409:
        found = existing(space, thing)
        if found is not None:
            require_same(thing, found)
            return found
    if not reply.ok:
        raise refusal(space, thing, "create", reply)
    return reply.record


def refusal(space: Namespace, thing: Object, verb: str, reply: Reply) -> ClusterError:
    plural = PLURALS[thing["kind"]][1]
    hint = ""
    if reply.code == 403 and "exceeded quota" not in reply.message:
        group = f" of {GROUP}" if thing["kind"] == "RayCluster" else ""
        hint = f"You may not {verb} {plural}{group} in namespace {space.name}. {ADMINS}"
    return ClusterError(f"{manifest.told(thing)}: {reply.message}", hint=hint)


def require_same(wanted: Object, there: Mapping[str, Any]) -> None:
    """Raise an error where an object of this name is somebody else's, or another one."""
    what, name = manifest.told(wanted), wanted["metadata"]["labels"][manifest.CLUSTER]
    labels = {**MANAGED, manifest.CLUSTER: name}
    if any(text_at(there, "metadata", "labels", key) != one for key, one in labels.items()):
        raise Refused(
            f"{what} is there, and dray has not made it",
            hint="Choose another name; 'dray cluster import --kuberay' adds it as it is.",
        )
    part = COMPARED.get(wanted["kind"])
    found = manifest.differences(wanted[part], there.get(part)) if part else []
    if found:
        more = f", and {len(found) - 3} more" if len(found) > 3 else ""
        raise Refused(
            f"{what} is there, and differs in {'; '.join(found[:3])}{more}",
            hint=f"'dray cluster down {name}' removes it; then 'up' makes the new one.",
        )


def wait(space: Namespace, name: str, seconds: float, tell: Callable[[str], None]) -> State:
    """Wait until the head is ready, and tell what it waits for whenever that changes."""
    until, told = time.monotonic() + seconds, ""
    while True:
        state = space.state(name)
        if state is None:
            raise ClusterError(f"RayCluster {name} is gone: somebody has removed it")
        if state.is_ready:
            return state
        if state.waits != told:
            tell(f"waits {state.waits}")
            told = state.waits
        after = f"'dray cluster down {name}' removes it."
        if state.is_firm:
            what = f"the head of {name} cannot start: it waits {state.waits}"
            raise ClusterError(what, hint=f"{state.advice} {after}".strip())
        if time.monotonic() > until:
            what = f"the head of {name} is not ready yet: it waits {state.waits}"
            hint = f"{state.advice} 'dray doctor {name}' looks again; {after}".strip()
            raise TimedOut(what, hint=hint)
        time.sleep(LOOK_SECONDS)
