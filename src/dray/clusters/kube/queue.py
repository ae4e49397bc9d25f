"""Reads what the API server says of Jobs and pods, and says it in plain words. Pure.

What comes from there is data: every field may be missing or of another type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

from dray.clusters.kube import names
from dray.clusters.kube.names import text_at, value_at
from dray.node.jobs.arrays import fold
from dray.records import NamedTuple

if TYPE_CHECKING:
    from dray.node.formats.records import End, QueueGroup

ENDED = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
MOST_WORDS = 300
MOST_SAID = 4096  # characters of a message that are looked through for what it means

MADE_READY = "its pod is being made ready"
# What keeps a container from starting, by the reason that the kubelet gives.
CONTAINER_REASONS = {
    "ImagePullBackOff": "its image cannot be pulled",
    "ErrImagePull": "its image cannot be pulled",
    "ErrImageNeverPull": "its image is not on the node, and may not be pulled",
    "InvalidImageName": "its image has a name that is none",
    "CreateContainerConfigError": "its container cannot be made",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be started",
    "ContainerCreating": MADE_READY,
    "PodInitializing": MADE_READY,
}
# What the scheduler says of nodes, and what it means.
SCHEDULING = (
    (r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim .* not found",
     "its volume is not there yet"),
    (r"Insufficient (\S*gpu\S*)", "no GPU is free"),
    (r"Insufficient memory", "no node has enough free memory"),
    (r"Insufficient cpu", "no node has enough free CPUs"),
    (r"didn't match Pod's node affinity/selector", "no node has the labels that it asks for"),
    (r"didn't match pod affinity rules",
     "the node that has its volume has no room: it can be on one node only"),
    (r"untolerated taint", "nodes are reserved for others (taints)"),
    (r"node\(s\) were unschedulable", "nodes are being drained"),
    (r"were not ready|not-ready|unreachable", "nodes are not ready"),
)  # fmt: skip
# No node has what the pod asks for, and none would if all others left it. A node that a taint or a
# label excludes counts as well, but never one on which the pod could wait for room.
NEVER_FITS = re.compile(r"0/(\d+) nodes are available: (\d+) Preemption is not helpful")
TOO_LARGE = "no node that it may use is large enough, even when empty"
# What keeps a pod from being made ready, by the event that tells it.
MAKING = {
    "FailedMount": "its volume cannot be mounted",
    "FailedAttachVolume": "its volume cannot be attached",
    "FailedCreatePodSandBox": "its pod cannot be set up",
}
# The laptop was cut off between the Job and its Secret.
NO_SECRET = re.compile(r'volume "secrets".*secret "[^"]*" not found')
SECRET_MISSING = (
    "its secrets did not arrive: dray stop it, then dray resume it, or run it again if it never ran"
)
NO_QUOTA = "the quota is used up"
# Why a pod is refused, by what the API server says, and what to do.
REFUSED = (
    ("exceeded quota", NO_QUOTA),
    ("runAsNonRoot", "the namespace forbids pods that may run as root: set uid for this cluster"),
    ("hostPath volumes", "the namespace forbids folders of a node: name a claim in volumes"),
    ("violates PodSecurity", "the namespace's Pod Security forbids it"),
)
# Why a pod that never started the supervisor ended.
START_REASONS = {
    "StartError": "its container could not be started",
    "ContainerCannotRun": "its container could not be started",
    "OOMKilled": "out of memory: killed at the memory limit of its pod",
    "DeadlineExceeded": "ended by a deadline of the pod",
    "Evicted": "evicted from its node",
}
NO_PYTHON = 'exec: "python3": executable file not found'
NO_PYTHON_WORDS = (
    "its image has no python3, and no helper had room to bring one: choose an image that has one, "
    "set python for this cluster, or free room for the helper once"
)
OVER = ("Completed", "Error", "Succeeded", "Failed")
STARTED = ("Running", "Terminating", "Unknown", *OVER, *START_REASONS)


class PodState(NamedTuple):
    """A pod as it matters here."""

    job: str  # the Job's name
    status: str  # as ``kubectl get pods`` shows it


class JobState(NamedTuple):
    name: str
    status: str  # as ``kubectl get jobs`` shows it


class Row(NamedTuple):
    """What Kubernetes says of a job that has not ended."""

    state: str  # waiting, running or ending
    why: str = ""


def is_list(record: Mapping[str, Any]) -> bool:
    """Return whether this is a list of Jobs or pods, or the server's table of them, though it may
    be an empty one."""
    if record.get("kind") != "Table":
        return isinstance(record.get("items", ()), list | NoneType)
    return {"Name", "Status"} <= set(titles_of(record)) and isinstance(
        record.get("rows", ()), list | NoneType
    )


def job_states(record: Mapping[str, Any]) -> list[JobState]:
    """Read a list of Jobs, or the server's table of them."""
    if record.get("kind") == "Table":
        return list(map(JobState._make, table_rows(record)))
    return [
        JobState(text_at(one, "metadata", "name"), job_status(one))
        for one in names.items_of(record)
    ]


