"""Tells of the queue of a machine without a scheduler: this one, or one behind SSH."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dray import checks
from dray.checks import Malformed, note, number, several
from dray.clusters.agent import answers
from dray.clusters.agent.situation import AgentSituation
from dray.clusters.queues import explaining
from dray.clusters.queues.disks import with_disks
from dray.job.model import JobView
from dray.job.situation import Allowance, Explanation, Limit, Pool, QueueEntry, QueueView, Reason
from dray.node.agent import storage
from dray.node.formats import bootstrap
from dray.node.schedulers import fair_order, local

MOST_JOBS = 10**5
STATES = ("waiting", "running")


# -- pure ---------------------------------------------------------------------------------------


def queue_view(record: Mapping[str, Any], me: str, as_of: float) -> QueueView:
    """Read what ``dray.node.schedulers.local.overview`` tells."""
    read = checks.required(record, capacity=checks.record, jobs=several(entry, MOST_JOBS))
    entries = [one._replace(job=one.number if one.owner == me else "") for one in read["jobs"]]
    total = checks.fields(read["capacity"], {"gpus": checks.optional(checks.count)}).get("gpus")
    used = sum(one.gpus for one in entries if not one.is_waiting)
    pools = (Pool("", max((total or 0) - used, 0), total or 0, 1),) if total else ()
    rules = several(rule_of, MOST_JOBS)(record["jobs"])
    in_line = [one[:2] for one in rules if one[2] == "waiting" and not one[3]]
    remarks = remarks_on_order(in_line)
    return QueueView(entries=tuple(entries), pools=pools, as_of=as_of, me=me, remarks=remarks)


def remarks_on_order(waiting: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """Say by which rule the line goes, where somebody has chosen one; each of those that wait is
    given as its owner and the rule it would go by."""
    if fair_order.is_agreed([rule for _, rule in waiting]):
        return ("jobs start here in the order of the rule fair-gpu",)
    if not any(rule == fair_order.NAME for _, rule in waiting):
        return ()
    others = sorted({owner for owner, rule in waiting if rule != fair_order.NAME})
    names = ", ".join(others)
    why = f"jobs of {names} wait that go by age; the rule holds once all have set it"
    return (f"jobs start by age, not by fair-gpu: {why}",)


def entry(value: Any) -> QueueEntry:
    read = checks.required(value, job=checks.job_id, owner=note, state=state, gpus=number)
    since = checks.fields(value, {"since": checks.optional(number)}).get("since")
    held = held_of(value)
    return QueueEntry(
        read["job"],
        read["owner"],
        read["state"],
        gpus=read["gpus"],
        submitted=since or None,
        reason=held,
        is_held=bool(held),
    )


def held_of(value: Any) -> str:
    """Read why it waits, if not for its turn."""
    return str(checks.fields(value, {"held": note}).get("held", ""))


def rule_of(value: Any) -> tuple[str, object, str, str]:
    """Read whose job it is, by which rule it would have the line go, its state, and whether it is
    in line at all."""
    read = checks.required(value, owner=note, state=state)
    return read["owner"], value.get("order"), read["state"], held_of(value)


def state(value: Any) -> str:
    if value not in STATES:
        raise Malformed(f"{checks.brief(value)} is neither waiting nor running")
    return str(value)


def explanation(view: JobView, queue: QueueView) -> Explanation:
    mine = [one for one in queue.waiting if one.job == view.id]
    found = explaining.explain(view.spec, queue, mine[0] if mine else None, Reason(view.reason))
    running = [one for one in queue.entries if not one.is_waiting]
    names = [one.job or f"{one.owner}'s {one.number}" for one in running]
    return found._replace(holders=tuple(names[:10]))


def allowance(queue: QueueView) -> Allowance:
    used = {pool.kind: pool.total - pool.free for pool in queue.pools}
    scope = "this machine, for all who share it"
    return Allowance(
        limits=tuple(Limit("GPUs", one.total, used[one.kind], scope) for one in queue.pools)
    )


# -- acting -------------------------------------------------------------------------------------


class MachineSituation(AgentSituation):
    """Of a machine behind SSH, through its agent."""

    def view(self) -> QueueView:
        told = self.ask("machine")
        try:
            record = json.loads(told.text("machine") or "{}")
        except ValueError:
            record = {}
        with answers.reading(self.cluster.name):
            return queue_view(record, told.user, told.as_of)

    def explain(self, view: JobView) -> Explanation:
        return explanation(view, self.view())

    def allowance(self) -> Allowance:
        return with_disks(allowance(self.view()), self.cluster.name, self.storage())


class LocalSituation:
    """Of this machine."""

    def __init__(self, root: str, share: str | None) -> None:
        self.root = root
        self.share = share

    def view(self) -> QueueView:
        me = bootstrap.name_of(os.getuid())
        return queue_view(dict(local.overview(self.root, self.share)), me, time.time())

    def explain(self, view: JobView) -> Explanation:
        return explanation(view, self.view())

    def allowance(self) -> Allowance:
        return with_disks(allowance(self.view()), "local", storage.found_at(self.root, []))

    def description(self, job_id: str) -> Mapping[str, str]:
        del job_id  # what is known of it is in its own files
        return {}
