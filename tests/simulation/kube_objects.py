"""The objects of the simulated Kubernetes, and how a request names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.simulation.batch import PENDING
from tests.simulation.kernel import FOREVER, Process

Object = dict[str, Any]

JOB_NAME = "job-name"
TRACKING = "batch.kubernetes.io/job-tracking"


class Pod:
    """A pod, and the container in it. ``state`` is the container's, as the node knows it; ``phase``
    is what the API server was last told."""

    def __init__(self, name: str, job: Job, born: float) -> None:
        self.name = name
        self.job = job
        self.born = born
        self.state = PENDING
        self.phase = "Pending"
        self.code: int | None = None
        self.reason = ""
        self.deleted_at: float | None = None  # its deletionTimestamp: when it is to have ended
        self.kill_at = FOREVER
        self.is_forced = False  # deleted without waiting for its node
        self.is_counted = False  # by the Job's controller
        self.is_there = True  # for the API server
        self.process: Process | None = None
        self.mount = ""  # where its container finds the Secret
        self.guests: list[Process] = []  # agents, in a helper
        # Of its node:
        self.is_cut_off = False  # the API server and the kubelet do not hear of each other
        self.lost_at = FOREVER
        self.dies_at = FOREVER
        self.returns_at = FOREVER

    @property
    def is_over(self) -> bool:
        """Whether the API server knows that it is."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def grace(self) -> float:
        return float(self.job.template["spec"].get("terminationGracePeriodSeconds", 30))

    @property
    def status(self) -> str:
        """As ``kubectl get pods`` shows it."""
        if self.deleted_at is not None:
            return "Terminating"
        shown = {"Succeeded": "Completed", "Failed": "Error", "Pending": "ContainerCreating"}
        return self.reason or shown.get(self.phase, self.phase)

    def described(self) -> Object:
        labels = {**self.job.template["metadata"]["labels"], JOB_NAME: self.job.name}
        metadata: Object = {"name": self.name, "labels": labels}
        if not self.is_counted:
            metadata["finalizers"] = [TRACKING]
        if self.deleted_at is not None:
            metadata["deletionTimestamp"] = stamp(self.deleted_at)
        ended = {"reason": self.reason or "Error", "exitCode": self.code}
        state: Object = {"terminated": ended} if self.is_over else {}
        if self.phase == "Pending":
            state = {"waiting": {"reason": "ContainerCreating"}}
        return {
            "metadata": metadata,
            "status": {"phase": self.phase, "containerStatuses": [{"state": state}]},
        }


class Job:
    def __init__(self, described: Mapping[str, Any], uid: str, now: float) -> None:
        self.given = described
        self.name = str(described["metadata"]["name"])
        self.uid = uid
        self.born = now
        self.pods = 0  # that it has used up
        self.verdict = ""  # Complete or Failed; told once all its pods have ended
        self.ended_at = FOREVER

    @property
    def template(self) -> Object:
        found: Object = self.given["spec"]["template"]
        return found

    @property
    def job(self) -> str:
        """dray's id of it; none is that of a helper."""
        return str(self.given["metadata"]["labels"].get("dray/job", ""))

    @property
    def secret(self) -> str:
        """The Secret that its pods mount."""
        mounted = [one for one in self.template["spec"]["volumes"] if "secret" in one]
        return str(mounted[0]["secret"]["secretName"]) if mounted else ""

    @property
    def status(self) -> str:
        if self.ended_at != FOREVER:
            return self.verdict
        interim = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
        return interim.get(self.verdict, "Running")

    @property
    def has_policy(self) -> bool:
        return "podFailurePolicy" in self.given["spec"]

    def verdict_on(self, code: int) -> str:
        """What the exit code of a pod means for the Job; nothing where the next pod follows."""
        if code == 0:
            return "Complete"
        if not self.has_policy:
            return "Failed"
        rules = self.given["spec"]["podFailurePolicy"]["rules"]
        return "Failed" if any(code in one["onExitCodes"]["values"] for one in rules) else ""

    def described(self) -> Object:
        conditions = [] if self.status == "Running" else [{"type": self.status, "status": "True"}]
        return {
            **self.given,
            "metadata": {**self.given["metadata"], "uid": self.uid},
            "status": {"conditions": conditions},
        }


class Asked(NamedTuple):
    """A request's path: what kind of objects, which of them, and its parameters."""

    kind: str
    name: str
    parameters: dict[str, str]


def stamp(moment: float) -> str:
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def table(found: list[Any]) -> Object:
    """The server's own table, as ``kubectl get`` shows it."""
    columns = [{"name": "Name"}, {"name": "Status"}]
    return {
        "kind": "Table",
        "columnDefinitions": columns,
        "rows": [{"cells": [one.name, one.status]} for one in found],
    }


def read_path(path: str) -> Asked:
    parts = urlsplit(path)
    words = parts.path.split("/namespaces/", 1)[1].split("/")[1:]
    parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
    return Asked(words[0], words[1] if len(words) > 1 else "", parameters)


def is_meant(described: Object, asked: Asked) -> bool:
    if asked.name and described["metadata"]["name"] != asked.name:
        return False
    phase = asked.parameters.get("fieldSelector", "").partition("status.phase=")[2]
    if phase and described["status"]["phase"] != phase:
        return False
    labels = described["metadata"].get("labels", {})
    return all(
        labels.get(key) in values if values else key in labels
        for key, values in selected(unquote(asked.parameters.get("labelSelector", "")))
    )


def selected(text: str) -> Iterator[tuple[str, list[str]]]:
    """Read a selector: which values each label may have; none where any will do."""
    while text:
        if "=" not in text.partition(",")[0] and " in (" not in text.partition(",")[0]:
            key, _, text = text.partition(",")
            yield key, []
            continue
        if " in (" in text.partition("=")[0]:
            key, _, rest = text.partition(" in (")
            values, _, text = rest.partition(")")
        else:
            key, _, rest = text.partition("=")
            values, _, text = rest.partition(",")
            text = "," + text
        yield key, values.split(",")
        text = text.lstrip(",")
