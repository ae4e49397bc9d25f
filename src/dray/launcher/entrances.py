"""Remembers how each cluster's running jobs were last entered, and says so to ``dray doctor``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dray.clusters.protocol import Cluster
from dray.errors import ClusterError
from dray.home import Home
from dray.job.model import Finding
from dray.job.quantities import show_duration
from dray.node.formats import files

WHAT = "sessions"
NONE = "there is no way into running jobs (dray exec, shell, ssh, forward)"


class Entrances:
    def __init__(self, home: Home) -> None:
        self.folder = home.cache / "entered"

    @contextmanager
    def remembered(self, cluster: Cluster, job_id: str) -> Iterator[None]:
        """Remember whether the way into a job was open. A job that does not run says nothing of it,
        nor does a link that was lost."""
        try:
            yield
        except ClusterError as error:
            if not error.transient:
                self._write(cluster, job_id, error.message)
            raise
        self._write(cluster, job_id, "")

    def _write(self, cluster: Cluster, job_id: str, trouble: str) -> None:
        seen = {"job": job_id, "time": time.time(), "trouble": trouble}
        with suppress(OSError):  # it only serves doctor
            files.make_folder(str(self.folder), durable=False)
            files.write_json(str(self._path(cluster)), seen, durable=False)

    def _path(self, cluster: Cluster) -> Path:
        return self.folder / cluster.name

    def findings(self, cluster: Cluster) -> list[Finding]:
        """Say which way leads into running jobs, and how it was seen last."""
        if cluster.sessions is None:
            return []
        entrance = cluster.sessions.entrance()
        if not entrance.way:
            return [Finding(ok=True, what=WHAT, detail=f"{NONE}: {entrance.reason}")]
        seen = files.read_record(str(self._path(cluster)))
        if seen is None:
            return [Finding(ok=True, what=WHAT, detail=f"{entrance.way}; not used yet")]
        age = show_duration(max(time.time() - seen["time"], 0))
        detail = f"{entrance.way}; last used {age} ago, into {seen['job']}"
        if not seen["trouble"]:
            return [Finding(ok=True, what=WHAT, detail=detail)]
        advice = "Try again into a job that runs: dray exec JOB -- true"
        return [Finding(ok=False, what=WHAT, detail=f"{detail}: {seen['trouble']}", advice=advice)]
