"""Looks at RayClusters through the API server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dray.clusters.kube.connecting import kubectl_of
from dray.clusters.kube.names import items_of, selector, text_at
from dray.clusters.kube.suggesting import Gathered, find_context
from dray.clusters.kuberay import state
from dray.clusters.kuberay.state import State
from dray.errors import ClusterError
from dray.job.options.shared import KUBECONFIG
from dray.transport import kube_api
from dray.transport.kube_api import Api
from dray.transport.kube_proxy import Proxy
from dray.transport.kubectl import Kubectl
from dray.transport.kuberay_api import GROUP, NO_OPERATOR, PLURAL, VERSION, clusters_path

KEYS = ("namespace", "context", "kubeconfig")  # the settings that lead to a namespace
ADMINS = "Ask the namespace's admins for this right."


class Namespace:
    """A namespace with RayClusters."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = kube_api.namespace_of(api.kubectl)
        self.core = f"/api/v1/namespaces/{self.name}"

    def cluster(self, name: str) -> Mapping[str, Any] | None:
        """Return the RayCluster of this name; None where there is none."""
        reply = self.api.get(clusters_path(self.name, name))
        if reply.ok:
            return reply.record
        if reply.code == 404:
            self.require_operator()
            return None
        raise self.refusal("get", reply)

    def clusters(self) -> list[dict[str, Any]]:
        reply = self.api.get(clusters_path(self.name))
        if reply.code == 404:
            self.require_operator()
        if not reply.ok:
            raise self.refusal("list", reply)
        return items_of(reply.record)

    def require_operator(self) -> None:
        """Raise an error where nothing is known of RayClusters."""
        if not self.api.get(f"/apis/{VERSION}").ok:
            raise ClusterError(
                NO_OPERATOR,
                hint="Without KubeRay, kind kubernetes runs jobs there: dray cluster add NAME "
                "--kind kubernetes",
            )

    def refusal(self, verb: str, reply: kube_api.Reply) -> ClusterError:
        hint = f"You may not {verb} {PLURAL} of {GROUP} there. {ADMINS}"
        return ClusterError(
            f"namespace {self.name}: {reply.message}", hint=hint if reply.code == 403 else ""
        )

    def state(self, name: str) -> State | None:
        """Say how a RayCluster is; None where there is none. What may not be looked at tells
        nothing."""
        cluster = self.cluster(name)
        if cluster is None:
            return None
        known = state.state_of(cluster)
        if known.is_ready:
            return known
        wanted = selector({state.CLUSTER_LABEL: name})
        pods = items_of(self.api.get(f"{self.core}/pods?{wanted}&limit=100").record)
        events = items_of(self.api.get(f"{self.core}/events?limit=500").record)
        heads = {text_at(one, "metadata", "name") for one in pods}
        own = [
            one
            for one in events
            if text_at(one, "involvedObject", "name") in {name, *heads}
            and text_at(one, "involvedObject", "kind") in ("RayCluster", "Pod")
        ]
        return state.state_of(cluster, pods, own)


def place_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that lead to a namespace, whole, so that another current context does not
    lead elsewhere."""
    config = KUBECONFIG.of(given)
    way = Kubectl(kubeconfig=os.path.expanduser(config) if config else "")
    found = Gathered(given)
    if not find_context(way, found):
        choice = found.choices[0]
        raise ClusterError(choice.why, hint=f"Write --context: {', '.join(choice.options)}.")
    return {key: found.all[key] for key in KEYS if found.all.get(key)}


def namespace_of(settings: Mapping[str, Any]) -> Namespace:
    return Namespace(Api(kubectl_of(settings)))


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[Namespace]:
    """Keep a way to the API server open, for somebody who has much to ask."""
    kubectl = kubectl_of(settings)
    with Proxy(kubectl) as proxy:
        proxy.wait()
        yield Namespace(Api(kubectl, proxy.place))


def problem_of(settings: Mapping[str, Any]) -> str:
    """Say why the head of a cluster is not reached; '' where it is ready."""
    name = settings["kuberay"]
    try:
        found = namespace_of(settings).state(name)
    except ClusterError as error:
        return error.message
    if found is None:
        return f"there is no RayCluster {name}"
    return f"RayCluster {name} waits {found.waits}" if found.waits else ""
