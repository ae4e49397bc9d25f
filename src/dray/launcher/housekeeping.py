"""Stops, removes and forgets jobs, and checks what they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dray import background
from dray.board import mirrors
from dray.clusters.protocol import Cluster
from dray.errors import ClusterError, Refused
from dray.job.model import Finding, JobState, JobView
from dray.launcher.context import Context
from dray.launcher.watching import Watching, in_order
from dray.node.jobs.arrays import unfold
from dray.project import PROJECT_FILE
from dray.store import Store


class Housekeeping:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)
        self.jobs = self.watching.jobs

    def stop(self, reference: str, *, now: bool) -> JobView:
        """Ask for a checkpoint and the end, or with ``now`` for the end at once; wait for the
        end."""
        view = self.watching.show(reference)
        if not view.state.active:
            raise Refused(f"{view.id} is {view.state}: there is nothing to stop")
        self._ask_to_stop(view.cluster, [view.id], now)
        return self.watching.wait(view.id)

    def stop_all(self, ids: Sequence[str], *, now: bool) -> list[JobView]:
        """Stop those of the jobs that have not ended, with one call per cluster."""
        if len(ids) == 1:
            return [self.stop(ids[0], now=now)]
        self.jobs.require_all_here(ids)
        active = self.watching.active_among(ids)
        for name in set(active.values()):
            there = in_order(one for one in active if active[one] == name)
            self._ask_to_stop(name, there, now)
        return self.watching.wait_all(list(active)) if active else []

    def _ask_to_stop(self, cluster: str, ids: Sequence[str], now: bool) -> None:
        # Once it is asked for, a stop that the user's own process tried again would find nothing
        # left to stop: where the job's own pod answers, it takes the connection with it.
        background.commit()
        self.context.cluster(cluster).queue.stop(ids, now=now)
        self.context.open_store().add_event("stop requested", *ids)

    def remove_all(self, ids: Sequence[str]) -> list[str]:
        """Remove all jobs, or none if one has not ended. The clusters are asked, as the store may
        be out of date: another machine may have resumed a job."""
        store = self.context.open_store()
        require_not_awaited(store, ids)
        places: dict[str, list[str]] = {}
        out_of_reach: list[str] = []
        for job_id in in_order(ids):
            cluster = self.jobs.find(job_id)[1]
            if self._can_only_be_forgotten(job_id, cluster):
                out_of_reach.append(job_id)
                continue
            self.jobs.require_here(job_id, cluster)
            places.setdefault(cluster.name, []).append(job_id)
        for name, there in places.items():
            require_ended(self.context.cluster(name), there)
        for name, there in places.items():
            self.context.cluster(name).queue.remove(there)
            store.remove(*there)
        for job_id in out_of_reach:
            self.context.reporter.say(
                f"{job_id} is forgotten, its files stay in {store.place(job_id)}"
            )
        store.remove(*out_of_reach)
        mirrors.forget(self.context.config.home, ids)
        from dray.sessions.ssh.keys import Keys  # not for a stop

        Keys(self.context.config.home).forget(*ids)
        return list(ids)

    def _can_only_be_forgotten(self, job_id: str, cluster: Cluster) -> bool:
        """Return whether its files are elsewhere, and it had ended when it was last seen. A job
        that may still run is not forgotten."""
        place = self.context.open_store().place(job_id)
        is_elsewhere = bool(place) and not self.jobs.is_here(job_id, cluster)
        return is_elsewhere and not self.jobs.last_seen(job_id).state.active

    def forget(self, name: str) -> int:
        """Remove this cluster's jobs from the store, and return how many they were; their files
        stay on the cluster."""
        if not self.context.config.home.store.exists():
            return 0
        store = self.context.open_store()
        ids = store.ids_on(name)
        if ids:
            store.remove(*ids)
        return len(ids)

    def reach(self, names: Sequence[str], seconds: float) -> dict[str, str]:
        """Ask these clusters side by side whether they answer; return why not, or '', by name."""
        if not names:
            return {}
        there = [self.context.cluster(name) for name in names]
        with ThreadPoolExecutor(len(there)) as threads:
            return dict(zip(names, threads.map(lambda one: one.reach(seconds), there), strict=True))

    def doctor(self, name: str) -> list[Finding]:
        from dray.images.findings import image_findings  # only here
        from dray.launcher.entrances import Entrances

        cluster = self.context.cluster(name)
        found = cluster.doctor()
        if all(one.ok for one in found if one.what == "login"):
            found += Entrances(self.context.config.home).findings(cluster)
        return [*self._own_findings(), *image_findings(), *found]

    def _own_findings(self) -> list[Finding]:
        home = self.context.config.home
        project = self.context.config.project / PROJECT_FILE
        read = [str(path) for path in (home.config_file, project) if path.exists()]
        detail = " and ".join(read) + " read" if read else f"none ({home.config_file}, dray.toml)"
        findings = [Finding(ok=True, what="config", detail=detail)]
        mistake = self.context.config.mistake
        if mistake is not None:
            advice = mistake.hint or "Nothing can be submitted from here until it is mended."
            findings = [Finding(ok=False, what="config", detail=mistake.message, advice=advice)]
        try:
            count = self.context.open_store().count()
        except Exception as error:
            findings.append(Finding(ok=False, what="store", detail=str(error)))
        else:
            findings.append(Finding(ok=True, what="store", detail=f"{home.store}, {count} jobs"))
        private = not home.data.exists() or home.data.stat().st_mode & 0o077 == 0
        findings.append(
            Finding(
                ok=private,
                what="privacy",
                detail=f"{home.data} is {'private to you' if private else 'open to others'}",
                advice="" if private else f"chmod 700 {home.data}",
            )
        )
        return findings


def require_not_awaited(store: Store, ids: Sequence[str]) -> None:
    """Refuse to remove jobs that others wait for, or whose outputs they read."""
    removed = set(ids)
    for job_id, state, spec in store.with_others_before():
        needed = {one["job"] for one in spec.inputs.values() if "job" in one}
        if state is JobState.QUEUED:
            needed.update(unfold(spec.after))
        for one in sorted(needed & removed) if job_id not in removed else ():
            raise Refused(
                f"{one} is still needed by {job_id}, which comes after it",
                hint=f"Wait for that one, or stop it: dray stop {job_id}",
            )


def require_ended(cluster: Cluster, ids: Sequence[str]) -> None:
    views, waiting = cluster.queue.status(ids, brief=True)
    for view in views.values():
        if view.is_unreadable:
            raise ClusterError(f"{view.id}: {view.reason}", hint="Try again later.")
    for job_id in [*waiting, *(one.id for one in views.values() if one.state.active)]:
        raise Refused(f"{job_id} has not ended", hint=f"Stop it first: dray stop {job_id}")
