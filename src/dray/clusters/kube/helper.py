"""The helper: a small pod on the jobs' volume, in which the agent runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dray.clusters.kube import manifest, names, queue
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.names import items_of, text_at
from dray.errors import ClusterError
from dray.transport import kube_api

PATIENCE = 300.0  # seconds for its image to be pulled
HOPELESS = 30.0  # seconds after which a pod that cannot be placed is given up
LOOK = 0.3


class Helper:
    def __init__(self, cluster: Cluster, settings: Mapping[str, Any], place: Place) -> None:
        self.cluster = cluster
        self.place = place
        self.described = manifest.helper_manifest(settings, place)
        self.name = self.described["metadata"]["name"]

    def start(self) -> None:
        """Create it unless it is there, and wait until it runs."""
        self._create()
        began = time.monotonic()
        while True:
            pods = self._pods()
            if any(text_at(one, "status", "phase") == "Running" for one in pods):
                return
            waited = time.monotonic() - began
            why = next(filter(None, map(queue.waiting_reason, pods)), "") if pods else ""
            if waited > HOPELESS and (not pods or "being made ready" not in why):
                self._give_up(why or self._refused())
            if waited > PATIENCE:
                self._give_up(why)
            time.sleep(LOOK)

    def _create(self) -> None:
        path = f"{self.cluster.jobs}/{self.name}"
        for _ in range(2):
            reply = self.cluster.api.create(self.cluster.jobs, self.described)
            if reply.ok:
                return
            if reply.code != 409:
                raise kube_api.refusal("the helper pod cannot be created", reply)
            there = self.cluster.api.get(path)
            is_going = bool(text_at(there.record, "metadata", "deletionTimestamp"))
            if there.ok and not is_going and queue.job_status(there.record) not in queue.ENDED:
                return  # another command has just created it
            self.cluster.delete_and_wait(path)
        raise ClusterError("the helper pod cannot be created: its name is taken; try again")

    def _pods(self) -> list[dict[str, Any]]:
        wanted = names.selector({"job-name": self.name})
        return items_of(self.cluster.api.get(f"{self.cluster.core}/pods?{wanted}").record)

    def _refused(self) -> str:
        about = f"involvedObject.name%3D{self.name}"
        path = f"{self.cluster.core}/events?fieldSelector={about}"
        return queue.create_reason(items_of(self.cluster.api.get(path).record))

    def _give_up(self, why: str) -> None:
        raise ClusterError(
            f"the helper pod does not start: {why or 'Kubernetes does not tell why'}",
            hint=f"See kubectl describe job {self.name}; its image is the setting agent_image.",
        )
