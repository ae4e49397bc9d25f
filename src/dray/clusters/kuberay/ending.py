"""Removes a Ray cluster that dray has made, and waits until nothing is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dray.clusters.kube.names import MANAGED, is_name, items_of, selector, text_at
from dray.clusters.kuberay import manifest
from dray.clusters.kuberay.looking import Namespace
from dray.clusters.kuberay.starting import PLURALS, path_of
from dray.clusters.kuberay.state import CLUSTER_LABEL
from dray.errors import ClusterError, TimedOut
from dray.node.schedulers.ray import PREFIX as DRIVER
from dray.transport.kuberay_api import connector, head_of
from dray.transport.ray_pipe import PREFIX

LOOK_SECONDS = 1.0
DRIVER_ENDS = 20.0  # seconds after its last job in which a driver of dray's has ended
PATIENCE = 180.0  # seconds; pods are given half a minute to end
OVER = ("SUCCEEDED", "FAILED", "STOPPED")


# -- pure ---------------------------------------------------------------------------------------


def active_in(listed: Any) -> list[str]:
    """Return the jobs of Ray's that are not over, but for connections of dray's."""
    jobs = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = [
        text_at(one, "submission_id") or text_at(one, "job_id")
        for one in jobs
        if text_at(one, "status") not in OVER
    ]
    return [one for one in names if not one.startswith(PREFIX)]


# -- acting -------------------------------------------------------------------------------------


def active_jobs(space: Namespace, settings: Mapping[str, Any]) -> list[str]:
    """Ask the head of a cluster for jobs that are not over, whoever has submitted them."""
    api = connector(space.api, settings["kuberay"], settings.get("token", ""))()
    try:
        return active_in(api.ask("GET", "/api/jobs/").record())
    finally:
        api.close()


def still_active(space: Namespace, settings: Mapping[str, Any]) -> list[str]:
    """Return the jobs that are not over, where dray knows of none: a driver of dray's that ends
    after the last of its jobs is waited for."""
    until = time.monotonic() + DRIVER_ENDS
    while active := active_jobs(space, settings):
        is_ours = all(one.startswith(DRIVER) for one in active)
        if not is_ours or time.monotonic() > until:
            return active
        time.sleep(LOOK_SECONDS)
    return []


def belonging(space: Namespace, name: str) -> list[dict[str, Any]]:
    """Return the objects that dray has made for a cluster. Whoever may not list a kind of object
    has made none."""
    wanted = selector({**MANAGED, manifest.CLUSTER: name})
    found = []
    for kind in PLURALS:
        reply = space.api.get(f"{path_of(kind, space.name)}?{wanted}")
        listed = items_of(reply.record) if reply.ok else []
        named = [one for one in listed if is_name(text_at(one, "metadata", "name"))]
        found += [{**one, "kind": kind} for one in named]
    return found


def remove(
    space: Namespace,
    name: str,
    objects: Sequence[Mapping[str, Any]],
    tell: Callable[[str], None],
) -> None:
    """Remove these objects, and wait for all that ends with them."""
    secrets = [
        head_of(space.name, one).secret
        for one in objects
        if one["kind"] == "RayCluster" and not text_at(one, "spec", "authOptions", "secretName")
    ]
    # The timer last: what it owns would be taken away unseen.
    for one in sorted(objects, key=lambda one: one["kind"] == "Job"):
        path = path_of(one["kind"], space.name, one["metadata"]["name"])
        reply = space.api.delete(f"{path}?propagationPolicy=Background")
        if not reply.ok and reply.code != 404:
            raise ClusterError(f"{manifest.told(one)} is not removed: {reply.message}")
        tell(f"removed {manifest.told(one)}")
    until, told = time.monotonic() + PATIENCE, ""
    while rest := remains(space, name, secrets):
        if time.monotonic() > until:
            raise TimedOut(f"still there: {', '.join(rest[:5])}", hint="See 'kubectl get all'.")
        now = f"waits for the end of {', '.join(rest[:3])}" + (" …" if len(rest) > 3 else "")
        if now != told:
            tell(now)
            told = now
        time.sleep(LOOK_SECONDS)


def remains(space: Namespace, name: str, secrets: Sequence[str]) -> list[str]:
    """Return what is left of a cluster, but for claims."""
    found = [manifest.told(one) for one in belonging(space, name) if not manifest.is_data(one)]
    for label in (manifest.CLUSTER, CLUSTER_LABEL):
        wanted = selector({label: name})
        for plural, kind in (("pods", "pod"), ("services", "Service")):
            listed = items_of(space.api.get(f"{space.core}/{plural}?{wanted}").record)
            found += [f"{kind} {text_at(one, 'metadata', 'name')}" for one in listed]
    for one in filter(None, secrets):
        if space.api.get(f"{space.core}/secrets/{one}").ok:
            found.append(f"Secret {one}")
    return list(dict.fromkeys(found))
