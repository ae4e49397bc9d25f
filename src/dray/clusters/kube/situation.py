"""What an API server tells of GPUs, of pods that have or want them, and of quotas."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dray.clusters.kube import kueue, names
from dray.clusters.kube.api import Cluster, quantity
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.names import items_of, text_at, value_at
from dray.clusters.kube.queue import TOO_LARGE, waiting_reason
from dray.clusters.options import kubernetes as options
from dray.clusters.queues import explaining
from dray.job.model import JobView
from dray.job.situation import Allowance, Explanation, Limit, Pool, QueueEntry, QueueView, Reason

OVER = ("Succeeded", "Failed")
OWNERS = ("user", "owner", "app.kubernetes.io/created-by")
OTHERS = "pods of other namespaces are not shown to you: more GPUs may be in use"
NO_NODES = "nodes are not shown to you: the quota is taken for what there is"
ASK_LESS = "Ask for less, unless the cluster adds larger nodes by itself."


# -- pure ---------------------------------------------------------------------------------------


def entries(pods: Iterable[Mapping[str, Any]], gpu: str, me: str) -> list[QueueEntry]:
    """Read the pods that have or want GPUs: by priority, then by age."""
    found = [one for pod in pods if (one := entry_of(pod, gpu, me)) is not None]
    return sorted(found, key=lambda one: (not one.is_waiting, -one.priority, one.submitted or 0))


def entry_of(pod: Mapping[str, Any], gpu: str, me: str) -> QueueEntry | None:
    phase = text_at(pod, "status", "phase")
    wanted = gpus_of(pod, gpu)
    job = text_at(pod, "metadata", "labels", names.JOB)
    if phase in OVER or not (wanted or job):
        return None
    labels = value_at(pod, "metadata", "labels")
    told = labels if isinstance(labels, dict) else {}
    owner = next((str(told[name]) for name in OWNERS if told.get(name)), "")
    is_waiting = phase != "Running"
    return QueueEntry(
        number=text_at(pod, "metadata", "name"),
        owner=owner or text_at(pod, "metadata", "namespace"),
        state="waiting" if is_waiting else "running",
        job=job if owner == me else "",
        partition=text_at(pod, "metadata", "namespace"),
        gpus=wanted,
        priority=priority_of(pod, told),
        submitted=moment(text_at(pod, "metadata", "creationTimestamp")),
        nodes=text_at(pod, "spec", "nodeName"),
        reason=waiting_reason(pod) if is_waiting else "",
    )


def priority_of(pod: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
    """Return the priority: a label of that name, as some labs have agreed on, else Kubernetes'."""
    label = str(labels.get("priority", ""))
    if re.fullmatch(r"-?[0-9]{1,10}", label):
        return float(label)
    own = value_at(pod, "spec", "priority")
    return float(own) if isinstance(own, int) and abs(own) < 2**62 else 0.0


def moment(text: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None


def gpus_of(pod: Mapping[str, Any], gpu: str) -> float:
    containers = value_at(pod, "spec", "containers")
    listed = containers if isinstance(containers, list) else []
    return float(sum(quantity(text_at(one, "resources", "limits", gpu)) for one in listed))


def pools(
    nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]], gpu: str
) -> list[Pool]:
    """Count the GPUs of each product, less what the pods that are seen have."""
    used: dict[str, float] = {}
    for pod in pods:
        if text_at(pod, "status", "phase") not in OVER:
            where = text_at(pod, "spec", "nodeName")
            used[where] = used.get(where, 0) + gpus_of(pod, gpu)
    found: dict[str, Pool] = {}
    for node in nodes:
        total = quantity(text_at(node, "status", "allocatable", gpu))
        if not total:
            continue
        kind = text_at(node, "metadata", "labels", f"{gpu}.product")
        pool = found.get(kind, Pool(kind, 0, 0, 0))
        if value_at(node, "spec", "unschedulable") is True:
            found[kind] = pool._replace(down=pool.down + total)
            continue
        free = max(total - used.get(text_at(node, "metadata", "name"), 0), 0)
        found[kind] = Pool(kind, pool.free + free, pool.total + total, pool.nodes + 1, pool.down)
    return [found[kind] for kind in sorted(found)]


