"""What an API server says is data: no name of its becomes an option of kubectl, no shape of its
answers hides the jobs of other clusters, and none of them fills the memory."""

from __future__ import annotations

import copy
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.clusters.kube import api as kube
from dray.clusters.kube import doctor, kueue, lost_nodes, manifest, names, queue, suggesting
from dray.clusters.kube.api import Cluster, Replaces
from dray.clusters.kube.manifest import Object, Place
from dray.clusters.kube.situation import KubernetesSituation
from dray.clusters.options import kubernetes as options
from dray.errors import ClusterError, DrayError
from dray.job.model import JobSpec, JobState, JobView
from dray.node.formats import web
from dray.transport import frames, kube_api
from dray.transport.channel import LinkLost
from dray.transport.kube_api import Api, Reply
from dray.transport.kubectl import Kubectl, PodExec

pytestmark = pytest.mark.hostile

PLACE = Place("lab", "/lab/dray", "lena", "kueue", "gpus")
LONG = 1 << 20
SETTINGS = {"volumes": ["pvc:home:/lab"], "image": "image:1"}
OWN = {
    "labels": {"dray/job": "walk-7f3k", "priority": "3", "user": "lena"},
    "annotations": {"dray/created": "1.0", "dray/carried": "true"},
}
JOB: Object = {"metadata": {"name": "walk-7f3k", **OWN}}


class Scripted(Api):
    """Answers by a function of the method and the path, and notes what it is asked."""

    def __init__(self, answer: Callable[[str, str], Reply]) -> None:
        super().__init__(Kubectl("lab"))
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def _by_kubectl(self, method: str, path: str, thing: Any) -> Reply:
        del thing
        self.asked.append((method, path))
        return self.answer(method, path)


# -- names --------------------------------------------------------------------------------------


def kubectl_in(folder: Path, body: str) -> None:
    program = folder / "kubectl"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
    program.chmod(0o700)


@pytest.mark.parametrize(
    "name", ["--profile=cpu/--profile-output=train.py", "--kubeconfig=evil", "-f", "x/y", "é", ""]
)
def test_no_name_of_a_pod_is_an_option(name: str) -> None:
    answering = Scripted(lambda *_: Reply(200, {}))
    lost_nodes.give_up(Cluster(answering), [{"metadata": {"name": name}}])
    assert answering.asked == []


def test_nor_where_it_is_patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything behind -- is a name, however it begins."""
    kubectl_in(
        tmp_path, f"json.dump(sys.argv, open({str(tmp_path / 'words')!r}, 'w')); print({{}})"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    Api(Kubectl("lab")).patch("/api/v1/namespaces/lab/pods/--profile-output=train.py", {})
    words = json.loads((tmp_path / "words").read_text())
    assert words[words.index("--") :] == ["--", "pods", "--profile-output=train.py"]


@pytest.mark.parametrize("path", ["/é", "/a\0b", "/a b", "/a\nb", "/\ud800", "--kubeconfig=x"])
def test_no_path_but_a_plain_one_is_asked_for(path: str) -> None:
    answering = Scripted(lambda *_: Reply(200, {}))
    with pytest.raises(ClusterError, match="no name can be"):
        answering.get(path)
    assert answering.asked == []


ODD_NAMES = ["a?watch=true", "../../../../../api/v1/secrets", "a:b", "--x", "a\nb", "A", ""]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_setting_names_a_path(name: str) -> None:
    """Also that of a project which nobody trusts may name a queue."""
    for parse in (options.QUEUE.parse, lambda one: options.VOLUMES.parse([f"pvc:{one}:/x"])):
        with pytest.raises(ValueError, match=r"Kubernetes|volume"):
            parse(name)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_nor_is_one_suggested(name: str) -> None:
    claim = {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteMany"]}}
    assert suggesting.writable_claims([claim]) == []
    assert suggesting.leaf_queues([claim]) == []


def test_versions_without_end_are_not_asked_for() -> None:
    many = [{"version": f"v{number}", "groupVersion": "a"} for number in range(2000)]
    groups = [{"name": "kueue.x-k8s.io", "versions": many}] * 20
    answering = Scripted(lambda _, path: Reply(200 if path == "/apis" else 403, {"groups": groups}))
    assert list(suggesting.queues_there(Cluster(answering))) == []
    assert len(answering.asked) < 50


@pytest.mark.parametrize("tail", ["²", "٣", "9" * 5000, "-1", ""])
def test_a_jobs_number_is_one_in_plain_digits(tail: str) -> None:
    found = {"items": [{"metadata": {"name": f"walk-7f3k--r{tail}"}}]}
    looked = Cluster(Scripted(lambda *_: Reply(200, found))).look(PLACE, ["walk-7f3k"])
    assert looked.rows == {}


def test_a_context_of_another_kubeconfig_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job, and its secrets, would go where the connection of another shell leads."""
    way = PodExec(Kubectl("lab", "gpus"), "job/dray-agent", ())
    seen = set()
    for paths in ("", "/a/config", "/b/config", "/a/config:/b/config"):
        monkeypatch.setenv("KUBECONFIG", paths)
        seen.add(way.spec())
    assert len(seen) == 4


