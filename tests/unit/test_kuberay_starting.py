"""Ray clusters on Kubernetes: what is planned, created and removed, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dray.cli import cluster_up
from dray.clusters.kube.volumes import parse
from dray.clusters.kuberay import ending, manifest, starting
from dray.clusters.kuberay.looking import Namespace
from dray.clusters.kuberay.manifest import Wish, differences, objects_of, version_of
from dray.errors import ClusterError, Refused, TimedOut, UsageError
from dray.transport.kube_api import Api, Reply
from dray.transport.kubectl import Kubectl

GOLDEN = Path(__file__).parent / "golden"
PLAIN = Wish("isaac", "lab", "rayproject/ray:2.60.0-gpu", "2.60.0")
FULL = PLAIN._replace(
    workers=8,
    gpus=2,
    node_selector={"nvidia.com/gpu.product": "NVIDIA-L4"},
    volumes=(parse("pvc:home:/home/me"), parse("pvc:data:/data:ro")),
    queue="lab",
    pull_secrets=("regcred",),
    mlflow_image="mlflow:3",
    seconds=8 * 3600,
)
READY = {"conditions": [{"type": "HeadPodReady", "status": "True"}]}
NO_PORT = ("LoadBalancer", "NodePort", "hostPort", "hostNetwork", "privileged", "externalIPs")


class Objects(Api):
    """Keeps objects as an API server does; one who may not do something is refused."""

    def __init__(self, *refused: str) -> None:
        super().__init__(Kubectl("lab"))
        self.kept: dict[str, dict[str, Any]] = {}
        self.refused = refused
        self.asked: list[str] = []
        self.loses_answer = False

    def ask(self, method: str, path: str, thing: Any = None, **_: Any) -> Reply:
        where, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        self.asked.append(f"{method} {where}")
        if any(re.search(one, f"{method} {where}") for one in self.refused):
            return Reply(403, {"message": "you may not"})
        if method == "POST":
            return self._create(where, thing)
        if method == "DELETE":
            return Reply(200, self.kept.pop(where)) if where in self.kept else Reply(404, {})
        if where == "/apis/ray.io/v1":
            return Reply(200, {})
        if "labelSelector" in query:
            return Reply(200, {"items": list(self._chosen(where, query["labelSelector"][0]))})
        return Reply(200, self.kept[where]) if where in self.kept else Reply(404, {})

    def _create(self, where: str, thing: dict[str, Any]) -> Reply:
        path = f"{where}/{thing['metadata']['name']}"
        if path in self.kept:
            return Reply(409, {"message": "already exists"})
        about = {**thing["metadata"], "uid": f"uid-{len(self.kept)}"}
        self.kept[path] = json.loads(json.dumps({**thing, "metadata": about}))
        if self.loses_answer:
            self.loses_answer = False
            return Reply(409, {"message": "already exists"})
        return Reply(201, self.kept[path])

    def _chosen(self, where: str, selector: str) -> Any:
        wanted = dict(one.split("=") for one in unquote(selector).split(","))
        for path, one in self.kept.items():
            labels = one["metadata"].get("labels", {})
            if path.startswith(f"{where}/") and wanted.items() <= labels.items():
                yield one


def ignore(_: str) -> None:
    pass


# -- the plan -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "wish"), [("plain", PLAIN), ("full", FULL)])
def test_the_plan_is_as_before(name: str, wish: Wish) -> None:
    golden = GOLDEN / f"kuberay-{name}.json"
    assert manifest.plan_of(wish) == json.loads(golden.read_text())


@pytest.mark.parametrize("wish", [PLAIN, FULL])
def test_nobody_outside_gets_in_and_no_pod_has_rights(wish: Wish) -> None:
    text = json.dumps(manifest.plan_of(wish))
    assert not any(word in text for word in NO_PORT)
    (cluster,) = (one for one in objects_of(wish) if one["kind"] == "RayCluster")
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    pods = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    assert [one["template"]["spec"]["automountServiceAccountToken"] for one in pods] == [False] * 2


def test_all_objects_are_found_again_by_their_label() -> None:
    labels = [one["metadata"]["labels"] for one in objects_of(FULL)]
    assert [one["dray/cluster"] for one in labels] == ["isaac"] * 5
    assert {one["app.kubernetes.io/managed-by"] for one in labels} == {"dray"}


def test_the_timer_starts_no_pod_and_claims_outlive_it() -> None:
    timer, cluster, claim, *_ = objects_of(FULL)
    assert timer["spec"]["parallelism"] == 0
    assert timer["spec"]["activeDeadlineSeconds"] == 28800
    assert manifest.is_data(claim)
    assert not manifest.is_data(cluster)


@pytest.mark.parametrize(
    ("image", "told", "version"),
    [
        ("rayproject/ray:2.60.0-py311-gpu", "", "2.60.0"),
        ("ray:2.55.1", "", "2.55.1"),
        ("isaac-lab:2.3.0", "2.60.0", "2.60.0"),
        ("rayproject/ray:2.60.0", "2.59.0", "2.59.0"),
    ],
)
def test_the_version_of_ray_is_told_or_in_the_tag(image: str, told: str, version: str) -> None:
    assert version_of(image, told) == version


@pytest.mark.parametrize(
    ("image", "told", "words"),
    [
        ("isaac-lab:2.60.0", "", "is not known"),
        ("rayproject/ray:latest", "", "is not known"),
        ("stingray:2.60.0", "", "is not known"),
        ("ray:2.31.0", "", "knows no token"),
        ("ray:2.60.0", "2.60", "write it as 2.60.0"),
        ("ray:2.60.0", "2.60.0; x", "write it as 2.60.0"),
    ],
)
def test_a_version_that_is_none(image: str, told: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        version_of(image, told)


@pytest.mark.parametrize("name", ["", "Isaac", "1x", "a_b", "a.b", "x" * 41, "a-", "../x"])
def test_a_name_that_no_raycluster_can_have(name: str) -> None:
    with pytest.raises(UsageError):
        manifest.require_name(name)


# -- comparing ----------------------------------------------------------------------------------

VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), VALUES)
def test_what_the_api_server_adds_is_no_difference(wanted: dict[str, Any], more: Any) -> None:
    assert differences(wanted, {**wanted, "added by the API server": more}) == []


def test_differences_are_told_by_their_place() -> None:
    wanted = {"a": [{"b": 1, "c": "x"}], "d": {}}
    assert differences(wanted, {"a": [{"b": 2, "c": "x", "e": 1}]}) == [
        "a[0].b (2 there, 1 asked for)"
    ]
    assert differences(wanted, {}) == ["a"]
    assert differences({"x": "y"}, {}) == ["x (nothing there, y asked for)"]


# -- creating -----------------------------------------------------------------------------------


def test_all_but_claims_end_with_the_timer() -> None:
    api = Objects()
    starting.create(Namespace(api), FULL, ignore)
    owners = {
        one["kind"]: [owner["uid"] for owner in one["metadata"].get("ownerReferences", [])]
        for one in api.kept.values()
    }
    timer = next(one for one in api.kept.values() if one["kind"] == "Job")
    uid = [timer["metadata"]["uid"]]
    assert owners.pop("Job") == owners.pop("PersistentVolumeClaim") == []
    assert list(owners.values()) == [uid, uid, uid]


def test_twice_is_the_same() -> None:
    api, told = Objects(), []
    starting.create(Namespace(api), FULL, ignore)
    before = json.dumps(api.kept)
    starting.create(Namespace(api), FULL, told.append)
    assert json.dumps(api.kept) == before
    assert len(told) == 5
    assert all("is there already" in one for one in told)


def test_what_was_interrupted_is_completed() -> None:
    api = Objects("POST .*/deployments")
    with pytest.raises(ClusterError, match="Deployment isaac-mlflow: you may not") as refused:
        starting.create(Namespace(api), FULL, ignore)
    assert "You may not create deployments in namespace lab" in refused.value.hint
    api.refused = ()
    starting.create(Namespace(api), FULL, ignore)
    assert len(api.kept) == 5


def test_an_answer_that_was_lost_is_found() -> None:
    api = Objects()
    api.loses_answer = True
    starting.create(Namespace(api), PLAIN, ignore)
    assert len(api.kept) == 1


def test_another_wish_is_refused_before_anything_is_created() -> None:
    api = Objects()
    starting.create(Namespace(api), PLAIN, ignore)
    api.asked.clear()
    with pytest.raises(Refused, match=r"replicas \(1 there, 4 asked for\)"):
        starting.create(Namespace(api), PLAIN._replace(workers=4, mlflow_image="m"), ignore)
    assert not any(one.startswith("POST") for one in api.asked)


def test_what_somebody_else_has_made_is_left_alone() -> None:
    api = Objects()
    path = starting.path_of("RayCluster", "lab", "isaac")
    api.kept[path] = {"kind": "RayCluster", "metadata": {"name": "isaac"}, "spec": {}}
    with pytest.raises(Refused, match="dray has not made it"):
        starting.create(Namespace(api), PLAIN, ignore)
    assert ending.belonging(Namespace(api), "isaac") == []


# -- waiting ------------------------------------------------------------------------------------


def with_cluster(status: Any) -> Objects:
    api = Objects()
    starting.create(Namespace(api), PLAIN, ignore)
    api.kept[starting.path_of("RayCluster", "lab", "isaac")]["status"] = status
    return api


def test_a_head_that_is_ready_is_not_waited_for() -> None:
    state = starting.wait(Namespace(with_cluster(READY)), "isaac", 0, ignore)
    assert state.is_ready


def test_what_is_waited_for_is_told_once() -> None:
    told: list[str] = []
    with pytest.raises(TimedOut, match="for the head's pod to be created") as late:
        starting.wait(Namespace(with_cluster({})), "isaac", 0, told.append)
    assert told == ["waits for the head's pod to be created"]
    assert "dray cluster down isaac" in late.value.hint


def test_what_will_not_pass_is_not_waited_for() -> None:
    status = {"state": "failed", "reason": "minimum Ray version is 2.52.0"}
    with pytest.raises(ClusterError, match="KubeRay refuses it"):
        starting.wait(Namespace(with_cluster(status)), "isaac", 3600, ignore)


def test_a_cluster_that_is_removed_meanwhile() -> None:
    with pytest.raises(ClusterError, match="somebody has removed it"):
        starting.wait(Namespace(Objects()), "isaac", 0, ignore)


# -- removing -----------------------------------------------------------------------------------


def test_everything_is_removed_and_claims_are_kept() -> None:
    api, told = Objects(), []
    space = Namespace(api)
    starting.create(space, FULL, ignore)
    starting.create(space, PLAIN._replace(name="other"), ignore)
    every = ending.belonging(space, "isaac")
    wanted = [one for one in every if not manifest.is_data(one)]
    ending.remove(space, "isaac", wanted, told.append)
    left = sorted(one["metadata"]["name"] for one in api.kept.values())
    assert left == ["isaac-mlflow", "other"]
    assert told[-1] == "removed Job isaac-timer"
    assert len(told) == 4


def test_who_may_not_list_deployments_can_remove_a_cluster_without() -> None:
    api = Objects("GET .*/(deployments|persistentvolumeclaims)")
    space = Namespace(api)
    starting.create(space, PLAIN, ignore)
    ending.remove(space, "isaac", ending.belonging(space, "isaac"), ignore)
    assert api.kept == {}


def test_what_may_not_be_removed_is_said() -> None:
    api = Objects("DELETE ")
    space = Namespace(api)
    starting.create(space, PLAIN, ignore)
    with pytest.raises(ClusterError, match="RayCluster isaac is not removed: you may not"):
        ending.remove(space, "isaac", ending.belonging(space, "isaac"), ignore)


def test_what_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "PATIENCE", 0.0)
    api = Objects()
    space = Namespace(api)
    labels = {"ray.io/cluster": "isaac"}
    api.kept[f"{space.core}/pods/isaac-head"] = {
        "metadata": {"name": "isaac-head", "labels": labels}
    }
    with pytest.raises(TimedOut, match="pod isaac-head"):
        ending.remove(space, "isaac", [], ignore)


def test_jobs_of_anybody_are_active_until_they_are_over() -> None:
    listed = [
        {"submission_id": "dray-link-1", "status": "RUNNING"},
        {"submission_id": "dray-0-x", "status": "RUNNING"},
        {"submission_id": "raysubmit_1", "status": "PENDING"},
        {"submission_id": None, "job_id": "02000000", "status": "RUNNING"},
        {"submission_id": "old", "status": "SUCCEEDED"},
        7,
    ]
    assert ending.active_in(listed) == ["dray-0-x", "raysubmit_1", "02000000"]
    assert ending.active_in({"no": "list"}) == []


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        ([["dray-0-x"], ["dray-0-x"], []], []),
        ([["dray-0-x"], ["dray-0-x", "raysubmit_1"]], ["dray-0-x", "raysubmit_1"]),
        ([["dray-0-x"]] * 50, ["dray-0-x"]),
    ],
)
def test_only_drivers_of_dray_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[str]], found: list[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(ending.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(ending.time, "sleep", lambda _: clock.append(clock.pop() + 1))
    told = iter(looks)
    monkeypatch.setattr(ending, "active_jobs", lambda *_: next(told))
    assert ending.still_active(None, {}) == found  # type: ignore[arg-type]


# -- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--storage", "home"], "write CLAIM:/path"),
        (["--storage", "home:relative"], "write CLAIM:/path"),
        (["--storage", "home:/x:ro"], "jobs write there"),
        (["--storage", "home:/a b"], "must be a path"),
        (["--ttl", "5s"], "at least a minute"),
        (["--workers", "0"], "0"),
        (["--queue", "../x"], "names nothing in Kubernetes"),
        (["--kind", "slurm"], "slurm"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], said: str) -> None:
    run = CliRunner().invoke(cluster_up.start_cluster, ["isaac", "--image", "ray:2.60.0", *words])
    assert run.exit_code == 2
    assert said in run.output
