"""The way into a pod: ``kubectl exec``, to the job's own pods and no others."""

from __future__ import annotations

import time
from collections.abc import Callable

from dray.clusters.agent import answers
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.manifest import CONTAINER, Place
from dray.clusters.protocol import Entrance
from dray.errors import Refused
from dray.transport.kubectl import Kubectl, PodExec
from dray.transport.link import AgentLink
from dray.transport.ways import ProgramWay, Way

STARTING = 10.0  # seconds
LOOK = 0.5


class PodSessions:
    def __init__(
        self,
        name: str,
        agent: AgentLink,
        kube: Cluster,
        kubectl: Kubectl,
        place: Callable[[], Place],
    ) -> None:
        self.name = name
        self.agent = agent
        self.kube = kube
        self.kubectl = kubectl
        self.place = place

    def entrance(self) -> Entrance:
        return Entrance("kubectl exec, to the job's own pods")

    def way(self, job_id: str, rank: int) -> Way:
        """Ask the agent which pod a rank is in. What it says may be the job's own invention: it
        counts only for a pod that the API server knows as this job's."""
        with answers.reading(self.name):
            place, path, words = answers.door(self.agent.ask("door", id=job_id, rank=rank))
        pod = self._running_pod(job_id, place.get("pod", ""))
        where = ("exec", "--stdin", "--quiet", f"--container={CONTAINER}", f"pod/{pod}", "--")
        argv = self.kubectl.argv(*where, *words, "relay", path)
        return ProgramWay(argv, PodExec(self.kubectl, f"pod/{pod}", words), self.agent.refusal)

    def _running_pod(self, job_id: str, name: str) -> str:
        """Return the pod of this name, once the API server knows that it runs: that may be seconds
        after its command has begun."""
        until = time.monotonic() + STARTING
        while True:
            pod = self.kube.running_pods(self.place(), job_id).get(name)
            if pod:
                return pod
            if time.monotonic() > until:
                raise Refused("it is not running now: its pod is gone, or just starting")
            time.sleep(LOOK)