def job_status(job: Mapping[str, Any]) -> str:
    """Return what ``kubectl get jobs`` shows in its column Status."""
    conditions = value_at(job, "status", "conditions")
    for name in (*ENDED, "Suspended"):
        for one in conditions if isinstance(conditions, list) else ():
            if text_at(one, "type") == name and text_at(one, "status") == "True":
                return name
    return "Terminating" if text_at(job, "metadata", "deletionTimestamp") else "Running"


def pod_states(record: Mapping[str, Any]) -> list[PodState]:
    if record.get("kind") == "Table":
        rows = table_rows(record)
        return [PodState(names.job_of_pod(name), status) for name, status in rows]
    return [
        PodState(names.job_of_pod(text_at(one, "metadata", "name")), pod_status(one))
        for one in names.items_of(record)
    ]


def pod_status(pod: Mapping[str, Any]) -> str:
    """Return what ``kubectl get pods`` shows in its column Status, as far as it matters here."""
    if text_at(pod, "metadata", "deletionTimestamp"):
        return "Terminating"
    for status in containers_of(pod):
        for kind in ("waiting", "terminated"):
            reason = text_at(status, "state", kind, "reason")
            if reason:
                return reason
    return text_at(pod, "status", "phase")


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = value_at(pod, "status", "containerStatuses")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def titles_of(table: Mapping[str, Any]) -> list[str]:
    columns = value_at(table, "columnDefinitions")
    return [text_at(one, "name") for one in columns] if isinstance(columns, list) else []


