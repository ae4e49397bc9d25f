"""Ray clusters on Kubernetes: what is read of them, whatever the API server says."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.kuberay import discovering
from dray.clusters.kuberay.state import State, state_of
from dray.clusters.ray import RayCluster
from dray.errors import ClusterError, ConfigError, DrayError, LoginNeeded
from dray.transport.channel import LinkLost, from_spec
from dray.transport.kube_api import Api
from dray.transport.kube_api import Reply as KubeReply
from dray.transport.kubectl import Kubectl
from dray.transport.kuberay_api import (
    Head,
    ProxiedRayApi,
    find_head,
    head_of,
    read_token,
    refusal_of,
)
from dray.transport.ray_api import Reply
from dray.transport.ray_channel import KubeRayHead

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
)
TOKEN = {"spec": {"authOptions": {"mode": "token"}}}


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


# -- the way to the head ------------------------------------------------------------------------


def test_the_head_is_where_its_status_says() -> None:
    ready = named("isaac", status={"head": {"serviceName": "isaac-head"}}, **TOKEN)
    assert head_of("lab", ready) == Head("lab", "isaac", "isaac-head", "isaac")
    path = "/api/v1/namespaces/lab/services/http:isaac-head:8265/proxy"
    assert head_of("lab", ready).path == path
    assert head_of("lab", named("isaac")) == Head("lab", "isaac", "isaac-head-svc", "")


def test_a_secret_of_another_name_has_the_token() -> None:
    options = {"mode": "token", "secretName": "ours"}
    assert head_of("lab", named("isaac", spec={"authOptions": options})).secret == "ours"


@pytest.mark.parametrize("name", ["../secrets/x", "a b", "a/b", "A", "x?y", ""])
def test_what_is_no_name_leads_nowhere_else(name: str) -> None:
    """What the API server says becomes part of a path."""
    told = {"head": {"serviceName": name}}
    options = {"mode": "token", "secretName": name}
    found = head_of("lab", named("isaac", status=told, spec={"authOptions": options}))
    assert found == Head("lab", "isaac", "isaac-head-svc", "isaac")


@given(ANYTHING)
def test_a_raycluster_may_say_anything(record: Any) -> None:
    head_of("lab", record)
    if isinstance(record, dict):
        state_of(record, [record], [record])
        discovering.found_in([record, named("x", **record)], "here", {})


def test_one_way_to_the_head_is_named(tmp_path: Path) -> None:
    for settings in (
        {},
        {"kuberay": "isaac", "host": "h"},
        {"kuberay": "i", "address": "http://h"},
    ):
        with pytest.raises(ConfigError, match="needs a way to its head"):
            RayCluster("r", settings, tmp_path, tmp_path)


def test_the_channel_is_the_same_in_another_process(tmp_path: Path) -> None:
    settings = {"kuberay": "isaac", "namespace": "lab", "context": "c", "token": "env:T"}
    channel = RayCluster("r", settings, tmp_path, tmp_path).agent.channel
    assert isinstance(channel, KubeRayHead)
    again = from_spec(*channel.spec())
    assert again.argv("true") == channel.argv("true")
    assert channel.argv("true")[4:] == [
        "lab", "c", "", "isaac", "env:T", "python3", "/bin/sh", "-c", "true",
    ]  # fmt: skip


# -- the token ----------------------------------------------------------------------------------


class Answers(Api):
    """An API server that answers as it is told."""

    def __init__(self, **replies: KubeReply) -> None:
        super().__init__(Kubectl("lab"))
        self.replies = replies

    def ask(self, method: str, path: str, *_: Any, **__: Any) -> KubeReply:
        assert method == "GET"
        last = path.rsplit("/", 1)[1]
        return self.replies.get(last, KubeReply(404, {"message": "not found"}))


def secret(value: bytes) -> KubeReply:
    return KubeReply(200, {"data": {"auth_token": b64encode(value).decode()}})


def test_the_token_is_read_only_where_one_is_asked_for() -> None:
    api = Answers(isaac=secret(b"t0ken"))
    assert read_token(api, Head("lab", "isaac", "s", "isaac")) == "t0ken"
    assert read_token(api, Head("lab", "isaac", "s")) == ""


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (KubeReply(404, {}), LinkLost, "no token yet"),
        (KubeReply(403, {"message": "you may not"}), LoginNeeded, "you may not"),
        (KubeReply(200, {"data": {"auth_token": "%%%"}}), ClusterError, "has no auth_token"),
        (secret(b"\xff\xfe"), ClusterError, "has no auth_token"),
    ],
)
def test_a_token_that_cannot_be_read(reply: KubeReply, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        read_token(Answers(isaac=reply), Head("lab", "isaac", "s", "isaac"))


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ClusterError, match="no KubeRay"):
        find_head(Answers(), "lab", "isaac")
    with pytest.raises(ClusterError, match="no RayCluster isaac in namespace lab"):
        find_head(Answers(v1=KubeReply(200, {})), "lab", "isaac")
    with pytest.raises(ClusterError, match="forbidden") as refused:
        find_head(Answers(isaac=KubeReply(403, {"message": "forbidden"})), "lab", "isaac")
    assert "rayclusters" in refused.value.hint


# -- Ray's API behind the API server ------------------------------------------------------------


def status(code: int, message: str) -> Reply:
    record = {"kind": "Status", "apiVersion": "v1", "message": message, "code": code}
    return Reply(code, json.dumps(record).encode())


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (status(403, "services/proxy is forbidden"), ClusterError, "services/proxy"),
        (status(401, "Unauthorized"), LoginNeeded, "does not know you"),
        (status(503, "no endpoints available"), LinkLost, "does not answer: no endpoints"),
        (status(404, "services not found"), LinkLost, "services not found"),
        (Reply(403, b"Forbidden: Invalid token"), LoginNeeded, "refuses the token"),
    ],
)
def test_who_refuses_is_told_apart(
    tmp_path: Path, reply: Reply, kind: type[DrayError], words: str
) -> None:
    api = ProxiedRayApi(tmp_path / "s", Head("lab", "isaac", "s"), "t")
    with pytest.raises(kind, match=words) as refused:
        api._checked(reply)
    assert refused.value.message.count("localhost") == 0


def test_an_answer_of_rays_is_no_refusal_of_the_api_servers() -> None:
    for content in (b"", b"[1]", b'{"kind": "Status"}', b'{"result": false}', b"[" * 100_000):
        assert refusal_of(Reply(500, content)) is None
    assert refusal_of(status(200, "fine")) is None


def test_rays_token_is_not_the_one_of_the_api_server(tmp_path: Path) -> None:
    """kubectl keeps an Authorization that it is given, and then logs nobody in."""
    place, seen = tmp_path / "s", bytearray()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()

    def answer() -> None:
        link, _ = listener.accept()
        seen.extend(link.recv(65536))
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        link.close()

    thread = threading.Thread(target=answer)
    thread.start()
    api = ProxiedRayApi(place, Head("lab", "isaac", "isaac-head-svc"), "t0ken")
    assert api.ask("GET", "/api/version").record() == {}
    api.close()
    thread.join()
    listener.close()
    lines = seen.decode().split("\r\n")
    service = "/api/v1/namespaces/lab/services/http:isaac-head-svc:8265/proxy"
    assert lines[0] == f"GET {service}/api/version HTTP/1.1"
    assert [one for one in lines if "t0ken" in one] == ["X-Ray-Authorization: Bearer t0ken"]


# -- what a cluster waits for -------------------------------------------------------------------


def condition(kind: str, value: str = "True", message: str = "") -> dict[str, Any]:
    one = {"type": kind, "status": value, "reason": "R", "message": message}
    return {"conditions": [one]}


def head_pod(**fields: Any) -> dict[str, Any]:
    labels = {"ray.io/node-type": "head"}
    return {"metadata": {"name": "isaac-head-x", "labels": labels}, "status": fields}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return head_pod(
        containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}}]
    )


def unscheduled(message: str) -> dict[str, Any]:
    one = {"type": "PodScheduled", "status": "False", "message": message}
    return head_pod(conditions=[one])


QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: cpu=8'


def test_a_ready_head_tells_of_its_workers() -> None:
    told = {**condition("HeadPodReady"), "readyWorkerReplicas": 1, "desiredWorkerReplicas": 8}
    assert state_of(named("isaac", status=told)) == State("", "", False, 1, 8)


@pytest.mark.parametrize(
    ("cluster", "pods", "words", "is_firm"),
    [
        (named("i"), [], "for KubeRay's operator to take note of it", False),
        (named("i", status={}), [], "for the head's pod to be created", False),
        (named("i", spec={"suspend": True}), [], "it is suspended", False),
        (named("i", status=condition("ReplicaFailure", message=QUOTA)), [], "quota", False),
        (named("i", status={"state": "failed", "reason": "no"}), [], "KubeRay refuses it", True),
        (named("i", status={}), [waiting("ImagePullBackOff", "x")], "cannot be pulled", True),
        (named("i", status={}), [waiting("CrashLoopBackOff")], "for its container in pod", True),
        (named("i", status={}), [waiting("ContainerCreating")], "is being made ready", False),
        (named("i", status={}), [unscheduled("0/2 nodes are available")], "for a node", False),
        (named("i", status={}), [head_pod()], "for Ray to answer in pod isaac-head-x", False),
    ],
)
def test_what_a_head_waits_for(
    cluster: dict[str, Any], pods: list[dict[str, Any]], words: str, is_firm: bool
) -> None:
    found = state_of(cluster, pods)
    assert words in found.waits
    assert found.is_firm == is_firm
    assert not found.is_ready


def test_a_wish_that_the_operator_refuses_is_told_until_it_takes_note_of_another() -> None:
    """Its word stays for an hour, and the head's pod from before is there."""
    said = {"type": "Warning", "reason": "InvalidRayClusterSpec", "message": "needs Ray 2.52"}
    cluster = named("i", status={"observedGeneration": 1})
    cluster["metadata"]["generation"] = 2
    pods = [waiting("ImagePullBackOff", "x")]
    found = state_of(cluster, pods, [said])
    assert found.waits == "nothing: KubeRay refuses it (Kubernetes says: needs Ray 2.52)"
    assert found.is_firm
    cluster["status"]["observedGeneration"] = 2
    assert "cannot be pulled" in state_of(cluster, pods, [said]).waits


