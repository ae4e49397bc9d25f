"""Reaches the HTTP API of a RayCluster's head through Kubernetes' API server.

The API server's service proxy passes all on that Ray's own API takes and gives, streams included,
and chooses the pod: who may use it needs no open port, and no program in the pod. Ray's token goes
in a header of its own: the usual one is the API server's.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dray.errors import ClusterError, DrayError, LoginNeeded
from dray.job.options.pod_values import OBJECT_NAME
from dray.records import NamedTuple
from dray.transport.channel import LinkLost
from dray.transport.kube_api import Api, namespace_of, proxy_connection
from dray.transport.ray_api import HEADER_BEHIND, RayApi, Reply, find_token

GROUP = "ray.io"
VERSION = f"{GROUP}/v1"
PLURAL = "rayclusters"
PORT = 8265
TOKEN_KEY = "auth_token"
RIGHTS = "dray needs the rights to get, create, update and delete services/proxy: ask its admins."
NO_OPERATOR = (
    "this Kubernetes has no KubeRay (no API ray.io/v1): its admins have to install its operator"
)


class Head(NamedTuple):
    """Where the head of a RayCluster is reached, and which Secret has Ray's token; '' for none."""

    namespace: str
    cluster: str
    service: str
    secret: str = ""

    @property
    def path(self) -> str:
        """The path of Ray's API, on the API server."""
        where = f"/api/v1/namespaces/{self.namespace}/services"
        return f"{where}/http:{self.service}:{PORT}/proxy"


def clusters_path(namespace: str, name: str = "") -> str:
    return f"/apis/{VERSION}/namespaces/{namespace}/{PLURAL}" + (f"/{name}" if name else "")


def head_of(namespace: str, cluster: Any) -> Head:
    """Read where the head of a RayCluster is. What is no name of an object is none of its
    service."""
    name = _text(cluster, "metadata", "name")
    told = _text(cluster, "status", "head", "serviceName")
    service = told if OBJECT_NAME.fullmatch(told) else f"{name}-head-svc"
    if _text(cluster, "spec", "authOptions", "mode") != "token":
        return Head(namespace, name, service)
    own = _text(cluster, "spec", "authOptions", "secretName")
    return Head(namespace, name, service, own if OBJECT_NAME.fullmatch(own) else name)


def _text(record: Any, *path: str) -> str:
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record if isinstance(record, str) else ""


def find_head(api: Api, namespace: str, name: str) -> Head:
    """Ask the API server for the RayCluster."""
    reply = api.get(clusters_path(namespace, name))
    if reply.ok:
        return head_of(namespace, reply.record)
    if reply.code == 404:
        if not api.get(f"/apis/{VERSION}").ok:
            raise ClusterError(NO_OPERATOR)
        raise ClusterError(
            f"there is no RayCluster {name} in namespace {namespace}",
            hint="See 'kubectl get rayclusters'; 'dray cluster up' makes one.",
        )
    raise ClusterError(
        f"RayCluster {name} cannot be looked at: {reply.message}",
        hint=f"dray needs the right to get {PLURAL} of {GROUP} in this namespace: ask its admins.",
    )


def read_token(api: Api, head: Head) -> str:
    """Read Ray's token; '' for a cluster that asks for none."""
    if not head.secret:
        return ""
    reply = api.get(f"/api/v1/namespaces/{head.namespace}/secrets/{head.secret}")
    if reply.code == 404:
        raise LinkLost(f"RayCluster {head.cluster} has no token yet: there is no Secret of it")
    if not reply.ok:
        raise LoginNeeded(
            f"Ray's token cannot be read: {reply.message}",
            hint=f"Ask for the right to get the Secret {head.secret}, or for the token: see the "
            "setting token.",
        )
    try:
        return b64decode(_text(reply.record, "data", TOKEN_KEY), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise ClusterError(f"the Secret {head.secret} has no {TOKEN_KEY} that is one") from None


def connector(api: Api, name: str, source: str) -> Callable[[], RayApi]:
    """Look for the head and for Ray's token; return what makes connections to its API, by the proxy
    that this API is asked by. ``source``: where the token is, if not in the cluster's Secret."""
    head = find_head(api, namespace_of(api.kubectl), name)
    token = find_token(source) if source else read_token(api, head)
    place = api.proxy
    assert place is not None
    return lambda: ProxiedRayApi(place, head, token)


class ProxiedRayApi(RayApi):
    """Ray's API behind a kubectl proxy and the API server."""

    # The usual one would be taken for the user's own token by the API server.
    headers_of_token = (HEADER_BEHIND,)

    def __init__(self, proxy: Path, head: Head, token: str = "") -> None:
        super().__init__(f"http://localhost{head.path}", token)
        self.address = f"RayCluster {head.cluster}"  # as messages call it
        self.proxy = proxy

    def _connect(self) -> Any:
        return proxy_connection(self.proxy, self.patience)

    def _checked(self, reply: Reply) -> Reply:
        said = refusal_of(reply)
        if said is None:
            return super()._checked(reply)
        if reply.code == 401:
            raise LoginNeeded(
                f"the API server does not know you: {said}",
                hint="Log in anew: does 'kubectl get pods' work in this namespace?",
            )
        if reply.code == 403:
            raise ClusterError(f"{self.address}: {said}", hint=RIGHTS)
        raise LinkLost(f"{self.address}: its head does not answer: {said}", hint=self.advice)

    @property
    def advice(self) -> str:
        return "'dray doctor' says what it waits for."

    def lost(self, error: Exception) -> DrayError:
        return LinkLost(f"{self.address} does not answer: {error}", hint=self.advice)


def refusal_of(reply: Reply) -> str | None:
    """Return what the API server itself refuses; None for an answer of Ray's."""
    if reply.code < 400:
        return None
    try:
        record = json.loads(reply.content)
    except (ValueError, RecursionError):
        return None
    if _text(record, "kind") != "Status" or _text(record, "apiVersion") != "v1":
        return None
    return _text(record, "message")[:500] or f"status code {reply.code}"