def table_rows(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and states in a server-side table, of which there may be thousands."""
    titles = titles_of(table)
    if not {"Name", "Status"} <= set(titles):
        return []
    name, status, width = titles.index("Name"), titles.index("Status"), len(titles)
    rows = table["rows"] if isinstance(table.get("rows"), list) else ()
    cells = [row.get("cells") for row in rows if isinstance(row, dict)]
    return [
        (str(one[name]), str(one[status]))
        for one in cells
        if isinstance(one, list) and len(one) == width
    ]


def lack_pods(jobs: Iterable[JobState], have_pod: Collection[str], last: str) -> bool:
    """Return whether a Job that has not ended has no pod, as far as can be told: pods are known up
    to the one with the name ``last``, or all of them. One Job suffices to ask about all: what keeps
    pods from being created, such as a quota, is seldom about one alone."""
    return any(
        one.name not in have_pod and one.status not in ENDED
        for one in jobs
        if not last or (one.name < last and f"{one.name}-0-" < last)
    )


def rows_of(
    ids: Iterable[str],
    jobs: Sequence[JobState],
    pods: Sequence[PodState],
    reasons: Mapping[str, str],
    named: Mapping[str, str],
) -> dict[str, Row]:
    """Return what Kubernetes says of these jobs; nothing of those that have ended or are not there.
    ``named``: job id → the name of its Job. ``reasons``: why a Job waits, by its name."""
    status = dict(jobs)
    at = {}  # type: dict[str, list[str]]
    for pod in pods:
        at.setdefault(pod.job, []).append(pod.status)
    rows, alike = {}, {}  # type: dict[str, Row], dict[tuple[str, str], Row]
    for job_id in ids:
        name = named[job_id]
        said = status.get(name)
        if said is None or said in ENDED:
            continue
        why = reasons.get(name, "")
        if name in at:
            rows[job_id] = row_of(said, at[name], why)
        else:  # there may be thousands of them
            if (said, why) not in alike:
                alike[said, why] = row_of(said, (), why)
            rows[job_id] = alike[said, why]
    return rows


def row_of(job: str, pods: Sequence[str], why: str) -> Row:
    live = [one for one in pods if one not in OVER]
    if job == "Terminating":
        return Row("ending")
    waiting = [one for one in live if one == "Pending" or one in CONTAINER_REASONS]
    if "Running" in live and not waiting:  # else it waits for the rest of its nodes
        return Row("running")
    waiting = [one for one in live if one not in ("Terminating", "Running", *START_REASONS)]
    if not waiting and pods:  # the controller has not yet said what follows
        return Row("ending")
    if not waiting:
        return Row("waiting", why or ("suspended" if job == "Suspended" else ""))
    return Row("waiting", why or CONTAINER_REASONS.get(waiting[0], ""))


def is_waiting(row: Row | None) -> bool:
    return row is not None and row.state == "waiting"


def grouped(rows: Mapping[str, Row]) -> list[QueueGroup]:
    """Write rows for the agent: jobs of the same state, for the same reason, in one group."""
    groups: dict[Row, list[str]] = {}
    for job_id, row in rows.items():
        groups.setdefault(row, []).append(job_id)
    return [{"ids": fold(ids), "state": row.state, "why": row.why} for row, ids in groups.items()]


# -- why a job waits, or has ended ----------------------------------------------------------------


def waiting_reason(pod: Mapping[str, Any]) -> str:
    """Say why a pod does not run yet."""
    for status in containers_of(pod):
        reason = text_at(status, "state", "waiting", "reason")
        said = text_at(status, "state", "waiting", "message")
        if reason in ("ContainerCreating", "PodInitializing"):
            return CONTAINER_REASONS[reason]
        if reason:
            return told(CONTAINER_REASONS.get(reason, reason), said)
    conditions = value_at(pod, "status", "conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if text_at(one, "type") == "PodScheduled" and text_at(one, "status") == "False":
            return scheduling_reason(text_at(one, "message"), text_at(one, "reason"))
    return ""


def scheduling_reason(said: str, reason: str = "") -> str:
    """Say in plain words what the scheduler says of all nodes; the number of nodes is kept."""
    if reason == "SchedulingGated":
        return "held back by a gate of the cluster until it lets the pod start"
    said = said[:MOST_SAID]
    found = [words for pattern, words in SCHEDULING if re.search(pattern, said)]
    counted = NEVER_FITS.search(said)
    if "Insufficient" in said and counted and counted[1] == counted[2]:
        found = [TOO_LARGE]
    return told(", ".join(dict.fromkeys(found)), said) if found else told("", said)


def told(words: str, said: str) -> str:
    """Add what was said there, on one line. The words may be those of the API server, too."""
    words, said = words[:MOST_WORDS], " ".join(said.split())[:MOST_WORDS]
    return f"{words} (Kubernetes says: {said})" if words and said else words or said


def condition_of(record: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    """Return the status, reason and message of a condition; nothing where it is not there."""
    conditions = value_at(record, "status", "conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if text_at(one, "type") == name:
            return text_at(one, "status"), text_at(one, "reason"), text_at(one, "message")
    return "", "", ""


def making_reason(events: Iterable[Mapping[str, Any]]) -> str:
    """Say what keeps a pod from being made ready, by its last event."""
    failed = [one for one in events if text_at(one, "reason") in MAKING]
    if not failed:
        return ""
    said = text_at(failed[-1], "message")[:MOST_SAID]
    if NO_SECRET.search(said):
        return told(SECRET_MISSING, said)
    return told(MAKING[text_at(failed[-1], "reason")], said)


def is_being_made(why: str) -> bool:
    """Return whether a pod that waits for this reason has its node, and needs its volumes there."""
    return why.startswith((MADE_READY, *MAKING.values()))


def create_reason(events: Iterable[Mapping[str, Any]]) -> str:
    """Say why the Job's controller could not create a pod, by its last event."""
    failed = [one for one in events if text_at(one, "reason") == "FailedCreate"]
    if not failed:
        return ""
    said = text_at(failed[-1], "message")
    found = (words for sign, words in REFUSED if sign in said)
    return told(next(found, "its pod was refused"), said)


def own_words(said: str) -> str:
    """Return what the supervisor has left for those who look at its pod; see pod.leave_message."""
    try:
        return told("", text_at(json.loads(said), "reason"))
    except (ValueError, RecursionError):
        return ""


def end_of(pods: Sequence[Mapping[str, Any]], job: Mapping[str, Any]) -> End | None:
    """Say how a job ended that could not say it itself; None where nothing tells."""
    for pod in reversed(pods):
        for status in containers_of(pod):
            reason = text_at(status, "state", "terminated", "reason")
            said = text_at(status, "state", "terminated", "message")
            if reason in START_REASONS and NO_PYTHON in said:
                return {"state": "failed", "reason": told(NO_PYTHON_WORDS, said)}
            if reason in START_REASONS:
                return {"state": "failed", "reason": told(START_REASONS[reason], said)}
            if own_words(said):
                return {"state": "failed", "reason": own_words(said)}
        if text_at(pod, "status", "reason") in START_REASONS:
            words = START_REASONS[text_at(pod, "status", "reason")]
            return {"state": "failed", "reason": told(words, text_at(pod, "status", "message"))}
    conditions = value_at(job, "status", "conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if text_at(one, "type") == "Failed":
            return {"state": "failed", "reason": told("its Job failed", text_at(one, "message"))}
    return None
