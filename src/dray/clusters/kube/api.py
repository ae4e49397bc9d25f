"""What dray asks of an API server, in its own terms: jobs created, looked at, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.clusters.kube import (
    kai,
    kueue,
    listing,
    lost_nodes,
    manifest,
    names,
    queue,
    schedulers,
    volumes,
)
from dray.clusters.kube.manifest import Object, Place
from dray.clusters.kube.names import items_of, text_at, value_at
from dray.errors import ClusterError, DrayError, LoginNeeded, Refused
from dray.job.model import Equipment
from dray.records import NamedTuple
from dray.transport import kube_api
from dray.transport.channel import LinkLost
from dray.transport.kube_api import Api, Reply

if TYPE_CHECKING:
    from dray.node.formats.records import End

AT_ONCE = 8  # requests
TRIES = 3
PAUSE = 0.5  # seconds between two of them
NAMED = 40  # jobs that are named in one request, instead of asking for all
MOST_PENDING = 200  # pods that are looked at for the reason why they wait
NOT_PENDING = "fieldSelector=status.phase!%3DPending"
FEW_PENDING = 20  # the same, where thousands wait
MOST_VERSIONS = 20  # of one API that are looked at
MOST_EXPLAINED = 10  # ended jobs that are asked about one by one
GONE_SECONDS = 90.0  # for an object that is being deleted


class Replaces(NamedTuple):
    """Which Job of the same name gives way to a new one."""

    any: bool = False  # of a job that had ended: whatever is left of it
    ended: bool = False

    def gives_way(self, status: str) -> bool:
        return self.any or (self.ended and status in queue.ENDED)


class Look(NamedTuple):
    """What the API server says of jobs, by their ids."""

    rows: dict[str, queue.Row]
    ends: dict[str, End]  # of those that may not know it themselves
    overdue: dict[str, list[Mapping[str, Any]]]  # pods that should have ended: see lost_nodes
    named: dict[str, str]  # the name of each job's newest Job


class Cluster:
    """The objects of one namespace."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @cached_property
    def namespace(self) -> str:
        own = self.api.kubectl.namespace
        if own:
            return own
        view = ("config", "view", "--minify", "--output=jsonpath={..namespace}")
        code, said, complaint = kube_api.run(self.api.kubectl.argv(*view))
        if code:
            raise ClusterError(f"kubectl: {complaint.strip()}", hint="See 'kubectl config view'.")
        return said.decode("utf-8", "replace").strip() or "default"

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    # -- creating

    def create_jobs(
        self, described: Sequence[Object], secrets: Mapping[str, bytes], replaces: Replaces
    ) -> None:
        """Create these Jobs, each once: one that is there already is found again, unless it is to
        be replaced. All or none: where one is refused, the others are taken back."""
        if len(described) == 1:
            self._create_job(described[0], secrets, replaces)
            return
        lost: list[LinkLost] = []
        refused: list[DrayError] = []

        def create(one: Object) -> None:
            try:
                if not refused:  # else it would only be taken back
                    self._create_job(one, secrets, replaces)
            except LinkLost as error:
                lost.append(error)
            except DrayError as error:
                refused.append(error)

        self._at_once(create, described)
        if refused:
            self._at_once(self.take_back, described)
        for why in [*refused, *lost]:
            raise why

    def _at_once(self, act: Callable[[Object], None], described: Sequence[Object]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for one in [pool.submit(act, one) for one in described]:
                one.result()

    def _create_job(
        self, described: Object, secrets: Mapping[str, bytes], replaces: Replaces
    ) -> None:
        reply = self._create_once(self.jobs, described)
        name = described["metadata"]["name"]
        if reply.code == 409:
            reply = self._found_again(described, replaces)
        if not reply.ok:
            raise kube_api.refusal(f"Kubernetes does not take {name}", reply)
        if secrets:
            owner, labels = manifest.owner_of(reply.record), described["metadata"]["labels"]
            self._create_secret(manifest.secret_manifest(name, secrets, owner, labels))

    def _create_once(self, path: str, described: Object) -> Reply:
        """Create an object. Where the answer is lost, ask again: it is then found by its name."""
        try:
            return self.api.create(path, described)
        except LinkLost:
            time.sleep(PAUSE)
        for _ in range(TRIES - 2):
            try:
                return self._create_again(path, described)
            except LinkLost:
                time.sleep(PAUSE)
        return self._create_again(path, described)

    def _create_again(self, path: str, described: Object) -> Reply:
        """Create an object that may be there. A refusal now says nothing of the first request: the
        quota may be used up by what that one has created, or the login be over since."""
        try:
            reply = self.api.create(path, described)
            if reply.ok or reply.code == 409:
                return reply
            there = self.api.get(f"{path}/{described['metadata']['name']}")
        except LoginNeeded as error:
            raise LinkLost(error.message, hint=error.hint) from None
        return there._replace(code=409) if there.ok else reply

    def _found_again(self, described: Object, replaces: Replaces) -> Reply:
        """Return the Job of this name, if it is ours; where it is over and is to be replaced, make
        it anew."""
        path = f"{self.jobs}/{described['metadata']['name']}"
        there = self.api.get(path)
        if there.code != 404:
            if not names.is_same(there.record, described):
                raise Refused(
                    f"another Job has the name {described['metadata']['name']}: try again"
                )
            is_going = bool(text_at(there.record, "metadata", "deletionTimestamp"))
            if not is_going and not replaces.gives_way(queue.job_status(there.record)):
                return there
            self.delete_and_wait(path)
        reply = self._create_once(self.jobs, described)
        return self.api.get(path) if reply.code == 409 else reply  # the first answer was lost

    def take_back(self, described: Object) -> None:
        """Delete the Job that was created from this; one of somebody else stays."""
        path = f"{self.jobs}/{described['metadata']['name']}"
        there = self.api.get(path)
        if there.ok and names.is_same(there.record, described):
            self.api.delete(f"{path}?propagationPolicy=Background")

    def delete_and_wait(self, path: str) -> None:
        """Delete an object, and wait until it is gone. Somebody else may have given its name to
        another by then."""
        uid = self._uid_at(path)
        self.api.delete(f"{path}?propagationPolicy=Background")
        until = time.monotonic() + GONE_SECONDS
        while uid and self._uid_at(path) == uid:
            if time.monotonic() > until:
                raise ClusterError(f"{path.rsplit('/', 1)[1]} is still being deleted: try again")
            time.sleep(0.5)

    def _uid_at(self, path: str) -> str:
        return text_at(self.api.get(path).record, "metadata", "uid")

    def _create_secret(self, described: Object) -> None:
        """Create the Secret of a Job; where that fails, take the Job back. One of the same name may
        still be there, of a Job that was replaced, until Kubernetes has removed it."""
        until = time.monotonic() + GONE_SECONDS
        name = described["metadata"]["name"]
        while True:
            reply = self._create_once(f"{self.core}/secrets", described)
            if reply.ok or (reply.code == 409 and self._has_secret(described)):
                return
            if reply.code != 409 or time.monotonic() > until:
                break
            time.sleep(PAUSE)
        self.api.delete(f"{self.jobs}/{name}?propagationPolicy=Background")
        raise kube_api.refusal("Kubernetes does not take the job's secrets", reply)

    def _has_secret(self, described: Object) -> bool:
        """Return whether the Secret of this name is that of the same Job. Where nobody may look, it
        is taken for that: the answer to its creation was lost."""
        there = self.api.get(f"{self.core}/secrets/{described['metadata']['name']}")
        if there.code in (401, 403):
            return True
        (owner,) = described["metadata"]["ownerReferences"]
        owners = value_at(there.record, "metadata", "ownerReferences")
        listed = owners if isinstance(owners, list) else []
        return owner["uid"] in [text_at(one, "uid") for one in listed]

    # -- looking

    def survey(self, place: Place, ids: Sequence[str]) -> Look:
        """Look at very many jobs of which most wait: at their Jobs, at the pods that do more than
        wait, at the first of those that wait, and at pods that could not be created, all at once.
        Nothing is said of a job that has started, or has no Job: ``look`` tells that."""
        wanted = names.selector({names.ROOT: names.root_label(place.root, place.user)})
        with ThreadPoolExecutor(3) as pool:
            begun = pool.submit(self._table, f"{self.core}/pods?{wanted}&{NOT_PENDING}")
            pending = pool.submit(self._waiting_pods, wanted, FEW_PENDING)
            refused = pool.submit(self._refusals)
            jobs = queue.job_states(self._table(f"{self.jobs}?{wanted}"))
            waiting = pending.result()
            have_pod = {names.job_of_pod(text_at(pod, "metadata", "name")) for pod in waiting}
            if place.scheduler == "kueue":  # which suspends those that it has not let in
                have_pod |= {one.name for one in jobs if one.status != "Suspended"}
            reasons = self._reasons(place, waiting, jobs, have_pod, refused.result)
            started = {pod.job for pod in queue.pod_states(begun.result())}
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
            reasons = self._reasons(place, waiting.result(), jobs, have_pod, self._refusals)
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
        refusals: Callable[[], Sequence[Mapping[str, Any]]],
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
            found.update(refused_reasons(refusals(), without))
        return found

    def _waiting_pods(self, wanted: str, most: int) -> list[dict[str, Any]]:
        """Return the pods that wait, with what keeps them; of very many, only the first ones."""
        pending = f"fieldSelector=status.phase%3DPending&limit={most}"
        return items_of(self.api.get(f"{self.core}/pods?{wanted}&{pending}").record)

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

    # -- deleting

    def delete_jobs(self, place: Place, ids: Sequence[str]) -> None:
        self._delete(self.jobs, place, ids, "propagationPolicy=Background")

    def delete_job(self, name: str) -> None:
        """Delete this one Job, where a job may have several."""
        self.api.delete(f"{self.jobs}/{name}?propagationPolicy=Background")

    def delete_pods(self, place: Place, ids: Sequence[str]) -> None:
        """Ask pods to end, each in its own grace period."""
        self._delete(f"{self.core}/pods", place, ids, "fieldSelector=status.phase%3DRunning")

    def _delete(self, path: str, place: Place, ids: Sequence[str], more: str) -> None:
        root = names.root_label(place.root, place.user)
        for start in range(0, len(ids), NAMED):
            some = ids[start : start + NAMED]
            wanted = names.selector({names.ROOT: root, names.JOB: some})
            reply = self.api.delete(f"{path}?{wanted}&{more}")
            if not reply.ok and reply.code != 404:
                raise kube_api.refusal("Kubernetes does not delete the jobs", reply)

    # -- what the cluster is like

    def facts(self, claim: str = "") -> dict[str, Any]:
        """Look at the cluster, and at the claim that jobs are on."""
        version = self.api.get("/version").record
        versions = self._additions()
        quotas = items_of(self.api.get(f"{self.core}/resourcequotas").record)
        hard = [value_at(one, "spec", "hard") for one in quotas]
        return {
            "version": [digits(text_at(version, part)) for part in ("major", "minor")],
            "schedulers": [
                name for name, (group, _) in schedulers.GROUPS.items() if group in versions
            ],
            "versions": versions,
            "limits_cpu": any(isinstance(one, dict) and "limits.cpu" in one for one in hard),
            "modes": volumes.modes_of(self.claim(claim).record) if claim else [],
        }

    def claim(self, name: str) -> Reply:
        return self.api.get(f"{self.core}/persistentvolumeclaims/{name}")

    def _additions(self) -> dict[str, str]:
        """Return the version of each API that is served by something which queues jobs."""
        listed = value_at(self.api.get("/apis").record, "groups")
        there = {text_at(one, "name") for one in (listed if isinstance(listed, list) else [])}
        found = {group: self._served(group) for group in schedulers.SERVED if group in there}
        return {group: version for group, version in found.items() if version}

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

    def largest_node(self, gpu: str) -> Equipment:
        """Return what the largest node has; nothing where nodes may not be listed."""
        have = listing.read(
            self.api, "/api/v1/nodes", lambda one: value_at(one, "status", "allocatable")
        ).things
        cpus, memory, gpus = (
            max((quantity(text_at(one, what)) for one in have), default=0)
            for what in ("cpu", "memory", gpu)
        )
        return Equipment(cpus=cpus, memory=memory or None, gpus=gpus)


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


SCALES = {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9,
}  # fmt: skip


def quantity(text: str) -> int:
    """Read a quantity of Kubernetes, such as 31998044Ki or 3500m; 0 for what is none."""
    for unit, scale in SCALES.items():
        if text.endswith(unit):
            return digits(text.removesuffix(unit)) * scale
    return digits(text[:-1]) // 1000 if text.endswith("m") else digits(text)


def digits(text: str) -> int:
    number = "".join(one for one in text[:18] if one in "0123456789")
    return int(number) if number else 0
