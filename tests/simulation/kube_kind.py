"""How dray's laptop and pods meet the simulated Kubernetes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dray.clusters.kube import api as kube_api
from dray.clusters.kube import looking
from dray.clusters.kubernetes import KubernetesCluster
from dray.node.agent import site
from dray.node.attempt import pod as pods
from dray.node.jobs.jobdir import JobDir
from dray.node.processes import cgroup
from dray.node.schedulers.kubernetes import Kubernetes
from dray.transport.channel import ChannelGone, LinkLost
from dray.transport.kube_api import JSON, Api, Reply
from tests.simulation.kernel import Kernel, Process, simulated
from tests.simulation.kind import Kind, place
from tests.simulation.kube_objects import Pod
from tests.simulation.kubernetes import NODE_LOSS, KubeSystem
from tests.simulation.luck import NOT_MADE, WHOLE, Calm

if TYPE_CHECKING:
    from tests.simulation.laptop import Laptop
    from tests.simulation.world import World

SLOW = 0.02  # seconds for an answer


class SimulatedKubernetes(Kubernetes):
    """What a container finds in its environment, here from its pod."""

    def own_number(self) -> str:
        return str(place().name)

    def own_index(self) -> int:
        return int(place().job.job.rpartition(".")[2])

    def secrets_of(self, job_dir: JobDir) -> str:
        mount = place().mount
        return os.path.join(mount, os.path.basename(job_dir.secrets)) if mount else job_dir.secrets

    def meter(self) -> cgroup.Meter:
        return cgroup.Meter("/none", "/none")


class SimulatedApi(Api):
    """A request is carried out or not, and its answer comes or not."""

    def __init__(self, cluster: KubernetesCluster, system: KubeSystem) -> None:
        super().__init__(cluster.kubectl)
        self.system = system

    def ask(
        self,
        method: str,
        path: str,
        thing: Mapping[str, Any] | None = None,
        *,
        accept: str = JSON,  # noqa: ARG002
    ) -> Reply:
        process, kernel, luck = simulated(), self.system.kernel, self.system.luck
        assert process is not None
        kernel.step(process, method)
        way = luck.link()
        if way != WHOLE:
            kernel.say(f"{process}: {method} {path}: {way}")
        if way == NOT_MADE:
            raise LinkLost("the API server cannot answer now")
        time.sleep(luck.delay())
        reply = self.system.answer(method, path, thing)
        time.sleep(SLOW)
        if way != WHOLE:
            raise LinkLost("the API server did not answer")
        if method != "GET" and reply.code != 409:
            kernel.say(f"{process}: {method} {path.partition('?')[0]}: {reply.code}")
        return reply


class Pool:
    """Does at once, or only when its result is wanted, what threads would do at some time."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.open: list[Future] = []

    def __enter__(self) -> Pool:
        return self

    def submit(self, act: Callable[..., Any], *arguments: Any) -> Future:
        future = Future(lambda: act(*arguments))
        self.open.append(future)
        if self.kernel.random.random() < 0.5:
            future.run()
        return future

    def __exit__(self, *_: object) -> None:
        for future in self.open:
            future.run()


class Future:
    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        if not self.is_done:
            self.is_done = True
            try:
                self.value = self.act()
            except Exception as error:
                self.error = error

    def result(self) -> Any:
        self.run()
        if self.error is not None:
            raise self.error
        return self.value


class Uncopied:
    """In place of the thread that copies a log to the pod's own output."""

    def __init__(self, path: str) -> None:
        del path

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class KubernetesKind(Kind):
    cluster = KubernetesCluster
    scheduler = SimulatedKubernetes
    goes_on_by_looks = True
    system: KubeSystem

    def make_system(
        self, kernel: Kernel, luck: Calm, start: Callable[[Any], Process]
    ) -> KubeSystem:
        self.system = KubeSystem(kernel, luck, start)
        return self.system

    def settings(self, world: World) -> dict[str, Any]:
        self.system.folder = world.folder / "mounts"
        return {
            "namespace": "sim",
            "root": world.root,
            "volumes": [f"pvc:jobs:{world.folder}"],
            "image": "trainer",
            "python": "python3",
            "user": "me",
            "node_loss": NODE_LOSS,
        }

    def equip(self, laptop: Laptop) -> None:
        cluster = laptop.cluster
        assert isinstance(cluster, KubernetesCluster)
        cluster.__dict__["api"] = SimulatedApi(cluster, self.system)
        laptop.link.revive = cluster._revive

    def host(self, agent: Process) -> None:
        pod = self._reached()
        agent.host = pod.name
        pod.guests.append(agent)

    def _reached(self) -> Pod:
        helper = self.system.helper()
        if helper is None or helper.is_cut_off or helper.deleted_at is not None:
            raise ChannelGone("the helper is not there")
        return helper

    def run_attempt(self, place: Pod) -> int:
        parts = place.job.template["spec"]["containers"][0]["command"]
        return pods.run(parts[-1])

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            (kube_api, "ThreadPoolExecutor", lambda workers: Pool(self.system.kernel)),
            (looking, "ThreadPoolExecutor", lambda workers: Pool(self.system.kernel)),
            (site, "python_for_jobs", lambda root: {"machine": "x86_64"}),
            (pods, "Kubernetes", SimulatedKubernetes),
            (pods, "Copying", Uncopied),
            (pods, "MESSAGE", "/none/termination-log"),  # nobody reads it
            (os, "umask", lambda mask: 0o077),
            (signal, "alarm", lambda seconds: 0),  # in a thread of ours it would end us all
        ]

    def left(self) -> list[str]:
        return list(self.system.left())