def quota_limits(quotas: Iterable[Mapping[str, Any]]) -> list[Limit]:
    """Read the namespace's quotas."""
    found = []
    for quota in quotas:
        name = text_at(quota, "metadata", "name")
        hard, used = (value_at(quota, "status", part) for part in ("hard", "used"))
        for key, most in hard.items() if isinstance(hard, dict) else ():
            spent = used.get(key) if isinstance(used, dict) else None
            what, unit = thing(str(key))
            amounts = quantity(str(most)), quantity(str(spent or 0))
            found.append(Limit(what, *amounts, f"quota {name}", unit))
    return found


def thing(key: str) -> tuple[str, str]:
    """Name what a quota is of, and its unit."""
    plain = key.removeprefix("requests.").removeprefix("limits.")
    if plain.endswith("gpu"):
        return "GPUs", ""
    if plain == "memory" or plain.endswith("storage"):
        return f"{plain} ({key.partition('.')[0]})" if "." in key else plain, "bytes"
    return ("CPUs" if plain == "cpu" else plain), ""


def queue_remark(queue: Mapping[str, Any]) -> str:
    """Say how many jobs one of Kueue's queues has; what it may give is not told to its users."""
    counts = [value_at(queue, "status", one) for one in ("admittedWorkloads", "pendingWorkloads")]
    runs, waits = (one if isinstance(one, int) else 0 for one in counts)
    return f"queue {text_at(queue, 'metadata', 'name')}: {runs} let in, {waits} waiting"


# -- asking -------------------------------------------------------------------------------------


class KubernetesSituation:
    def __init__(self, kube: Cluster, settings: Mapping[str, Any], place: Place) -> None:
        self.kube = kube
        self.place = place
        self.gpu = str(options.GPU_RESOURCE.of(settings))

    def _pods(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return everybody's pods, or those of the namespace where one may not see others."""
        everywhere = self.kube.api.get("/api/v1/pods")
        if everywhere.ok:
            return items_of(everywhere.record), []
        return items_of(self.kube.api.get(f"{self.kube.core}/pods").record), [OTHERS]

    def view(self) -> QueueView:
        pods, remarks = self._pods()
        nodes = self.kube.api.get("/api/v1/nodes")
        found = pools(items_of(nodes.record), pods, self.gpu) if nodes.ok else self._quota_pools()
        if not nodes.ok:
            remarks.append(NO_NODES)
        me = names.label_value(self.place.user)
        return QueueView(
            entries=tuple(entries(pods, self.gpu, me)),
            pools=tuple(found),
            as_of=time.time(),
            me=me,
            remarks=tuple(remarks),
        )

    def _quota_pools(self) -> list[Pool]:
        return [
            Pool("", one.most - (one.used or 0), int(one.most), 0)
            for one in self._quotas()
            if one.what == "GPUs"
        ][:1]

    def _quotas(self) -> list[Limit]:
        return quota_limits(items_of(self.kube.api.get(f"{self.kube.core}/resourcequotas").record))

    def explain(self, view: JobView) -> Explanation:
        queue = self.view()
        mine = [one for one in queue.waiting if one.job == view.id]
        entry = mine[0] if mine else None
        advice = ASK_LESS if view.reason.startswith(TOO_LARGE) else ""
        found = explaining.explain(view.spec, queue, entry, Reason(view.reason, advice=advice))
        limits = [one for one in self._quotas() if one.what == "GPUs" or one.is_reached]
        return found._replace(partition="", limits=tuple(limits), remarks=queue.remarks)

    def allowance(self) -> Allowance:
        queues = self.kube.ask_addition(self.place, kueue.GROUP, kueue.QUEUES)
        remarks = tuple(map(queue_remark, items_of(queues.record)))
        return Allowance(limits=tuple(self._quotas()), remarks=remarks)

    def description(self, job_id: str) -> Mapping[str, str]:
        """Return the Job, its pods, and what has happened to them, as the API server has them."""
        wanted = names.selector({names.JOB: names.label_value(job_id)})
        found = {}
        for what, path in (("jobs", self.kube.jobs), ("pods", f"{self.kube.core}/pods")):
            told = items_of(self.kube.api.get(f"{path}?{wanted}").record)
            found[f"{what}.json"] = json.dumps(told, indent=2)
        listed = items_of(self.kube.api.get(f"{self.kube.core}/events").record)
        beginning = names.job_name(job_id)
        mine = [
            one for one in listed if text_at(one, "involvedObject", "name").startswith(beginning)
        ]
        found["events.json"] = json.dumps(mine[-200:], indent=2)
        return found
