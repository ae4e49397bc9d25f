"""Brings the event files of jobs to this machine as they grow, for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dray.board import runs
from dray.board.logdir import JobLogs, Mirror
from dray.board.mirrors import mirror_of
from dray.clusters.protocol import Cluster
from dray.job.model import JobView
from dray.launcher.context import UNAVAILABLE, Context, message_of
from dray.launcher.watching import Watching
from dray.node.metrics.sources import EVENT_FILES

LONGEST_NAME = 200  # characters: no trainer calls an event file so
MOST_FILES = 10_000  # of one job


class Board:
    """The event files of these jobs, in a folder for TensorBoard. ``raw``: each folder that the
    trainer made is a run of its own; otherwise the attempts of a job are one run."""

    def __init__(self, context: Context, ids: Sequence[str], logdir: Path, *, raw: bool) -> None:
        self.context = context
        self.watching = Watching(context)
        self.jobs = [self._followed(job_id, logdir, raw) for job_id in ids]

    def _followed(self, job_id: str, logdir: Path, raw: bool) -> FollowedJob:
        cluster = self.watching.jobs.find_here(job_id)[1]
        mirror = Mirror(mirror_of(self.context.config.home, job_id))
        return FollowedJob(job_id, cluster, mirror, logdir / job_id, raw)

    def update(self) -> None:
        """Ask for the jobs' states, and bring what is new of those that may have written more."""
        self.watching.refresh()
        for job in [one for one in self.jobs if not one.is_complete]:
            try:
                job.update(self.watching.jobs.last_seen(job.id))
            except UNAVAILABLE as error:  # the next look may get through
                self.context.say_once(f"{job.id}: {message_of(error)}")

    def waiting(self) -> list[JobView]:
        """Return the jobs that have no event file yet."""
        return [self.watching.jobs.last_seen(one.id) for one in self.jobs if one.is_empty]


class FollowedJob:
    def __init__(
        self, job_id: str, cluster: Cluster, mirror: Mirror, folder: Path, raw: bool
    ) -> None:
        self.id = job_id
        self.is_complete = False  # the job has ended, and all of it is here
        self.is_empty = True
        self._cluster = cluster
        self._mirror = mirror
        self._logs = JobLogs(mirror, folder)
        self._place = runs.as_they_are if raw else runs.merged

    def update(self, view: JobView) -> None:
        """Bring what was written since the last look, and lay it out."""
        known = self._mirror.lengths()
        while parts := self._cluster.files.appended(self.id, [EVENT_FILES], known):
            for path, offset, data in parts:
                if len(path.rpartition("/")[2]) > LONGEST_NAME or len(known) > MOST_FILES:
                    return
                self._mirror.write(path, offset, data)
                known[path] = offset + len(data)
        files = self._mirror.files()
        starts = [one.started for one in view.attempts if one.started is not None]
        self._logs.lay_out(self._place(files, starts))
        self.is_empty = not files
        self.is_complete = not view.state.active
