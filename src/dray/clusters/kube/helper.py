"""The helper: a small pod on the jobs' volume, in which the agent runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.kube import lost_nodes, manifest, names, queue
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.names import items_of, text_at
from dray.errors import ClusterError
from dray.transport import kube_api

PATIENCE = 300.0  # seconds for its image to be pulled
HOPELESS = 30.0  # seconds after which a pod that cannot be placed is given up
REFUSED = 8.0  # seconds after which one is given up that may not be created, or lacks its volume
NO_ROOM = 1.5  # seconds after which one is given up that the quota has no room for
LOOK = 0.3
ROOM = (
    "Small jobs are submitted all the same, and a running one answers in its place; for all else "
    "there has to be room for a pod of a tenth of a CPU and 256 MB."
)


class NoRoom(ClusterError):
    """The quota of the namespace has no room for the helper."""


class Helper:
    def __init__(self, cluster: Cluster, settings: Mapping[str, Any], place: Place) -> None:
        self.cluster = cluster
        self.place = place
        self.described = manifest.helper_manifest(settings, place)
        self.name = self.described["metadata"]["name"]
        self.path = f"{cluster.jobs}/{self.name}"
        self.uid = ""  # of its Job

    def start(self, but: str = "") -> str:
        """Create it unless it is there, and wait until it runs; return its pod's name. ``but``: a
        pod that is said to run and cannot be reached, so that another has to take its place."""
        if but:
            self._give_up_pod(but)
        self._create()
        began = time.monotonic()
        while True:
            there = self._pods()
            pods = [one for one in there if not text_at(one, "metadata", "deletionTimestamp")]
            running = [one for one in pods if text_at(one, "status", "phase") == "Running"]
            if running:
                return text_at(running[0], "metadata", "name")
            waited = time.monotonic() - began
            why = next(filter(None, map(queue.waiting_reason, pods)), "")
            if not pods:
                self._create()  # its Job may have been that of a pod which has just ended
                why = self._refused() if waited > NO_ROOM else ""
            if waited > self._patience(pods or there, why):
                self._give_up(why)
            time.sleep(LOOK)

    def _patience(self, pods: Sequence[Mapping[str, Any]], why: str) -> float:
        """Return how many seconds it may wait for this reason."""
        if pods and why == queue.MADE_READY:
            return PATIENCE
        if not pods and queue.NO_QUOTA in why:  # nor is one on its way out, which would make room
            return NO_ROOM
        return REFUSED if (why and not pods) or "not found" in why else HOPELESS

    def _create(self) -> None:
        for _ in range(2):
            reply = self.cluster.api.create(self.cluster.jobs, self.described)
            if reply.code == 409:  # another command may have just created it
                reply = self.cluster.api.get(self.path)
            elif not reply.ok:
                raise kube_api.refusal("the helper pod cannot be created", reply)
            is_going = bool(text_at(reply.record, "metadata", "deletionTimestamp"))
            if reply.ok and not is_going and queue.job_status(reply.record) not in queue.ENDED:
                self.uid = text_at(reply.record, "metadata", "uid")
                return
            self.cluster.delete_and_wait(self.path)
        raise ClusterError("the helper pod cannot be created: its name is taken; try again")

    def _pods(self) -> list[dict[str, Any]]:
        """Return its pods; one of a lost node is on its way out for long."""
        wanted = names.selector({"job-name": self.name})
        reply = self.cluster.api.get(f"{self.cluster.core}/pods?{wanted}")
        if reply.code == 403:  # it may run, and nobody would ever know
            raise kube_api.refusal("the helper pod cannot be looked for", reply)
        return items_of(reply.record)

    def _give_up_pod(self, name: str) -> None:
        """Take it away with its Job. It has nothing to lose: jobs are in files."""
        lost = [one for one in self._pods() if text_at(one, "metadata", "name") == name]
        if lost:
            self.cluster.delete_and_wait(self.path)
            lost_nodes.give_up(self.cluster, lost)

    def _refused(self) -> str:
        about = f"involvedObject.uid%3D{self.uid}"  # one of the same name may have been refused
        path = f"{self.cluster.core}/events?fieldSelector={about}"
        return queue.create_reason(items_of(self.cluster.api.get(path).record))

    def end(self) -> None:
        self.cluster.api.delete(f"{self.path}?propagationPolicy=Background")

    def _give_up(self, why: str) -> None:
        """Take it back, so that the next one does not wait behind what has kept this one."""
        self.end()
        said = f"the helper pod does not start: {why or 'Kubernetes does not tell why'}"
        if queue.NO_QUOTA in why:
            raise NoRoom(said, hint=ROOM)
        hint = "kubectl get events tells more; its image is the setting agent_image."
        raise ClusterError(said, hint=hint)
