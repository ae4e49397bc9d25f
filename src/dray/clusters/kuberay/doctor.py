"""What ``dray doctor`` says of a RayCluster: the rights that are needed, and how it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.clusters.kube.api import Cluster
from dray.clusters.kube.doctor import Right, right_finding
from dray.clusters.kuberay.looking import Namespace, namespace_of
from dray.clusters.kuberay.state import State
from dray.errors import ClusterError
from dray.job.model import Finding
from dray.transport.kuberay_api import GROUP, PLURAL, head_of

PROXY = ("get", "create", "update", "delete")
TO_START = "to start and to end Ray clusters"
RIGHTS = (
    Right(("get",), PLURAL, "to find its head", GROUP),
    Right(PROXY, "services/proxy", "to reach Ray's API"),
    Right(("create", "list", "delete"), PLURAL, TO_START, GROUP, is_needed=False),
)
TOKEN_RIGHT = Right(("get",), "secrets", "to read Ray's token")


def findings(settings: Mapping[str, Any]) -> list[Finding]:
    name = settings["kuberay"]
    try:
        space = namespace_of(settings)
        cluster = space.cluster(name)
        state = space.state(name) if cluster is not None else None
    except ClusterError as error:
        return [Finding(ok=False, what="kuberay", detail=error.message, advice=error.hint)]
    if cluster is None or state is None:
        detail = f"there is no RayCluster {name} in namespace {space.name}"
        advice = "See 'kubectl get rayclusters'; 'dray cluster up' makes one."
        return [Finding(ok=False, what="kuberay", detail=detail, advice=advice)]
    asks_for_token = bool(head_of(space.name, cluster).secret) and not settings.get("token")
    rights = (*RIGHTS, *([TOKEN_RIGHT] if asks_for_token else []))
    objects = Cluster(space.api)
    return [
        *(right_finding(objects, space.name, one) for one in rights),
        state_finding(name, space, state),
        *token_findings(space, cluster),
    ]


def state_finding(name: str, space: Namespace, state: State) -> Finding:
    if not state.is_ready:
        detail = f"RayCluster {name} waits {state.waits}"
        return Finding(ok=False, what="kuberay", detail=detail, advice=state.advice)
    detail = f"{state.workers} of {state.wanted} workers are ready"
    about = f"RayCluster {name} in namespace {space.name}: {detail}"
    return Finding(ok=True, what="kuberay", detail=about)


def token_findings(space: Namespace, cluster: Mapping[str, Any]) -> list[Finding]:
    """Warn of a cluster that asks for no token."""
    if head_of(space.name, cluster).secret:
        return []
    detail = "Ray asks for no token: whoever reaches its port in the cluster runs programs there"
    return [Finding(ok=True, what="token", detail=detail)]
