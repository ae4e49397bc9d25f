"""Reads what the KAI scheduler says of the jobs in its queues. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dray.clusters.kube.names import owner_of, text_at, value_at
from dray.clusters.kube.queue import scheduling_reason, told

GROUP = "scheduling.run.ai"
POD_GROUPS = "podgroups"  # one for each pod of a Job
QUEUES = f"/apis/{GROUP}/v2/queues"  # of no namespace
NO_QUEUE = "its queue is not there"
# Why a job is not let in, by the reason that KAI gives.
REASONS = {
    "NonPreemptibleOverQuota": "its queue's quota is used up, and it may not borrow",
    "OverLimit": "its queue has all that it may have",
    "QueueDoesNotExist": NO_QUEUE,
}


def reasons(groups: Sequence[Mapping[str, Any]], jobs: Collection[str]) -> dict[str, str]:
    """Say why these Jobs wait, by what is said of their newest pods."""
    ordered = sorted(groups, key=lambda one: text_at(one, "metadata", "creationTimestamp"))
    found = {owner_of(one): reason(one) for one in ordered if owner_of(one) in jobs}
    return {name: words for name, words in found.items() if words}


def is_missing(queue: str, code: int, answer: Mapping[str, Any]) -> bool:
    """Return whether this is said of a queue that is not there. Before its version 0.13, KAI itself
    says nothing of the jobs in one."""
    return code == 404 and text_at(answer, "details", "name") == queue


def reason(group: Mapping[str, Any]) -> str:
    conditions = value_at(group, "status", "schedulingConditions")
    if not isinstance(conditions, list) or not conditions:
        return ""
    given = value_at(conditions[-1], "reasons")
    for one in given if isinstance(given, list) else ():
        if text_at(one, "reason") in REASONS:
            return told(REASONS[text_at(one, "reason")], text_at(one, "message"))
    return scheduling_reason(text_at(conditions[-1], "message"))