# -- shapes -------------------------------------------------------------------------------------

META = {
    "name": "walk-7f3k-0-abcde",
    "uid": "u",
    **OWN,
    "deletionTimestamp": "2020-01-01T00:00:00Z",
    "finalizers": ["batch.kubernetes.io/job-tracking"],
    "ownerReferences": [{"kind": "Job", "name": "walk-7f3k", "uid": "u"}],
}
POD: dict[str, Any] = {
    "metadata": META,
    "spec": {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "home"}}],
        "hostname": "walk-7f3k-0",
        "priority": 7,
        "containers": [
            {
                "name": "job",
                "command": ["/lab/python", "-I", "-S"],
                "volumeMounts": [{"name": "v", "mountPath": "/home"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
        "accessModes": ["ReadWriteMany"],
        "hard": {"limits.cpu": "1"},
    },
    "status": {
        "phase": "Pending",
        "containerStatuses": [
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}},
            {"state": {"terminated": {"reason": "StartError", "message": "no"}}},
        ],
        "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"},
            {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "(UID: 0)"},
        ],
        "allocatable": {"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "hard": {"pods": "1"},
        "used": {"pods": "1"},
        "allowed": True,
    },
    "positionInLocalQueue": 3,
    "reason": "FailedCreate",
    "message": "exceeded quota",
    "involvedObject": {"name": "walk-7f3k"},
    "versions": [{"version": "v1"}],
    "resources": [{"name": "workloads"}, {"name": "localqueues"}],
    "groups": [{"name": "kueue.x-k8s.io", "versions": [{"version": "v1"}]}],
}
HONEST: dict[str, Any] = {"items": [POD, {**POD, "metadata": {**META, "name": "walk-7f3k"}}], **POD}
TABLE: dict[str, Any] = {
    "kind": "Table",
    "columnDefinitions": [{"name": "Name"}, {"name": "Status"}],
    "rows": [{"cells": ["walk-7f3k", "Failed"]}, {"cells": ["walk-7f3k-0-abcde", "Unknown"]}],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every part of a value."""
    yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from places(value[key], (*path, key))


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    found = copy.deepcopy(value)
    inside = found
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = odd
    return found


ODDITIES: list[Any] = (
    [None, True, 0, -1, 1e308, 10**30, "", "²", "--x", "../../x", "é", "\0", "\ud800", [], {}, [[]],
     [{}], {"a": 1}, [1, None, "x"], "9" * 5000, "0001-01-01T00:00:00+23:59"]
)  # fmt: skip
ODD: st.SearchStrategy[Any] = st.sampled_from(ODDITIES)
ANSWERS = st.builds(changed, st.just(HONEST), st.sampled_from(list(places(HONEST))), ODD)
TABLES = st.builds(changed, st.just(TABLE), st.sampled_from(list(places(TABLE))), ODD)


def look(cluster: Cluster) -> None:
    for scheduler in ("default", "kueue", "kai"):
        seen = cluster.look(PLACE._replace(scheduler=scheduler), ["walk-7f3k", "run-2"])
        json.dumps([queue.grouped(seen.rows), seen.ends])
        for pods in seen.overdue.values():
            lost_nodes.give_up(cluster, pods)
        surveyed = cluster.survey(PLACE._replace(scheduler=scheduler), ["walk-7f3k", "run-2"])
        json.dumps(queue.grouped(surveyed.rows))


def create(cluster: Cluster) -> None:
    cluster.create_jobs([JOB], {"secrets.json": b"{}"}, Replaces())


def suggest(cluster: Cluster) -> None:
    found = suggesting.Gathered({})
    for find in (
        suggesting.find_volumes,
        suggesting.find_queue,
        suggesting.find_user,
        suggesting.find_gpus,
    ):
        find(cluster, found)


def start_in_pods(cluster: Cluster) -> None:
    """Let kubectl's words be made as they are for a process in a pod: each can be one."""
    found = [(name, words) for name, words in cluster.job_pods(PLACE)]
    found += [(name, []) for name in cluster.running_pods(PLACE, "walk-7f3k").values()]
    for name, words in found:
        assert names.is_name(name)
        for word in PodExec(Kubectl("lab"), f"pod/{name}", words).argv(*words):
            assert "\0" not in os.fsencode(word).decode(errors="replace")
            assert len(word) < 1 << 16


def situate(cluster: Cluster) -> None:
    there = KubernetesSituation(cluster, SETTINGS, PLACE)
    for ask in (there.view, there.allowance, lambda: there.description("walk-7f3k")):
        ask()
    spec = JobSpec(id="walk-7f3k", name="walk", command=())
    there.explain(JobView(spec=spec, cluster="lab", state=JobState.QUEUED))


EACH: tuple[Callable[[Cluster], object], ...] = (
    look,
    create,
    suggest,
    Cluster.facts,
    lambda cluster: cluster.largest_node("nvidia.com/gpu"),
    lambda cluster: doctor.findings(cluster, SETTINGS, PLACE),
)


@settings(max_examples=150)
@given(ANSWERS, TABLES, st.sampled_from(EACH))
def test_no_shape_of_an_answer_is_too_odd(
    said: Any, table: Any, ask: Callable[[Cluster], object]
) -> None:
    """Else a listing of jobs would end with it, those of other clusters' too."""

    def answer(method: str, path: str) -> Reply:
        told = table if method == "GET" and "includeObject" in path else said
        return Reply(200, told if isinstance(told, dict) else {})

    with suppress(DrayError):
        ask(Cluster(Scripted(answer)))


ALIVE = {key: value for key, value in META.items() if key != "deletionTimestamp"}
RUNNING = {"items": [{**POD, "metadata": ALIVE}]}


@pytest.mark.parametrize("ask", [start_in_pods, situate])
def test_nor_where_little_is_asked(ask: Callable[[Cluster], object]) -> None:
    """There is time to try each oddity at each place."""
    for path in list(places(RUNNING)):
        for odd in [*ODDITIES, "--5"]:
            said = changed(RUNNING, path, odd) if path else {}
            with suppress(DrayError):
                ask(Cluster(Scripted(lambda *_, said=said: Reply(200, said))))


@pytest.mark.parametrize("command", [["x" * LONG, "-I"], [*"x" * LONG, "-I"], ["a\0", "-I"]])
def test_what_cannot_start_a_python_is_not_tried(command: list[str]) -> None:
    assert manifest.python_of({"spec": {"containers": [{"name": "job", "command": command}]}}) == []


# -- sizes --------------------------------------------------------------------------------------


def test_kubectl_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "LARGEST", 1 << 20)
    kubectl_in(tmp_path, "while True: sys.stdout.write('x' * 4096)")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ClusterError, match="more than 1 MB"):
        Api(Kubectl("lab")).get("/version")


