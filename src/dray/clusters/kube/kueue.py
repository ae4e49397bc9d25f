"""Reads what Kueue says of the jobs in its queues. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dray.clusters.kube.names import items_of, owner_of, text_at, value_at
from dray.clusters.kube.queue import condition_of, told

GROUP = "kueue.x-k8s.io"
VISIBILITY = "visibility.kueue.x-k8s.io"  # its own API, which tells places in a queue
WORKLOADS, QUEUES = "workloads", "localqueues"
# Why a job is not let in, by the reason that Kueue gives; without one of these, it just waits.
REASONS = {
    "ExceedsMaxQuota": "it asks for more than its queue can ever give",
    "NoMatchingFlavor": "its queue has nothing that fits it",
    "Misconfigured": "its queue is not there, or not set up",
    "Inadmissible": "its queue is not there, or not set up",
    "Suspended": "its queue is stopped",
    "WaitingForPreemptedWorkloads": "others are making room for it",
}
# What Kueue says in place of such a reason, unless it is told to give one.
SIGNS = {
    "maximum capacity": "ExceedsMaxQuota",
    "untolerated taint": "NoMatchingFlavor",
    "doesn't match node affinity": "NoMatchingFlavor",
    "is inactive": "Suspended",
}
LATER = "insufficient unused quota"  # of one flavor, whatever it says of the others
# Why a job was taken out again.
EVICTED = {
    "ClusterQueueStopped": "its queue was stopped",
    "LocalQueueStopped": "its queue was stopped",
    "NodeFailures": "its node failed",
    "PodsReadyTimeout": "its pod took too long to start",
    "Deactivated": "Kueue has given it up",
}
PREEMPTOR = re.compile(r"\(UID: ([0-9a-f-]+)")


def reasons(
    workloads: Sequence[Mapping[str, Any]], jobs: Collection[str], pending: Mapping[str, Any]
) -> dict[str, str]:
    """Say why these Jobs wait, by their conditions, as events may be old. ``pending``: what the
    visibility API says of the queue; nothing where it does not answer."""
    places = {
        text_at(one, "metadata", "name"): value_at(one, "positionInLocalQueue")
        for one in items_of(pending)
    }
    owners = {text_at(one, "metadata", "uid"): owner_of(one) for one in workloads}
    return {
        owner_of(one): reason(one, owners, places.get(text_at(one, "metadata", "name")))
        for one in workloads
        if owner_of(one) in jobs
    }


def reason(workload: Mapping[str, Any], owners: Mapping[str, str], place: object) -> str:
    if condition_of(workload, "Admitted")[0] == "True":
        return ""
    _, why, said = condition_of(workload, "QuotaReserved")
    words = REASONS.get(reason_said(why, said), "waiting in its queue")
    if isinstance(place, int):
        words += f", at place {place + 1}"
    taken = evicted_words(workload, owners)
    return told(f"{taken}; {words}" if taken else words, said)


def reason_said(why: str, said: str) -> str:
    """Return Kueue's reason, also where it is in the message only."""
    if why not in ("Pending", "Inadmissible") or LATER in said:
        return why
    return next((name for sign, name in SIGNS.items() if sign in said), why)


def evicted_words(workload: Mapping[str, Any], owners: Mapping[str, str]) -> str:
    status, why, said = condition_of(workload, "Evicted")
    if status != "True":
        return ""
    if why != "Preempted":
        return next((words for name, words in EVICTED.items() if why.startswith(name)), "")
    by = PREEMPTOR.search(said)
    name = owners.get(by[1], "") if by else ""
    return f"preempted by {name}" if name else "preempted by another job"
