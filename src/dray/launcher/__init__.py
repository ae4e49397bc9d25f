"""The verbs: what the command line and the Python API both call.

Each group of verbs has its module here, and all share one ``Context``. Those that a listing does
not need are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from dray.clusters.protocol import Cluster, Selection
from dray.config.loading import Config
from dray.job.model import Finding, JobSpec, JobView, Plan, Series, Snapshot
from dray.launcher.context import Context
from dray.launcher.watching import GONE, JobFilter, Listing, Watching
from dray.reporter import Reporter
from dray.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from dray.config.batch_file import BatchFile
    from dray.images.verbs import ImageVerbs
    from dray.launcher.batches.submitting import Batching, Planned, Submitted
    from dray.launcher.explaining import Diagnosis, Explaining
    from dray.launcher.housekeeping import Housekeeping
    from dray.launcher.logs import Logs, Wanted
    from dray.launcher.queues import Allowed, Queued, Queues
    from dray.launcher.receipts import Pulled
    from dray.launcher.resuming import Changes
    from dray.launcher.running import How, Running
    from dray.launcher.sessions import Sessioning
    from dray.launcher.ssh_access import SshAccess
    from dray.launcher.sweeping import Sweeping
    from dray.launcher.tickets import Ticket

__all__ = ["GONE", "JobFilter", "Launcher", "Listing"]


class Launcher:
    """Every verb, as one method; each is documented where it is implemented."""

    def __init__(
        self,
        config: Config,
        reporter: Reporter | None = None,
        clusters: Mapping[str, Cluster] = MappingProxyType({}),
    ) -> None:
        """Make a launcher; ``clusters`` are those that exist already, by name: see dray.testing."""
        self.context = Context(config, reporter or Reporter(), clusters)
        self.watching = Watching(self.context)

    @property
    def config(self) -> Config:
        return self.context.config

    @property
    def reporter(self) -> Reporter:
        return self.context.reporter

    @reporter.setter
    def reporter(self, reporter: Reporter) -> None:
        self.context.reporter = reporter

    def cluster(self, name: str) -> Cluster:
        return self.context.cluster(name)

    def open_store(self) -> Store:
        return self.context.open_store()

    # -- submitting: running, resuming, submission

    @cached_property
    def running(self) -> Running:
        from dray.launcher.running import Running

        return Running(self.context)

    @property
    def images(self) -> ImageVerbs:
        return self.running.images

    def plan(self, command: Sequence[str], **how: Unpack[How]) -> tuple[Plan, Snapshot | None]:
        return self.running.plan(command, **how)

    def run(self, command: Sequence[str], **how: Unpack[How]) -> str:
        return self.running.run(command, **how)

    def run_many(self, commands: Sequence[Sequence[str]], *, snapshot: bool = True) -> list[str]:
        return self.running.run_many(commands, snapshot=snapshot)

    def plan_many(self, commands: Sequence[Sequence[str]], *, snapshot: bool = True) -> list[Plan]:
        return self.running.plan_many(commands, snapshot=snapshot)

    def batch(self, file: BatchFile, allowed: Sequence[str] = ()) -> Submitted:
        return self._batching(allowed).submit(file)

    def plan_batch(
        self, file: BatchFile, allowed: Sequence[str] = ()
    ) -> tuple[list[Planned], Snapshot]:
        return self._batching(allowed).plan(file)

    def _batching(self, allowed: Sequence[str]) -> Batching:
        from dray.launcher.batches.submitting import Batching

        return Batching(self.context, allowed)

    def submit(self, job: JobSpec, cluster: Cluster) -> str:
        return self.running.submit(job, cluster)

    def resume(self, reference: str, **changes: Unpack[Changes]) -> str:
        from dray.launcher.resuming import Resuming

        return Resuming(self.context, lambda: self.images).resume(reference, **changes)

    @cached_property
    def sweeping(self) -> Sweeping:
        from dray.launcher.sweeping import Sweeping

        return Sweeping(self.context)

    # -- looking: watching, jobs, logs

    def refresh(self, on: str | None = None) -> None:
        self.watching.refresh(on)

    def listing(
        self,
        *,
        everything: bool = False,
        most: int = 50,
        on: str | None = None,
        job_filter: JobFilter | None = None,
    ) -> Listing:
        return self.watching.listing(everything=everything, most=most, on=on, job_filter=job_filter)

    def find(self, reference: str) -> str:
        return self.watching.jobs.find(reference)[0]

    def find_all(self, references: Iterable[str]) -> list[str]:
        return self.watching.jobs.find_all(references)

    def jobs_in(self, reference: str) -> list[str]:
        return self.open_store().in_array(reference)

    def latest(self) -> str:
        return self.watching.jobs.latest()

    def show(self, reference: str) -> JobView:
        return self.watching.show(reference)

    def metrics(self, view: JobView) -> Series:
        return self.watching.metrics(view)

    def place(self, view: JobView) -> str:
        return self.cluster(view.cluster).files.path(view.id)

    def active_numbers(self) -> dict[str, dict[str, int]]:
        return self.watching.active_numbers()

    def wait(self, reference: str, timeout: float | None = None) -> JobView:
        return self.watching.wait(reference, timeout)

    def wait_all(self, ids: Sequence[str], timeout: float | None = None) -> list[JobView]:
        return self.watching.wait_all(ids, timeout)

    @cached_property
    def _logs(self) -> Logs:
        from dray.launcher.logs import Logs

        return Logs(self.context)

    def logs(self, reference: str, **wanted: Unpack[Wanted]) -> Iterator[tuple[int, bytes]]:
        return self._logs.read(reference, **wanted)

    def last_lines(self, view: JobView, most: int = 10) -> list[str]:
        return self._logs.last_lines(view, most)

    # -- into a running job: sessions

    @cached_property
    def sessions(self) -> Sessioning:
        from dray.launcher.sessions import Sessioning

        return Sessioning(self.context)

    @cached_property
    def ssh(self) -> SshAccess:
        from dray.launcher.ssh_access import SshAccess

        return SshAccess(self.context)

    # -- understanding: explaining, queues, tickets

    @cached_property
    def _explaining(self) -> Explaining:
        from dray.launcher.explaining import Explaining

        return Explaining(self.context)

    def why(self, reference: str) -> Diagnosis:
        return self._explaining.why(reference)

    @cached_property
    def _queues(self) -> Queues:
        from dray.launcher.queues import Queues

        return Queues(self.context)

    def queues(self, on: str | None = None) -> list[Queued]:
        return self._queues.view(on)

    def allowances(self, on: str | None = None) -> list[Allowed]:
        return self._queues.allowances(on)

    def ticket(self, reference: str) -> Ticket:
        from dray.launcher.tickets import Tickets

        return Tickets(self.context).ticket(reference)

    # -- changing: outputs, housekeeping

    def pull(
        self, reference: str, target: Path | None = None, wanted: Selection | None = None
    ) -> Pulled:
        from dray.launcher.outputs import Outputs

        return Outputs(self.context).pull(reference, target, wanted)

    @cached_property
    def _housekeeping(self) -> Housekeeping:
        from dray.launcher.housekeeping import Housekeeping

        return Housekeeping(self.context)

    def stop(self, reference: str, *, now: bool = False) -> JobView:
        return self._housekeeping.stop(reference, now=now)

    def stop_all(self, ids: Sequence[str], *, now: bool = False) -> list[JobView]:
        return self._housekeeping.stop_all(ids, now=now)

    def remove(self, reference: str) -> str:
        return self.remove_all([self.find(reference)])[0]

    def remove_all(self, ids: Sequence[str]) -> list[str]:
        return self._housekeeping.remove_all(ids)

    def forget(self, name: str) -> int:
        return self._housekeeping.forget(name)

    def reach(self, names: Sequence[str], seconds: float) -> dict[str, str]:
        return self._housekeeping.reach(names, seconds)

    def doctor(self, name: str) -> list[Finding]:
        return self._housekeeping.doctor(name)
