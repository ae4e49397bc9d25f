"""What an API server tells of GPUs, of pods that have or want them, and of quotas."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dray.clusters.kube import kueue, listing, names
from dray.clusters.kube.api import Cluster, quantity
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.names import items_of, text_at, value_at
from dray.clusters.kube.queue import TOO_LARGE, waiting_reason
from dray.clusters.options import kubernetes as options
from dray.clusters.queues import explaining
from dray.job.model import JobView
from dray.job.situation import Allowance, Explanation, Limit, Pool, QueueEntry, QueueView, Reason
from dray.records import NamedTuple

OVER = ("Succeeded", "Failed")
NOT_OVER = "fieldSelector=" + "%2C".join(f"status.phase!%3D{one}" for one in OVER)
OWNERS = ("user", "owner", "app.kubernetes.io/created-by")
OTHERS = "pods of other namespaces are not shown to you: more GPUs may be in use"
NOT_ALL = "the API server did not list all {what}: what is counted is of the first {count:,}"
MOST_EVENTS = 200
NO_NODES = "nodes are not shown to you: the quota is taken for what there is"
ASK_LESS = "Ask for less, unless the cluster adds larger nodes by itself."


# -- pure ---------------------------------------------------------------------------------------


class NodeGpus(NamedTuple):
    """A node that has GPUs."""

    name: str
    product: str
    gpus: int
    is_cordoned: bool


def in_order(found: Iterable[QueueEntry]) -> list[QueueEntry]:
    """Sort what has or wants GPUs: by priority, then by age."""
    return sorted(found, key=lambda one: (not one.is_waiting, -one.priority, one.submitted or 0))


def entry_of(pod: Mapping[str, Any], gpu: str, me: str) -> QueueEntry | None:
    """Read a pod that has or wants GPUs, or is dray's."""
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


def node_of(node: Mapping[str, Any], gpu: str) -> NodeGpus | None:
    """Read a node that has GPUs."""
    total = quantity(text_at(node, "status", "allocatable", gpu))
    if not total:
        return None
    product = text_at(node, "metadata", "labels", f"{gpu}.product")
    is_cordoned = value_at(node, "spec", "unschedulable") is True
    return NodeGpus(text_at(node, "metadata", "name"), product, total, is_cordoned)


def pools(nodes: Iterable[NodeGpus], pods: Iterable[QueueEntry]) -> list[Pool]:
    """Count the GPUs of each product, less what the pods that are seen have."""
    used: dict[str, float] = {}
    for pod in pods:
        used[pod.nodes] = used.get(pod.nodes, 0) + pod.gpus
    found: dict[str, Pool] = {}
    for node in nodes:
        kind = node.product
        pool = found.get(kind, Pool(kind, 0, 0, 0))
        if node.is_cordoned:
            found[kind] = pool._replace(down=pool.down + node.gpus)
            continue
        free = max(node.gpus - used.get(node.name, 0), 0)
        total = pool.total + node.gpus
        found[kind] = Pool(kind, pool.free + free, total, pool.nodes + 1, pool.down)
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


def lacking(what: str, listed: listing.Listed[Any]) -> list[str]:
    """Say that a list was not given to its end."""
    count = len(listed.things)
    return [] if listed.is_whole else [NOT_ALL.format(what=what, count=count)]


# -- asking -------------------------------------------------------------------------------------


class KubernetesSituation:
    def __init__(self, kube: Cluster, settings: Mapping[str, Any], place: Place) -> None:
        self.kube = kube
        self.place = place
        self.gpu = str(options.GPU_RESOURCE.of(settings))

    def _pods(self, me: str) -> tuple[list[QueueEntry], list[str]]:
        """Return everybody's pods, or those of the namespace where one may not see others."""

        def keep(pod: Mapping[str, Any]) -> QueueEntry | None:
            return entry_of(pod, self.gpu, me)

        listed = listing.read(self.kube.api, "/api/v1/pods", keep, NOT_OVER)
        remarks = [] if listed.ok else [OTHERS]
        if not listed.ok:
            listed = listing.read(self.kube.api, f"{self.kube.core}/pods", keep, NOT_OVER)
        return in_order(listed.things), [*remarks, *lacking("pods", listed)]

    def view(self) -> QueueView:
        me = names.label_value(self.place.user)
        pods, remarks = self._pods(me)
        nodes = listing.read(self.kube.api, "/api/v1/nodes", lambda one: node_of(one, self.gpu))
        found = pools(nodes.things, pods) if nodes.ok else self._quota_pools()
        remarks += lacking("nodes", nodes) if nodes.ok else [NO_NODES]
        return QueueView(
            entries=tuple(pods),
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
        beginning = names.job_name(job_id)

        def keep(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
            about = text_at(event, "involvedObject", "name")
            return event if about.startswith(beginning) else None

        events = listing.read(self.kube.api, f"{self.kube.core}/events", keep)
        found["events.json"] = json.dumps(events.things[-MOST_EVENTS:], indent=2)
        return found