def test_nor_do_many_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_PARTS", 1000)
    many = b'{"a": [' + b"[]," * 1000 + b"0]}"
    with pytest.raises(LinkLost, match="is none"):
        kube_api.reply_of(200, many)
    with pytest.raises(frames.NotAMessage, match="1,000 parts"):
        frames.read_record(io.BufferedReader(io.BytesIO(b"%d 0\n%s" % (len(many), many))))


@pytest.mark.parametrize("text", [b'{"items": [{"metadata": ', b"[]", b"<html>", b"7", b""])
def test_half_an_answer_is_not_that_there_is_nothing(text: bytes) -> None:
    """A job that is not in it would be taken for lost."""
    with pytest.raises(LinkLost):
        kube_api.reply_of(200, text)
    assert kube_api.reply_of(403, text).code == 403


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "Status", "status": "Success"},
        {"kind": "JobList", "items": {}},
        {"kind": "Table", "rows": []},
        {**TABLE, "rows": {}},
        {**TABLE, "columnDefinitions": [{"name": "Name"}]},
    ],
)
def test_nor_is_one_that_is_no_list(said: dict[str, Any]) -> None:
    cluster = Cluster(Scripted(lambda *_: Reply(200, said)))
    for ask in (cluster.look, cluster.survey):
        with pytest.raises(LinkLost, match="no list"):
            ask(PLACE, ["walk-7f3k"])


