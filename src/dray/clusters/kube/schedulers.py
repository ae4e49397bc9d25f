"""What starts the pods of jobs, and who keeps the queues. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.clusters.agent.facts import Problem
from dray.clusters.kube import kai, kueue
from dray.clusters.options import kubernetes as options

# The group of APIs by which each is known, the first one preferred, and what it must have: KAI
# brings a definition of Kueue's along, without Kueue.
GROUPS = {
    "kueue": (kueue.GROUP, kueue.WORKLOADS),
    "kai": (kai.GROUP, kai.POD_GROUPS),
    "volcano": ("batch.volcano.sh", "jobs"),
}
SERVED = {**dict(GROUPS.values()), kueue.VISIBILITY: kueue.QUEUES}
NAMES = {"kueue": "Kueue", "kai": "KAI scheduler", "volcano": "Volcano"}


def chosen(settings: Mapping[str, Any], kube: Mapping[str, Any]) -> str:
    """Return what starts pods there; where a queue is set, whose queues there are."""
    named = str(options.SCHEDULER.of(settings))
    if named != "auto":
        return named
    found = [one for one in kube.get("schedulers", ()) if one in options.SCHEDULERS]
    return found[0] if options.QUEUE.of(settings) and found else "default"


def depends_on_facts(settings: Mapping[str, Any]) -> bool:
    """Return whether what is there decides how a job is sent, or whether it may be."""
    named = options.SCHEDULER.of(settings)
    return bool(options.QUEUE.of(settings)) if named == "auto" else named != "default"


def find_problem(settings: Mapping[str, Any], kube: Mapping[str, Any]) -> Problem | None:
    """Return what is wrong with the queue that is set. A Job that waits for somebody who is not
    there waits for ever, and one in a queue that nobody keeps takes what was meant for others."""
    if "schedulers" not in kube:
        return None  # nobody has looked yet
    named, queue = options.SCHEDULER.of(settings), options.QUEUE.of(settings)
    there = kube["schedulers"]
    advice = "Ask the cluster's admins, or leave out the settings scheduler and queue."
    if named not in ("auto", "default", *there):
        return Problem(f"it has no {NAMES[named]}, which the settings name", advice)
    if named == "auto" and queue and not there:
        return Problem(f"it has nothing that keeps a queue, and the settings name {queue}", advice)
    return None
