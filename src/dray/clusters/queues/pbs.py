"""Reads what PBS tells of its queues and nodes, and asks for it.

PBS says neither in which order jobs start nor, in its table, how many GPUs those of others have."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Mapping
from typing import Any

from dray.clusters.agent.answers import Told
from dray.clusters.agent.situation import AgentSituation
from dray.clusters.queues import explaining
from dray.clusters.queues.disks import with_disks
from dray.job.model import JobView
from dray.job.situation import Allowance, Explanation, Limit, Pool, QueueEntry, QueueView, Reason
from dray.node.schedulers.pbs import STATES, parse_blocks, parse_duration, parse_jobs

COLUMNS = 11  # of ``qstat -a``
NO_ORDER = "PBS does not tell in which order jobs start"
NO_GPUS = "PBS does not tell which GPUs are free"
FARTHEST = 30 * 86400.0  # seconds: PBS plans a start in the year 13429 for what it cannot place
BROKEN = ("down", "offline", "unknown", "drain", "stale", "state-unknown")
LIMITED = {
    "max_run": "running jobs",
    "max_queued": "jobs in the queue",
    "max_run_res.ngpus": "GPUs",
    "max_run_res.ncpus": "CPUs",
}
GENERIC = re.compile(r"\[(u|o|g|p):(PBS_GENERIC|PBS_ALL|[\w.-]+)=(\d{1,9})\]", re.A)
SCOPES = {"u": "each user", "g": "each group", "p": "each project", "o": "all together"}


# -- pure ---------------------------------------------------------------------------------------


def queue_view(told: Told) -> QueueView:
    pools = pools_of(told.text("nodes"))
    remarks = [NO_ORDER, *([] if pools else [NO_GPUS])]
    remarks += [f"{name}: {said}" for name, said in told.errors.items()]
    return QueueView(
        entries=tuple(entries(told.text("queue"), told.user)),
        pools=tuple(pools),
        as_of=told.as_of,
        me=told.user,
        remarks=tuple(remarks),
        is_ordered=False,
    )


def entries(table: str, me: str) -> list[QueueEntry]:
    """Read the table of ``qstat -a``. It cuts long names, so one's own jobs are marked by their
    owner alone."""
    found = []
    for line in table.splitlines():
        parts = line.split()
        if len(parts) != COLUMNS or not re.match(r"\d", parts[0], re.A):
            continue
        number, owner, queue, name, *_, limit, state, used = parts
        known = STATES.get(state)
        if known not in ("waiting", "running"):
            continue
        total, spent = hours(limit), hours(used)
        found.append(
            QueueEntry(
                number=number,
                owner=owner,
                state=known,
                job=name if owner == me else "",
                partition=queue,
                limit=total,
                left=total - spent if known == "running" and total and spent is not None else None,
            )
        )
    return sorted(found, key=lambda one: not one.is_waiting)


def hours(text: str) -> float | None:
    """Parse hours and minutes, 04:00, to seconds."""
    found = re.fullmatch(r"(\d{1,6}):(\d\d)", text, re.A)
    return int(found[1]) * 3600.0 + int(found[2]) * 60 if found else None


def pools_of(nodes: str) -> list[Pool]:
    """Count GPUs, where the nodes tell how many are in use: OpenPBS does, Torque does not."""
    free = total = number = down = 0
    for node in parse_blocks(nodes, "").values():
        have = count(node.get("resources_available.ngpus", ""))
        if not have:
            continue
        if any(word in node.get("state", "") for word in BROKEN):
            down += have
            continue
        used = count(node.get("resources_assigned.ngpus", ""))
        free, total, number = free + max(have - used, 0), total + have, number + 1
    return [Pool("", free, total, number, down)] if total or down else []


def count(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.A) else 0


def limits(queues: str, only: str = "") -> list[Limit]:
    """Read what the queues allow; with ``only``, one of them. What is used of it is not told."""
    found = []
    for name, about in parse_blocks(queues, "Queue:").items():
        if only and name != only:
            continue
        for key, what in LIMITED.items():
            for kind, _, most in GENERIC.findall(about.get(key, "")):
                found.append(Limit(what, float(most), None, f"queue {name}, {SCOPES[kind]}"))
        longest = parse_duration(about.get("resources_max.walltime", "")[:20])
        if longest:
            found.append(Limit("time of one job", longest, None, f"queue {name}", "seconds"))
    return found


def planned_start(job: Mapping[str, str], now: float) -> float | None:
    """Return when PBS plans to start the job; only for the next few does it plan at all."""
    text = job.get("estimated.start_time", "")
    try:
        start = float(text) if text.isdigit() else float(calendar.timegm(time.strptime(text)))
    except (ValueError, OverflowError):
        return None
    return start if now <= start < now + FARTHEST else None


def explanation(view: JobView, told: Told, about: Told) -> Explanation:
    """Tell why a job waits; the words for that are known with its state."""
    queue = queue_view(told)
    job: Mapping[str, Any] = next(iter(parse_jobs(about.text("job")).values()), {})
    found = explaining.explain(view.spec, queue, None, Reason(view.reason, "never" in view.reason))
    name = str(job.get("queue", ""))
    waiting = [one for one in queue.waiting if not name or one.partition == name]
    return found._replace(
        partition=name,
        waiting=len(waiting),
        start=planned_start(job, told.as_of),
        limits=tuple(limits(told.text("queues"), name)),
        remarks=queue.remarks,
    )


# -- asking -------------------------------------------------------------------------------------


class PbsSituation(AgentSituation):
    def view(self) -> QueueView:
        return queue_view(self.ask("queue", "nodes"))

    def explain(self, view: JobView) -> Explanation:
        told = self.ask("queue", "nodes", "queues")
        _, about, _ = self.ask_about(view.id)
        return explanation(view, told, about)

    def allowance(self) -> Allowance:
        told = self.ask("queues")
        allowed = Allowance(limits=tuple(limits(told.text("queues"))))
        return with_disks(allowed, self.cluster.name, self.storage())