@pytest.mark.parametrize("said", [{"items": []}, {"items": None}, {**TABLE, "rows": None}])
def test_an_empty_list_is_one(said: dict[str, Any]) -> None:
    assert Cluster(Scripted(lambda *_: Reply(200, said))).look(PLACE, ["walk-7f3k"]).rows == {}


class Proxy(ThreadingUnixStreamServer):
    daemon_threads = True


class Dripping(BaseHTTPRequestHandler):
    """Sends a byte now and then, for ever."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while not self.server.over.wait(0.05):  # type: ignore[attr-defined]
                self.wfile.write(b" ")

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return "somebody"


def test_an_answer_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "WHOLE", 0.5)
    with Proxy(str(tmp_path / "near"), Dripping) as server:
        server.over = threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(LinkLost, match="no whole answer"):
            Api(Kubectl("lab"), tmp_path / "near").get("/version")
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()


class Cut(Dripping):
    """Is cut off between the head of an answer and its body."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()


class Hints(Dripping):
    """Says something before its answer, which never comes."""

    def do_GET(self) -> None:
        self.send_response_only(103)
        self.end_headers()


@pytest.mark.parametrize("handler", [Cut, Hints])
def test_an_answer_without_a_body_is_none(tmp_path: Path, handler: type[Dripping]) -> None:
    """All jobs of the cluster would be taken for lost."""
    with Proxy(str(tmp_path / "near"), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = Cluster(Api(Kubectl("lab"), tmp_path / "near"))
        with pytest.raises(DrayError):
            cluster.look(PLACE, ["walk-7f3k"])
        server.shutdown()


@pytest.mark.parametrize(
    "said", ["persistentvolumeclaim ", 'volume "secrets"secret "', "Insufficient ", "(UID: "]
)
def test_a_long_message_is_understood_in_bounded_time(said: str) -> None:
    """One of 100 kB took 12 seconds, and the listing of all clusters with it."""
    said *= LONG // len(said)
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": said}
    made = queue.making_reason([{"reason": "FailedMount", "message": said}])
    queued = kueue.reason({"status": {"conditions": [evicted]}}, {}, None)
    for told in (queue.scheduling_reason(said), made, queued):
        assert told
        assert len(told) < 1000


def test_nor_is_a_long_reason_told_whole() -> None:
    waiting = {"waiting": {"reason": "x" * LONG, "message": "y" * LONG}}
    assert len(queue.waiting_reason({"status": {"containerStatuses": [{"state": waiting}]}})) < 1000


# -- Secrets ------------------------------------------------------------------------------------


class Secrets:
    """An API server on which there is a Secret of that name already."""

    def __init__(self, owner: str, *, looks: int = 10**9, code: int = 200) -> None:
        self.owner, self.looks, self.code = owner, looks, code
        self.api = Scripted(self.answer)

    def answer(self, method: str, path: str) -> Reply:
        if "/secrets" not in path:
            return Reply(200, {"metadata": {"name": "walk-7f3k", "uid": "new"}})
        if method == "GET":
            return Reply(self.code, {"metadata": {"ownerReferences": [{"uid": self.owner}]}})
        self.looks -= 1
        return Reply(409 if self.looks >= 0 else 201, {})


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "PAUSE", 0.0)


@pytest.mark.usefixtures("hasty")
def test_a_secret_of_the_job_before_is_not_this_ones() -> None:
    """Kubernetes removes it a moment later: the pod would wait for it for ever."""
    there = Secrets("old", looks=2)
    create(Cluster(there.api))
    made = [path for method, path in there.api.asked if method == "POST" and "/secrets" in path]
    assert len(made) == 3


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("owner", "code"), [("new", 200), ("", 403)])
def test_one_whose_answer_was_lost_is_found_again(owner: str, code: int) -> None:
    create(Cluster(Secrets(owner, code=code).api))


@pytest.mark.usefixtures("hasty")
def test_one_of_somebody_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "GONE_SECONDS", 0.2)
    there = Secrets("theirs")
    with pytest.raises(ClusterError, match="does not take the job's secrets"):
        create(Cluster(there.api))
    method, path = there.api.asked[-1]
    assert (method, path.partition("?")[0]) == ("DELETE", Cluster(there.api).jobs + "/walk-7f3k")
