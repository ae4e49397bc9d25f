"""Looks at jobs: what their clusters say of them now, and what was last seen of the others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from dray.clusters.protocol import Cluster, Statuses
from dray.errors import NotFound, TimedOut
from dray.job.model import JobState, JobView, Series
from dray.launcher.asking import ask_each
from dray.launcher.context import UNAVAILABLE, Context, jobs_on, message_of, unclaimed
from dray.launcher.intents import Intents
from dray.launcher.jobs import Jobs
from dray.records import NamedTuple, replace
from dray.store import Last, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dray.launcher.asking import Answer

DAY = 86400.0
GONE = "is gone"
# What a job stays though its cluster no longer has it: somebody may have removed it there, and one
# that was stopped before it started may never have had a directory.
WITHOUT_FILES = (JobState.LOST, JobState.DONE, JobState.STOPPED)


class Listing(NamedTuple):
    """Jobs, newest first, and how many older ones there are besides."""

    rows: list[Row]
    hidden: int


class JobFilter(NamedTuple):
    """Which jobs are listed: those in one of these states, of this project, with this text, among
    these."""

    states: Sequence[str] = ()
    here: bool = False
    text: str = ""
    ids: frozenset[str] = frozenset()

    def passes(self, row: Row, here: set[str] | None) -> bool:
        """Return whether the job is listed; ``here`` are the ids of the project's jobs, if only
        those are."""
        if self.states and row.state not in self.states:
            return False
        if here is not None and row.id not in here:
            return False
        if self.ids and row.id not in self.ids:
            return False
        words = " ".join(json.loads(row.command))
        searched = "\n".join((row.id, row.name, words, row.reason))
        return self.text.casefold() in searched.casefold()


class Watching:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.jobs = Jobs(context)
        self.intents = Intents(context)

    # -- all jobs

    def refresh(self, on: str | None = None) -> None:
        """Update the store, with one query per cluster that has active jobs. If a cluster does not
        answer, the user is told, and its jobs stay as they were last seen."""
        active = self.context.open_store().active()
        self.refresh_those({name: active[name] for name in active if on in (None, name)})

    def refresh_those(self, active: Mapping[str, Mapping[str, Last]]) -> None:
        """Ask for these jobs, all clusters side by side."""
        clusters: list[Cluster] = []
        there: dict[str, Mapping[str, Last]] = {}

        def take(cluster: Cluster, answer: Answer[Statuses]) -> None:
            with self._shown_as_last_seen(cluster.name):
                self._take(cluster, there[cluster.name], answer())

        for name in [name for name in active if name in self.context.config.clusters]:
            with self._shown_as_last_seen(name):
                cluster = self.context.cluster(name)
                there[name] = self._found_there(cluster, active[name])
                clusters.append(cluster)

        def ask(cluster: Cluster) -> Statuses:
            return cluster.queue.status(in_order(there[cluster.name]), brief=True)

        ask_each(clusters, ask, take)

    @contextmanager
    def _shown_as_last_seen(self, name: str) -> Iterator[None]:
        """Warn that a cluster cannot be asked, and that its jobs may have changed since."""
        try:
            yield
        except UNAVAILABLE as error:
            self.context.reporter.say(f"{message_of(error)}; jobs on {name} are shown as last seen")

    def _found_there(self, cluster: Cluster, last: Mapping[str, Last]) -> Mapping[str, Last]:
        """Return those of the jobs that were submitted to the cluster as it is set now."""
        if self.context.open_store().active_places(cluster.name) == {cluster.files.path()}:
            return last
        here = {job_id: one for job_id, one in last.items() if self.jobs.is_here(job_id, cluster)}
        if len(here) < len(last):
            self.context.reporter.say(
                f"{len(last) - len(here)} jobs were submitted to {cluster.name} with other "
                "settings, and are shown as last seen"
            )
        return here

    def _take(self, cluster: Cluster, last: Mapping[str, Last], statuses: Statuses) -> None:
        """Save what a cluster has answered."""
        store, (views, waiting) = self.context.open_store(), statuses
        seen = {view.id: view for view in unclaimed(store, views.values())}
        changed = [view for view in seen.values() if self._is_news(view)]
        new_reasons = {
            job_id: reason
            for job_id, reason in waiting.items()
            if last[job_id] != (JobState.QUEUED, reason, 1)
        }
        if new_reasons:
            self.context.keep(lambda: store.save_waiting(new_reasons))
        for job_id in last.keys() - seen.keys() - waiting.keys():
            if store.intent_age(job_id) is None:
                with suppress(NotFound):  # another dray has removed it meanwhile
                    changed.append(self._gone(job_id, cluster))
            elif self.intents.is_abandoned(job_id):
                self.intents.forget(job_id)
        notifier = self.context.notifier()
        if changed:
            self.context.keep(lambda: notifier.save(changed))
        notifier.send_left(cluster)

    def _is_news(self, view: JobView) -> bool:
        store = self.context.open_store()
        return store.view(view.id) != view or store.intent_age(view.id) is not None

    def _gone(self, job_id: str, cluster: Cluster) -> JobView:
        reason = f"its directory on {cluster.name} {GONE}"
        view = self.jobs.last_seen(job_id)
        return replace(view, state=JobState.LOST, reason=reason, ended=time.time())

    def listing(
        self,
        *,
        everything: bool = False,
        most: int = 50,
        on: str | None = None,
        job_filter: JobFilter | None = None,
    ) -> Listing:
        """List active jobs and those of the last day; or all. With ``on``, only that cluster's, and
        with ``everything`` also those that another machine submitted to it."""
        store = self.context.open_store()
        if on is not None and everything:
            cluster = self.context.cluster(on)
            found = jobs_on(cluster)
            store.move(found, cluster.files.path())
            store.save(unclaimed(store, found))
        elif on is not None:
            self.context.config.cluster(on)
        self.refresh(on)
        since = 0.0 if everything else time.time() - DAY
        most = -1 if everything else most
        if job_filter is None:
            rows = store.listing(since, most, on)
            return Listing(rows, store.others(len(rows), on))
        project = str(self.context.config.project)
        here = store.ids_of_project(project) if job_filter.here else None
        return Listing(*store.fitting(since, most, on, lambda row: job_filter.passes(row, here)))

    def active_numbers(self) -> dict[str, dict[str, int]]:
        """Count the queued and running jobs of each cluster, as last seen. No cluster is asked, so
        no store is made where there is none: that would be filled from all of them."""
        if not self.context.config.home.store.exists():
            return {}
        return self.context.open_store().numbers()

    # -- one job

    def show(self, reference: str) -> JobView:
        return self._look_at(reference)[0]

    def require_files(self, reference: str) -> JobView:
        """Return the job; raise NotFound if its directory is gone."""
        view, is_there = self._look_at(reference)
        if not is_there or view.reason.endswith(GONE):
            gone = f"its directory on {view.cluster} {GONE}"
            raise NotFound(f"{view.id}: {gone}", hint=f"dray rm {view.id} forgets the job.")
        return view

    def _look_at(self, reference: str) -> tuple[JobView, bool]:
        """Return the job, and whether its cluster has it: somebody may have removed a job there
        that was done."""
        store = self.context.open_store()
        job_id, cluster = self.jobs.find_here(reference)
        answer = cluster.queue.status([job_id]).jobs.get(job_id)
        view = store.as_seen(answer) if answer is not None else None
        if view is None:
            last, age = store.view(job_id), store.intent_age(job_id)
            if last is not None and last.state in WITHOUT_FILES:
                return last, False
            if last is not None and age is not None and not self.intents.is_abandoned(job_id):
                return replace(last, reason="being submitted"), True
            view = self._gone(job_id, cluster)
        notifier = self.context.notifier()
        if self._is_news(view):
            self.context.keep(lambda: notifier.save([view]))
        notifier.send_left(cluster)
        return view, answer is not None

    def metrics(self, view: JobView) -> Series:
        """Return the curve of its main metric; the cluster is asked only if there is one."""
        if view.metric is None or view.reason.endswith(GONE):
            return Series()
        return self.context.cluster(view.cluster).files.curve(view.id)

    # -- waiting

    def wait(self, reference: str, timeout: float | None = None) -> JobView:
        """Wait until the job has ended."""
        until = time.monotonic() + timeout if timeout is not None else None
        pause = 0.02
        while (view := self.show(reference)).state.active:
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"{view.id} is still {view.state} after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.3, 1.0)
        return view

    def wait_on(self, job_id: str, cluster: Cluster) -> JobView:
        """Wait for a job that another machine may have submitted."""
        store = self.context.open_store()
        if store.view(job_id) is None:
            store.save(unclaimed(store, cluster.queue.status([job_id]).jobs.values()))
        return self.wait(job_id)

    def wait_all(self, ids: Sequence[str], timeout: float | None = None) -> list[JobView]:
        """Wait until all have ended, with one query per cluster at a time, for any number of
        jobs."""
        if len(ids) == 1:
            return [self.wait(ids[0], timeout)]
        self.jobs.require_all_here(ids)
        until = time.monotonic() + timeout if timeout is not None else None
        pause = 0.05
        waiting = {job_id: self.jobs.last_seen(job_id) for job_id in ids}
        ended: dict[str, JobView] = {}
        while True:
            active = self.active_among(waiting)
            for job_id in waiting.keys() - active.keys():
                ended[job_id] = self._end_of(waiting.pop(job_id))
            if not waiting:
                return [ended[job_id] for job_id in ids]
            if until is not None and time.monotonic() >= until:
                first = next(iter(waiting))
                raise TimedOut(
                    f"{len(waiting)} jobs are still active after {timeout:g} s: {first} …"
                )
            time.sleep(pause)
            pause = min(pause * 1.3, 2.0)

    def _end_of(self, view: JobView) -> JobView:
        """Return how a job has ended; another dray may have removed it before that was seen."""
        removed = f"it was removed meanwhile, its record {GONE}"
        lost = replace(view, state=JobState.LOST, reason=removed, ended=time.time())
        return self.context.open_store().view(view.id) or lost

    def active_among(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the jobs that have not ended, with their clusters. Only their clusters are asked:
        another one may not answer."""
        wanted, store = set(ids), self.context.open_store()
        active = store.active()
        self.refresh_those(
            {name: active[name] for name in active if not wanted.isdisjoint(active[name])}
        )
        return {
            job_id: name
            for name, last in store.active().items()
            for job_id in last
            if job_id in wanted
        }


def in_order(ids: Iterable[str]) -> list[str]:
    return sorted(ids, key=len)  # sweep.9 comes before sweep.10
