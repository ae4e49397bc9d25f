"""Jobs and their Secrets are created once, whatever answers are lost, and in place of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dray.clusters.kube import manifest, queue
from dray.clusters.kube.api import Cluster, Replaces
from dray.clusters.kube.helper import Helper
from dray.clusters.kube.manifest import Place
from dray.errors import ClusterError, LoginNeeded
from dray.job.model import JobSpec
from dray.transport.channel import LinkLost
from dray.transport.kube_api import JSON, Api, Reply
from dray.transport.kubectl import Kubectl
from tests.simulation.kernel import Kernel
from tests.simulation.kubernetes import KubeSystem
from tests.simulation.luck import Calm

SECRETS = {"secrets.json": b"{}"}
ANEW = Replaces(any=True)


class DirectApi(Api):
    """Loses the answers to these requests, which are carried out."""

    def __init__(self, system: KubeSystem) -> None:
        super().__init__(Kubectl("sim"))
        self.system = system
        self.posted: list[str] = []
        self.lost: set[int] = set()  # of the requests that create something, by their number

    def ask(
        self,
        method: str,
        path: str,
        thing: Mapping[str, Any] | None = None,
        *,
        accept: str = JSON,  # noqa: ARG002
    ) -> Reply:
        reply = self.system.answer(method, path, thing)
        if method == "POST":
            self.posted.append(path.rsplit("/", 1)[1])
            if len(self.posted) in self.lost:
                raise LinkLost("no answer")
        return reply


@pytest.fixture
def system() -> KubeSystem:
    def start(_: object) -> Any:
        raise AssertionError("no pod is started here")

    return KubeSystem(Kernel(0), Calm(), start)


@pytest.fixture
def cluster(system: KubeSystem, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("dray.clusters.kube.api.PAUSE", 0.0)
    return Cluster(DirectApi(system))


def described() -> dict[str, Any]:
    settings = {"volumes": ["pvc:jobs:/jobs"], "image": "trainer"}
    job = JobSpec(id="walk-7f3k", name="walk", command=("true",), created=1.0, secrets=("KEY",))
    return manifest.job_manifest(job, settings, Place("sim", "/jobs/dray", "me"))


def test_a_lost_answer_does_not_refuse_the_job_in_place_of_another(
    system: KubeSystem, cluster: Cluster
) -> None:
    cluster.create_jobs([described()], {}, Replaces())
    assert isinstance(cluster.api, DirectApi)
    cluster.api.lost = {3}  # refused, as there is one; then in its place
    cluster.create_jobs([described()], {}, ANEW)
    assert cluster.api.posted == ["jobs"] * 4
    assert len(system.by_name) == 1


class Overtaken(DirectApi):
    """Another laptop is quicker: it creates the new Job as soon as the old one is deleted."""

    def delete(self, path: str) -> Reply:
        reply = super().delete(path)
        self.system.answer("POST", "/apis/batch/v1/namespaces/sim/jobs", described())
        return reply


def test_a_job_that_another_laptop_has_put_in_place_is_found_again(
    system: KubeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name does not become free, as it has been given again."""
    monkeypatch.setattr("dray.clusters.kube.api.GONE_SECONDS", 0.0)
    cluster = Cluster(Overtaken(system))
    cluster.create_jobs([described()], {}, Replaces())
    cluster.create_jobs([described()], SECRETS, ANEW)
    (owner,) = system.secrets["walk-7f3k"]["metadata"]["ownerReferences"]
    assert owner["uid"] == system.by_name["walk-7f3k"].uid


def test_a_secret_is_sent_again_where_the_answer_is_lost(
    system: KubeSystem, cluster: Cluster
) -> None:
    assert isinstance(cluster.api, DirectApi)
    cluster.api.lost = {2, 3}
    cluster.create_jobs([described()], SECRETS, Replaces())
    assert cluster.api.posted == ["jobs", "secrets", "secrets", "secrets"]
    assert set(system.secrets) == {"walk-7f3k"}


def test_a_pod_that_waits_for_a_secret_in_vain_says_what_to_do() -> None:
    """The laptop was cut off after it had created the Job."""
    said = 'MountVolume.SetUp failed for volume "secrets" : secret "walk-7f3k-0a1b2c3d" not found'
    told = queue.making_reason([{"reason": "FailedMount", "message": said}])
    assert told.startswith("its secrets did not arrive: dray stop it, then dray resume it")
    other = said.replace('volume "secrets"', 'volume "volume-0"')
    told = queue.making_reason([{"reason": "FailedMount", "message": other}])
    assert told.startswith("its volume cannot be mounted")


