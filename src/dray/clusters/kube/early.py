"""A Job that is created while its job's directory is on its way: one round trip instead of two.

Its pod waits a while for the directory, see dray.node.attempt.pod. A Job whose directory does not
come, or does not come soon, is taken back: nothing is allocated while code is being sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from dray.clusters.kube.api import Cluster, Replaces
from dray.clusters.kube.manifest import Object
from dray.errors import DrayError

SOON = 30.0  # seconds; a pod waits four times as long


class EarlyJob:
    def __init__(
        self, cluster: Cluster, job_id: str, described: Object, secrets: Mapping[str, bytes]
    ) -> None:
        self.cluster = cluster
        self.job_id = job_id
        self.described = described
        self.secrets = secrets
        self._since: float | None = None  # when it began to be created
        self._is_created = False

    def create(self) -> None:
        """Create it, at most once. Where that fails, whoever sends the directory tries again, and
        tells why."""
        if self._since is not None:
            return
        self._since = time.monotonic()
        with suppress(DrayError):
            self.cluster.create_jobs([self.described], self.secrets, Replaces())
            self._is_created = True

    def is_in_time(self) -> bool:
        """Return whether it was created, and its directory, which is there now, came soon after."""
        return (
            self._is_created and self._since is not None and time.monotonic() - self._since < SOON
        )

    def take_back(self) -> None:
        """Delete it, if it is there, and do not create it again."""
        may_be_there = self._since is not None
        self._since, self._is_created = time.monotonic(), False
        if may_be_there:
            self.cluster.take_back(self.described)
