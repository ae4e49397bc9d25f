"""What dray asks of an API server, in its own terms: jobs created, looked at (see looking), and
deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dray.clusters.kube import (
    listing,
    manifest,
    names,
    queue,
    schedulers,
    volumes,
)
from dray.clusters.kube.looking import NAMED, Looker
from dray.clusters.kube.manifest import Object, Place
from dray.clusters.kube.names import items_of, text_at, value_at
from dray.errors import ClusterError, DrayError, LoginNeeded, Refused
from dray.job.model import Equipment
from dray.records import NamedTuple
from dray.transport import kube_api
from dray.transport.channel import LinkLost
from dray.transport.kube_api import Reply

AT_ONCE = 8  # requests
TRIES = 3
PAUSE = 0.5  # seconds between two of them
GONE_SECONDS = 90.0  # for an object that is being deleted


class Replaces(NamedTuple):
    """Which Job of the same name gives way to a new one."""

    any: bool = False  # of a job that had ended: whatever is left of it
    ended: bool = False

    def gives_way(self, status: str) -> bool:
        return self.any or (self.ended and status in queue.ENDED)


class Cluster(Looker):
    """The objects of one namespace."""

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