class Full(DirectApi):
    """Has room for some Jobs, as a quota that counts them; and loses what it is told to."""

    room = 3

    def ask(
        self,
        method: str,
        path: str,
        thing: Mapping[str, Any] | None = None,
        *,
        accept: str = JSON,
    ) -> Reply:
        if method == "POST" and path.endswith("/jobs") and len(self.system.by_name) >= self.room:
            self.posted.append("jobs")
            return Reply(403, {"message": "exceeded quota: jobs"})
        return super().ask(method, path, thing, accept=accept)


def several(count: int) -> list[dict[str, Any]]:
    settings = {"volumes": ["pvc:jobs:/jobs"], "image": "trainer"}
    job = JobSpec(id="walk-7f3k", name="walk", command=("true",), created=1.0)
    place = Place("sim", "/jobs/dray", "me")
    return [manifest.job_manifest(job, settings, place, index=index) for index in range(count)]


def test_of_several_jobs_all_are_created_or_none(system: KubeSystem) -> None:
    """Those that had room would hold it, and run, while the user is told that none was taken."""
    cluster = Cluster(Full(system))
    with pytest.raises(ClusterError, match="exceeded quota"):
        cluster.create_jobs(several(40), {}, Replaces())
    assert system.by_name == {}
    assert isinstance(cluster.api, DirectApi)
    assert len(cluster.api.posted) < 40  # the rest is not even tried


def test_jobs_stay_where_an_answer_is_missing(
    system: KubeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all are there shows at the next look."""
    monkeypatch.setattr("dray.clusters.kube.api.PAUSE", 0.0)
    cluster = Cluster(DirectApi(system))
    assert isinstance(cluster.api, DirectApi)
    cluster.api.lost = set(range(2, 1000))
    with pytest.raises(LinkLost):
        cluster.create_jobs(several(3), {}, Replaces())
    assert system.by_name


def test_a_quota_that_the_job_itself_has_used_up_does_not_refuse_it(
    system: KubeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its creation was lost; asked again, Kubernetes looks at the quota first. Its
    directory would be taken away below the pod."""
    monkeypatch.setattr("dray.clusters.kube.api.PAUSE", 0.0)
    monkeypatch.setattr(Full, "room", 1)
    cluster = Cluster(Full(system))
    assert isinstance(cluster.api, DirectApi)
    cluster.api.lost = {1}
    cluster.create_jobs([described()], SECRETS, Replaces())
    assert cluster.api.posted == ["jobs", "jobs", "secrets"]
    assert set(system.by_name) == {"walk-7f3k"}


class Expiring(DirectApi):
    """Loses its first answer, and then knows nobody any more."""

    def ask(
        self,
        method: str,
        path: str,
        thing: Mapping[str, Any] | None = None,
        *,
        accept: str = JSON,
    ) -> Reply:
        if self.posted:
            raise LoginNeeded("kubectl: (Unauthorized)")
        return super().ask(method, path, thing, accept=accept)


def test_a_login_that_is_over_meanwhile_leaves_it_open_whether_the_job_is_there(
    system: KubeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.clusters.kube.api.PAUSE", 0.0)
    cluster = Cluster(Expiring(system))
    assert isinstance(cluster.api, DirectApi)
    cluster.api.lost = {1}
    with pytest.raises(LinkLost, match="Unauthorized"):
        cluster.create_jobs([described()], {}, Replaces())


class WithoutPods(DirectApi):
    """Refuses to list pods."""

    def ask(
        self,
        method: str,
        path: str,
        thing: Mapping[str, Any] | None = None,
        *,
        accept: str = JSON,
    ) -> Reply:
        if method == "GET" and "/pods?" in path:
            return Reply(403, {"message": 'pods is forbidden: User "me" cannot list "pods"'})
        return super().ask(method, path, thing, accept=accept)


def test_a_helper_that_may_not_be_looked_for_is_not_waited_for(system: KubeSystem) -> None:
    settings = {"volumes": ["pvc:jobs:/jobs"], "image": "trainer"}
    helper = Helper(Cluster(WithoutPods(system)), settings, Place("sim", "/jobs/dray", "me"))
    with pytest.raises(ClusterError, match='cannot list "pods"') as refused:
        helper.start()
    assert "doctor" in refused.value.hint
