"""Into a running job: programs and shells beside its command, and its ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dray.clusters.protocol import Cluster, Sessions
from dray.errors import Refused
from dray.job.model import JobSpec, JobView
from dray.launcher.context import Context
from dray.launcher.entrances import Entrances
from dray.launcher.jobs import Jobs
from dray.node.sessions.commands import is_session
from dray.sessions.forwarding import Forward
from dray.transport.ways import Way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dray.sessions.syncing import Syncing

ENDED = "it has ended"
HINTS = (
    ("ended: done", "dray logs {job} shows what it wrote; dray run --like {job} runs it anew."),
    ("ended", "dray logs {job} shows what it wrote; dray resume {job} starts it again."),
    ("waits", "dray show {job} says what it waits for."),
    ("just starting", ""),
    ("version of dray", "Jobs that are submitted or resumed from now on let you in."),
)


class Sessioning:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.jobs = Jobs(context)

    def execute(self, reference: str, argv: Sequence[str], *, rank: int, host: bool) -> int:
        """Run a program beside the job's command; return its exit code."""
        from dray.sessions.executing import execute

        job_id, cluster = self.jobs.find_here(reference)
        with self.entering(job_id, cluster):
            return execute(self.way(job_id, cluster, rank), argv, host=host)

    def show(
        self,
        reference: str,
        argv: Sequence[str] | None,
        *,
        rank: int,
        host: bool,
        again: bool = True,
        sync: bool = False,
    ) -> int:
        """Open a terminal beside the job's command; return the exit code of what runs in it.
        ``sync`` sends edits into a session meanwhile."""
        from dray.sessions.showing import show

        job_id, cluster = self.jobs.find_here(reference)
        way = partial(self.way, job_id, cluster, rank)
        say = self.context.reporter.say
        with self._syncing(job_id, sync) as syncing, self.entering(job_id, cluster):
            return show(way, argv, say, host=host, again=again, syncing=syncing)

    def forward(
        self,
        reference: str,
        forwards: Sequence[Forward],
        *,
        rank: int = 0,
        ready: Callable[[Sequence[str]], None] = lambda names: None,
        sync: bool = False,
    ) -> None:
        """Forward ports until the job ends. ``ready`` is told what they are called here, once
        others can connect to them."""
        from dray.sessions.forwarding import Forwarding

        job_id, cluster = self.jobs.find_here(reference)
        with self._syncing(job_id, sync) as syncing:
            forwarding = Forwarding(forwards, self.context.reporter.say, syncing)
            try:
                ready([one.name() for one in forwarding.doors])
                with self.entering(job_id, cluster):
                    forwarding.run(partial(self.way, job_id, cluster, rank))
            finally:
                forwarding.close()

    @contextmanager
    def entering(self, job_id: str, cluster: Cluster) -> Iterator[None]:
        """Explain why a job is not entered, and remember for ``doctor`` whether it was."""
        with explained(job_id), Entrances(self.context.config.home).remembered(cluster, job_id):
            yield

    @contextmanager
    def _syncing(self, job_id: str, wanted: bool) -> Iterator[Syncing | None]:
        """Watch the tree that a session was started with, and yield what sends its edits."""
        if not wanted:
            yield None
            return
        from dray.launcher.freezing import code_scanner
        from dray.sessions.syncing import Syncing
        from dray.snapshot.watching import TreeWatch

        spec = self.jobs.last_seen(job_id).spec
        project = require_tree(job_id, spec, self.context.open_store().is_own(job_id))
        with TreeWatch(code_scanner(self.context, project, spec.outputs)) as watch:
            yield Syncing(watch, project, self.context.reporter.say)

    def wait(self, job_id: str) -> None:
        """Wait until the job lets us in; say what it waits for."""
        from dray.launcher.arriving import Arriving
        from dray.sessions.executing import read_output

        def enter(view: JobView) -> bool:
            way = self.way(view.id, self.context.cluster(view.cluster))
            read_output(way, ["true"], 0, host=True)
            return True

        Arriving(self.context).wait(job_id, enter)

    def require_way(self, cluster: Cluster) -> Sessions:
        """Refuse a cluster that lets nobody into its jobs."""
        sessions: Sessions | None = cluster.sessions
        if sessions is None:
            raise Refused(f"{cluster.name}: there is no way into a running job there")
        return sessions

    def way(self, job_id: str, cluster: Cluster, rank: int = 0) -> Way:
        return self.require_way(cluster).way(job_id, rank)


def require_tree(job_id: str, spec: JobSpec, is_own: bool) -> Path:
    """Return the folder whose edits belong into a session. Refuse what is none, or has none."""
    if not is_session(spec.command):
        raise Refused(
            f"{job_id} is a job, not a session: its code stays as it was when it was submitted",
            hint="Start a session with dray shell --on CLUSTER --sync, or with dray lab --sync.",
        )
    project = Path(spec.project)
    if not is_own or not project.is_dir():
        raise Refused(f"{job_id} was not started from a folder of this machine: nothing is sent")
    if not spec.snapshot:
        raise Refused(f"{job_id} was started without code (--no-snapshot): nothing is sent")
    return project


@contextmanager
def explained(job_id: str) -> Iterator[None]:
    """Add to a refusal which job it is about, and what to do."""
    try:
        yield
    except Refused as error:
        if error.hint or type(error) is not Refused:
            raise
        hint = next((hint for sign, hint in HINTS if sign in error.message), "")
        raise Refused(f"{job_id}: {error.message}", hint=hint.format(job=job_id)) from error
