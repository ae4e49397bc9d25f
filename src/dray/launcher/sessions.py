"""Into a running job: programs and shells beside its command, and its ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from dray.clusters.protocol import Cluster, Sessions
from dray.errors import Refused
from dray.launcher.context import Context
from dray.launcher.entrances import Entrances
from dray.launcher.jobs import Jobs
from dray.sessions.forwarding import Forward
from dray.transport.ways import Way

ENDED = "it has ended"
HINTS = (
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
    ) -> int:
        """Open a terminal beside the job's command; return the exit code of what runs in it."""
        from dray.sessions.showing import show

        job_id, cluster = self.jobs.find_here(reference)
        way = partial(self.way, job_id, cluster, rank)
        with self.entering(job_id, cluster):
            return show(way, argv, self.context.reporter.say, host=host, again=again)

    def forward(
        self,
        reference: str,
        forwards: Sequence[Forward],
        *,
        rank: int = 0,
        ready: Callable[[Sequence[str]], None] = lambda names: None,
    ) -> None:
        """Forward ports until the job ends. ``ready`` is told what they are called here, once
        others can connect to them."""
        from dray.sessions.forwarding import Forwarding

        job_id, cluster = self.jobs.find_here(reference)
        forwarding = Forwarding(forwards, self.context.reporter.say)
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

    def way(self, job_id: str, cluster: Cluster, rank: int = 0) -> Way:
        sessions: Sessions | None = cluster.sessions
        if sessions is None:
            raise Refused(f"{cluster.name}: there is no way into a running job there")
        return sessions.way(job_id, rank)


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
