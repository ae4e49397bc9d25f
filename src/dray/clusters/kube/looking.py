"""What dray asks of an API server about jobs: which wait and why, which run, how they ended."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.clusters.kube import kai, kueue, lost_nodes, manifest, names, queue, schedulers
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.names import items_of, text_at, value_at
from dray.records import NamedTuple
from dray.transport import kube_api
from dray.transport.channel import LinkLost
from dray.transport.kube_api import Api, Reply

if TYPE_CHECKING:
    from dray.node.formats.records import End

NAMED = 40  # jobs that are named in one request, instead of asking for all
MOST_PENDING = 200  # pods that are looked at for the reason why they wait
NOT_PENDING = "fieldSelector=status.phase!%3DPending"
CACHED = "resourceVersion=0"  # as the server has it in memory, without a question to its database
FEW_PENDING = 20  # the same, where thousands wait
MOST_VERSIONS = 20  # of one API that are looked at
MOST_EXPLAINED = 10  # ended jobs that are asked about one by one


class Look(NamedTuple):
    """What the API server says of jobs, by their ids."""

    rows: dict[str, queue.Row]
    ends: dict[str, End]  # of those that may not know it themselves
    overdue: dict[str, list[Mapping[str, Any]]]  # pods that should have ended: see lost_nodes
    named: dict[str, str]  # the name of each job's newest Job


class Waiting(NamedTuple):
    """Pods that wait, by their names."""

    pods: list[dict[str, Any]]
    has_more: bool  # there are others, whose names come after these

    @property
    def names(self) -> list[str]:
        return [text_at(pod, "metadata", "name") for pod in self.pods]

    @property
    def last(self) -> str:
        """The name up to which all are known; '' where all are."""
        return max(self.names, default="") if self.has_more else ""


class Looker:
    """Looks at the jobs of one namespace."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @cached_property
    def namespace(self) -> str:
        return kube_api.namespace_of(self.api.kubectl)

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def survey(self, place: Place, ids: Sequence[str]) -> Look:
        """Look at very many jobs of which most wait: at their Jobs, at the pods that do more than
        wait, and at the first of those that wait, all at once. Nothing is said of a job that has
        started, or has no Job: ``look`` tells that, and so the server may answer from its memory,
        which can be a moment behind. All events are read only where pods seem to be lacking."""
        root = names.root_label(place.root, place.user)
        wanted = names.selector({names.ROOT: root, names.JOB: None})  # the helper is no job
        with ThreadPoolExecutor(2) as pool:
            begun = pool.submit(self._table, f"{self.core}/pods?{wanted}&{NOT_PENDING}&{CACHED}")
            pending = pool.submit(self._waiting_pods, wanted, FEW_PENDING)
            jobs = queue.job_states(self._table(f"{self.jobs}?{wanted}&{CACHED}"))
            waiting = pending.result()
            started = {pod.job for pod in queue.pod_states(begun.result())}
        have_pod = started.union(map(names.job_of_pod, waiting.names))
        if place.scheduler == "kueue":  # which suspends those that it has not let in
            have_pod |= {one.name for one in jobs if one.status != "Suspended"}
        elif not queue.lack_pods(jobs, have_pod, waiting.last):
            have_pod = {one.name for one in jobs}
        reasons = self._reasons(place, waiting.pods, jobs, have_pod)
        named = self._names(ids, jobs)
        unstarted = [one for one in ids if named[one] not in started]
        rows = queue.rows_of(unstarted, jobs, (), reasons, named)
        return Look(rows, {}, {}, self._found(named, jobs))

    def look(self, place: Place, ids: Sequence[str]) -> Look:
        mine: dict[str, Any] = {names.ROOT: names.root_label(place.root, place.user)}
        if len(ids) <= NAMED:
            mine[names.JOB] = ids
        wanted = names.selector(mine)
        with ThreadPoolExecutor(2) as pool:
            listed = pool.submit(self._table, f"{self.jobs}?{wanted}")
            waiting = pool.submit(self._waiting_pods, wanted, MOST_PENDING)
            pods = queue.pod_states(self._table(f"{self.core}/pods?{wanted}"))
            jobs = queue.job_states(listed.result())
            have_pod = {one.job for one in pods}
            reasons = self._reasons(place, waiting.result().pods, jobs, have_pod)
        named = self._names(ids, jobs)
        rows = queue.rows_of(ids, jobs, pods, reasons, named)
        failed = {one.name for one in jobs if one.status == "Failed"}
        known = {pod.job for pod in pods if pod.status in queue.START_REASONS}
        silent = [one for one in ids if named[one] in failed and named[one] in known]
        marked = {one.job for one in pods if one.status in lost_nodes.MARKED}
        ending = [one for one in rows if named[one] in marked]
        return Look(
            rows,
            self._ends(silent[:MOST_EXPLAINED], named),
            self._overdue(place, ending[:NAMED]) if ending else {},
            self._found(named, jobs),
        )

    def _found(self, named: Mapping[str, str], jobs: Sequence[queue.JobState]) -> dict[str, str]:
        """Return those of the names under which there is a Job."""
        there = {one.name for one in jobs}
        return {job_id: name for job_id, name in named.items() if name in there}

    def _names(self, ids: Sequence[str], jobs: Sequence[queue.JobState]) -> dict[str, str]:
        """Return the newest Job of each job: one that was resumed may have several."""
        newest: dict[str, tuple[int, str]] = {}
        for one in jobs:
            base, number = names.resumed_of(one.name)
            if number:
                newest[base] = max(newest.get(base, (0, base)), (number, one.name))
        bases = ((job_id, names.job_name(job_id)) for job_id in ids)
        if not newest:
            return dict(bases)
        return {job_id: newest.get(base, (0, base))[1] for job_id, base in bases}

    def _table(self, path: str) -> Mapping[str, Any]:
        more = "&includeObject=None"
        reply = self.api.get(path + more, table=True)
        if not reply.ok:
            raise kube_api.refusal("Kubernetes does not list jobs", reply)
        if not queue.is_list(reply.record):  # jobs that are not in it would be taken for lost
            raise LinkLost("the API server's answer is no list of jobs or pods")
        return reply.record

    def _reasons(
        self,
        place: Place,
        waiting: Sequence[Mapping[str, Any]],
        jobs: Sequence[queue.JobState],
        have_pod: Collection[str],
    ) -> dict[str, str]:
        """Return why Jobs wait, by their names: of those that have a pod, what keeps it; of the
        others, what their queue says, or why no pod could be created."""
        found: dict[str, str] = {}
        for pod in waiting:
            name = names.job_of_pod(text_at(pod, "metadata", "name"))
            found[name] = queue.waiting_reason(pod)
        making = {name for name, why in found.items() if why == queue.MADE_READY}
        found.update(self._making_reasons(making) if making else ())
        if waiting and place.scheduler == "kai":
            found.update(self._kai_reasons(place, found))
        without = {one.name for one in jobs if one.name not in have_pod} - {
            one.name for one in jobs if one.status in queue.ENDED
        }
        if without and place.scheduler == "kueue":
            found.update(self._queued_reasons(place, without))
        elif without:
            found.update(refused_reasons(self._refusals(), without))
        return found

    def _waiting_pods(self, wanted: str, most: int) -> Waiting:
        """Return the pods that wait, with what keeps them; of very many, only the first ones."""
        pending = f"fieldSelector=status.phase%3DPending&limit={most}"
        record = self.api.get(f"{self.core}/pods?{wanted}&{pending}").record
        return Waiting(items_of(record), bool(text_at(record, "metadata", "continue")))

    def _making_reasons(self, wanted: set[str]) -> Iterator[tuple[str, str]]:
        """Yield what keeps pods of these Jobs from being made ready, where anything does."""
        path = f"{self.core}/events?fieldSelector=type%3DWarning&limit=500"
        by_name: dict[str, list[Mapping[str, Any]]] = {}
        for event in items_of(self.api.get(path).record):
            name = names.job_of_pod(text_at(event, "involvedObject", "name"))
            by_name.setdefault(name, []).append(event)
        for name in wanted:
            why = queue.making_reason(by_name.get(name, ()))
            if why:
                yield name, why

    def _queued_reasons(self, place: Place, wanted: set[str]) -> dict[str, str]:
        pending = f"{kueue.QUEUES}/{place.queue}/pendingworkloads"
        with ThreadPoolExecutor(2) as pool:
            asked = pool.submit(self.ask_addition, place, kueue.VISIBILITY, pending)
            workloads = items_of(self.ask_addition(place, kueue.GROUP, kueue.WORKLOADS).record)
            return kueue.reasons(workloads, wanted, asked.result().record)

    def _kai_reasons(self, place: Place, known: Mapping[str, str]) -> dict[str, str]:
        groups = items_of(self.ask_addition(place, kai.GROUP, kai.POD_GROUPS).record)
        found = kai.reasons(groups, known)
        silent = [name for name, why in known.items() if not why and name not in found]
        if silent and place.queue:
            code, answer = self.api.get(f"{kai.QUEUES}/{place.queue}")
            if kai.is_missing(place.queue, code, answer):
                found.update(dict.fromkeys(silent, kai.NO_QUEUE))
        return found

    def ask_addition(self, place: Place, group: str, what: str) -> Reply:
        """Ask somebody who serves an API beside Kubernetes, in the version that it has there; one
        who does not answer has nothing to say."""
        known = place.versions.get(group, "")
        silent = Reply(404, {})
        if place.versions and not known:
            return silent
        try:
            reply = self._ask_version(group, known, what) if known else silent
            if reply.code != 404:
                return reply
            newer = self._served(group)  # by now, or since nobody has looked
            return self._ask_version(group, newer, what) if newer not in ("", known) else reply
        except LinkLost:
            return silent

    def _ask_version(self, group: str, version: str, what: str) -> Reply:
        return self.api.get(f"/apis/{group}/{version}/namespaces/{self.namespace}/{what}")

    def _refusals(self) -> list[dict[str, Any]]:
        """Return the events of pods that could not be created."""
        path = f"{self.core}/events?fieldSelector=reason%3DFailedCreate&limit=500"
        return items_of(self.api.get(path).record)

    def _overdue(self, place: Place, ids: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
        root = names.root_label(place.root, place.user)
        wanted = names.selector({names.ROOT: root, names.JOB: ids})
        pods = items_of(self.api.get(f"{self.core}/pods?{wanted}").record)
        found: dict[str, list[Mapping[str, Any]]] = {}
        for pod in lost_nodes.overdue(pods, time.time()):
            found.setdefault(text_at(pod, "metadata", "labels", names.JOB), []).append(pod)
        return {job_id: found[job_id] for job_id in ids if job_id in found}

    def job_pods(self, place: Place) -> Iterator[tuple[str, list[str]]]:
        """Yield the pods of jobs that run on the root's volume, each with the words that start
        dray's Python in it: whoever is in one can look at all jobs."""
        wanted = names.selector({names.ROOT: names.root_label(place.root, place.user)})
        running = f"{self.core}/pods?{wanted}&fieldSelector=status.phase%3DRunning&limit={NAMED}"
        for pod in pods_of(self.api.get(running).record):
            words = manifest.python_of(pod)
            if words and not text_at(pod, "metadata", "deletionTimestamp"):
                yield text_at(pod, "metadata", "name"), words

    def carried(self, named: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        """Return the Jobs of these jobs, by their ids, as far as they bring their own submission
        along."""
        found = {}
        for job_id, name in list(named.items())[:NAMED]:
            job = self.api.get(f"{self.jobs}/{name}").record
            if value_at(job, "metadata", "annotations", names.CARRIED):
                found[job_id] = job
        return found

    def end_of(self, job_id: str, job: Mapping[str, Any]) -> End | None:
        """Say how a job ended that may not have got to say it in its files."""
        wanted = names.selector({names.JOB: job_id})
        pods = items_of(self.api.get(f"{self.core}/pods?{wanted}").record)
        return queue.end_of(pods, job)

    def _ends(self, ids: Sequence[str], named: Mapping[str, str]) -> dict[str, End]:
        found = {}
        for job_id in ids:
            end = self.end_of(job_id, self.api.get(f"{self.jobs}/{named[job_id]}").record)
            if end:
                found[job_id] = end
        return found

    def running_pods(self, place: Place, job_id: str) -> dict[str, str]:
        """Return the names of a job's pods that run, by what each calls itself: its name, or its
        hostname where an older dray made its Job. Of two with the same hostname, one is being taken
        away."""
        root = names.root_label(place.root, place.user)
        wanted = names.selector({names.ROOT: root, names.JOB: [job_id]})
        path = f"{self.core}/pods?{wanted}&fieldSelector=status.phase%3DRunning"
        pods = pods_of(self.api.get(path).record)
        pods.sort(key=lambda pod: not text_at(pod, "metadata", "deletionTimestamp"))
        known = [text_at(pod, "metadata", "name") for pod in pods]
        hosts = [text_at(pod, "spec", "hostname") for pod in pods]
        return {**dict(zip(hosts, known, strict=True)), **{name: name for name in known}}

    def _served(self, group: str) -> str:
        """Return the version in which a group has what is asked for: the preferred one may have
        other things only. One who does not answer serves nothing."""
        try:
            about = self.api.get(f"/apis/{group}").record
            versions = value_at(about, "versions")
            for one in versions[:MOST_VERSIONS] if isinstance(versions, list) else ():
                version = text_at(one, "version")
                if not names.is_name(version):
                    continue
                served = value_at(self.api.get(f"/apis/{group}/{version}").record, "resources")
                listed = served if isinstance(served, list) else []
                if schedulers.SERVED[group] in [text_at(thing, "name") for thing in listed]:
                    return version
        except LinkLost:
            pass
        return ""


def refused_reasons(events: Sequence[Mapping[str, Any]], wanted: Collection[str]) -> dict[str, str]:
    """Say why pods of these Jobs could not be created, by the Jobs' names."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        name = text_at(event, "involvedObject", "name")
        if name in wanted:
            by_name.setdefault(name, []).append(event)
    return {name: queue.create_reason(own) for name, own in by_name.items()}


def pods_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the pods of a list that can be reached by their names."""
    return [one for one in items_of(record) if names.is_name(text_at(one, "metadata", "name"))]