# -- discovery ----------------------------------------------------------------------------------


def mounting(claim: str, path: str, **more: Any) -> dict[str, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    mount = {"name": "v", "mountPath": path, **more}
    return {"template": {"spec": {"volumes": [volume], "containers": [{"volumeMounts": [mount]}]}}}


def discovered(head: dict[str, Any], *workers: dict[str, Any]) -> dict[str, Any]:
    spec = {"headGroupSpec": head, "workerGroupSpecs": list(workers)}
    (found,) = discovering.found_in([named("isaac", spec=spec)], "namespace lab", {"context": "c"})
    return dict(found.cluster)


def test_what_all_pods_mount_becomes_the_root() -> None:
    home = mounting("home", "/home/me")
    assert discovered(home, home) == {"kuberay": "isaac", "context": "c", "root": "/home/me/dray"}


@pytest.mark.parametrize(
    "worker",
    [
        mounting("other", "/home/me"),
        mounting("home", "/elsewhere"),
        mounting("home", "/home/me", readOnly=True),
        mounting("home", "/home/me", subPath="part"),
        {},
    ],
)
def test_what_not_all_pods_can_write_to_does_not(worker: dict[str, Any]) -> None:
    assert "root" not in discovered(mounting("home", "/home/me"), worker)


def test_a_path_that_cannot_be_written_down_is_left_out() -> None:
    odd = mounting("home", "/home/a b;c")
    assert "root" not in discovered(odd, odd)


def test_a_cluster_that_has_no_possible_name_is_left_out() -> None:
    assert discovering.found_in([named("../x"), {}], "here", {}) == []
