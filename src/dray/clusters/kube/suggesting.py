"""Settings for a new cluster, from the kubeconfig and from what the namespace shows.

Whatever it may not look at is left out: only the volumes have to be known.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dray.clusters.kube import schedulers
from dray.clusters.kube.api import Cluster
from dray.clusters.kube.looking import MOST_VERSIONS
from dray.clusters.kube.names import is_name, items_of, text_at, value_at
from dray.clusters.options import kubernetes as options
from dray.clusters.suggestion import Choice, Suggestion
from dray.errors import ClusterError
from dray.job.options import shared
from dray.records import NamedTuple
from dray.transport import kube_api, kubectl
from dray.transport.kubectl import Kubectl

MOST_NODES = 500  # that are looked at for their GPUs
MOST_PODS = 200  # that are looked at for where they mount a claim
ENFORCED = "pod-security.kubernetes.io/enforce"
UID_RANGE = "openshift.io/sa.scc.uid-range"  # such as 1000620000/10000
ORDINARY_UID = 1000
BY_GROUP = {group: name for name, (group, _) in schedulers.GROUPS.items()}
QUEUES = {"kueue": "localqueues", "kai": "queues"}  # what lists them
VOLUME_ADVICE = "pvc:CLAIM:/path or nfs:SERVER:/export:/path, on which all your pods can write"


class Context(NamedTuple):
    name: str
    namespace: str


# -- pure ---------------------------------------------------------------------------------------


def contexts_of(view: Mapping[str, Any]) -> list[Context]:
    """Return the contexts of a kubeconfig, the current one first."""
    listed = view.get("contexts")
    found = [
        Context(text_at(one, "name"), text_at(one, "context", "namespace") or "default")
        for one in (listed if isinstance(listed, list) else ())
    ]
    return sorted(found, key=lambda one: one.name != text_at(view, "current-context"))


def writable_claims(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the claims that can hold jobs: those that pods on several nodes can write to, or else
    those of one node."""
    listed = {
        text_at(one, "metadata", "name"): value_at(one, "spec", "accessModes")
        for one in claims
        if text_at(one, "status", "phase") != "Lost"
    }
    modes = {
        name: known for name, known in listed.items() if isinstance(known, list) and is_name(name)
    }
    shared = [name for name, known in modes.items() if "ReadWriteMany" in known]
    return shared or [name for name, known in modes.items() if "ReadWriteOnce" in known]


def mount_paths(pods: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return where pods of the namespace mount each claim: most of them."""
    seen: dict[str, Counter[str]] = {}
    for pod in pods:
        volumes = value_at(pod, "spec", "volumes")
        claims = {
            text_at(one, "name"): text_at(one, "persistentVolumeClaim", "claimName")
            for one in (volumes if isinstance(volumes, list) else ())
        }
        for name, path in mounts_of(pod):
            if claims.get(name) and is_plain(path):
                seen.setdefault(claims[name], Counter())[path] += 1
    return {claim: paths.most_common(1)[0][0] for claim, paths in seen.items()}


def mounts_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    containers = value_at(pod, "spec", "containers")
    for container in containers if isinstance(containers, list) else ():
        mounts = value_at(container, "volumeMounts")
        for one in mounts if isinstance(mounts, list) else ():
            if not text_at(one, "subPath"):
                yield text_at(one, "name"), text_at(one, "mountPath")


def is_plain(path: str) -> bool:
    """Return whether a path can be written as a volume's: with no sign that has a meaning there."""
    return path.startswith("/") and len(path) > 1 and not any(sign in path for sign in ":$\\\0\n")


def volume_text(claim: str, paths: Mapping[str, str]) -> str:
    return f"pvc:{claim}:{paths.get(claim) or f'/{claim}'}"


def leaf_queues(queues: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the queues that jobs can be put into: those that no other one is below."""
    above = {text_at(one, "spec", "parentQueue") for one in queues}
    there = (text_at(one, "metadata", "name") for one in queues)
    return [name for name in there if name not in above and is_name(name)]


def user_id(namespace: Mapping[str, Any], own: int) -> int | None:
    """Return the user id that pods need where the namespace forbids root; ``own``: that of the user
    on this machine."""
    lowest = text_at(namespace, "metadata", "annotations", UID_RANGE).partition("/")[0]
    if re.fullmatch("[0-9]{1,10}", lowest):
        return int(lowest)
    if text_at(namespace, "metadata", "labels", ENFORCED) == "restricted":
        return own or ORDINARY_UID
    return None


def gpu_resources(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what stands for a GPU on these nodes."""
    names = {
        name
        for one in nodes
        if isinstance(have := value_at(one, "status", "allocatable"), dict)
        for name, amount in have.items()
        if (name.endswith("/gpu") or "/mig-" in name) and str(amount) != "0"
    }
    return sorted(names)


# -- acting -------------------------------------------------------------------------------------


def suggest(settings: Mapping[str, Any], *, asks: bool) -> Suggestion:
    """Find out what is missing; ``asks``: the cluster, too, not only the kubeconfig."""
    known = shared.KUBECONFIG.of(settings)
    given = Kubectl(kubeconfig=os.path.expanduser(known) if known else "")
    found = Gathered(settings)
    if not find_context(given, found):
        return found.suggestion()
    if not asks:
        if "volumes" not in found.all:
            found.choose(Choice("volumes", "jobs need a volume", advice=VOLUME_ADVICE))
        return found.suggestion()
    way = Kubectl(found.all["namespace"], found.all.get("context", ""), given.kubeconfig)
    cluster = Cluster(kube_api.Api(way))
    find_volumes(cluster, found)
    find_queue(cluster, found)
    find_user(cluster, found)
    find_gpus(cluster, found)
    return found.suggestion()


class Gathered:
    """Collects settings that are not given."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.new: dict[str, Any] = {}
        self.remarks: list[str] = []
        self.choices: list[Choice] = []

    @property
    def all(self) -> dict[str, Any]:
        return {**self.new, **self.given}

    def set(self, name: str, value: Any, why: str) -> None:
        if name not in self.given:
            self.new[name] = value
            shown = ", ".join(value) if isinstance(value, list) else value
            self.remarks.append(f"{name}: {shown} ({why})")

    def choose(self, choice: Choice) -> None:
        self.choices.append(choice)

    def suggestion(self) -> Suggestion:
        return Suggestion(self.new, tuple(self.remarks), tuple(self.choices))


def find_context(way: Kubectl, found: Gathered) -> bool:
    """Choose context and namespace; return whether they are known now. They are written down, so
    that another current context does not send jobs elsewhere."""
    code, said, complaint = kube_api.run(way.argv("config", "view", "--output=json"))
    if code:
        raise kubectl.explain(complaint)
    contexts = contexts_of(json.loads(said))
    own_file = os.environ.get("KUBECONFIG", "")
    if own_file and os.pathsep not in own_file:
        found.set("kubeconfig", os.path.abspath(own_file), "$KUBECONFIG")
    if not contexts:
        if os.environ.get("KUBERNETES_SERVICE_HOST"):  # in a pod: kubectl uses its account
            found.set("namespace", Cluster(kube_api.Api(way)).namespace, "that of this pod")
            return True
        raise ClusterError(
            "kubectl knows no cluster",
            hint="Put the file that your admins gave you at ~/.kube/config, or name it with "
            "--kubeconfig.",
        )
    wanted = shared.CONTEXT.of(found.given)
    by_name = {one.name: one for one in contexts}
    if wanted and wanted not in by_name:
        raise ClusterError(
            f"the kubeconfig has no context '{wanted}'",
            hint=f"It has {', '.join(by_name)}.",
        )
    current = text_at(json.loads(said), "current-context")
    if not wanted and current not in by_name and len(contexts) > 1:
        found.choose(Choice("context", "no context is the current one", tuple(by_name)))
        return False
    chosen = by_name.get(wanted or current, contexts[0])
    found.set("context", chosen.name, "the current one" if current else "the only one")
    found.set("namespace", chosen.namespace, "that of the context")
    return True


def find_volumes(cluster: Cluster, found: Gathered) -> None:
    if "volumes" in found.given:
        return
    namespace = cluster.namespace
    reply = cluster.api.get(f"{cluster.core}/persistentvolumeclaims")
    claims = writable_claims(items_of(reply.record))
    if not claims:
        why = f"namespace {namespace} has no claim that pods can write to"
        if not reply.ok:
            why = f"you may not list the claims of namespace {namespace}"
        found.choose(Choice("volumes", why, advice=VOLUME_ADVICE))
        return
    pods = cluster.api.get(f"{cluster.core}/pods?limit={MOST_PODS}")
    texts = [volume_text(one, mount_paths(items_of(pods.record))) for one in claims]
    if len(texts) == 1:
        found.set("volumes", texts, f"the only claim of namespace {namespace}")
        return
    why = f"namespace {namespace} has {len(texts)} claims"
    advice = "Jobs and code go into the first one that you name."
    found.choose(Choice("volumes", why, tuple(texts), advice))


def find_queue(cluster: Cluster, found: Gathered) -> None:
    chosen = options.SCHEDULER.of(found.given)
    if "queue" in found.given or chosen not in ("auto", *QUEUES):
        return
    for scheduler, listed in queues_there(cluster):
        if chosen not in ("auto", scheduler) or not listed:
            continue
        found.set("scheduler", scheduler, "found there")
        if len(listed) == 1:
            found.set("queue", listed[0], "the only one")
            return
        why = f"{scheduler} has {len(listed)} queues"
        advice = "Or --scheduler default, to go past them."
        found.choose(Choice("queue", why, tuple(listed), advice))
        return


def queues_there(cluster: Cluster) -> Iterator[tuple[str, list[str]]]:
    listed = value_at(cluster.api.get("/apis").record, "groups")
    groups = {text_at(one, "name"): one for one in (listed if isinstance(listed, list) else ())}
    for name, scheduler in BY_GROUP.items():
        versions = value_at(groups.get(name), "versions")
        if scheduler not in QUEUES or not isinstance(versions, list):
            continue
        where = f"/namespaces/{cluster.namespace}" if scheduler == "kueue" else ""
        known = filter(is_name, (text_at(one, "version") for one in versions[:MOST_VERSIONS]))
        for version in known:
            reply = cluster.api.get(f"/apis/{name}/{version}{where}/{QUEUES[scheduler]}")
            if reply.ok:
                yield scheduler, leaf_queues(items_of(reply.record))
                break


def find_user(cluster: Cluster, found: Gathered) -> None:
    namespace = cluster.api.get(f"/api/v1/namespaces/{cluster.namespace}").record
    uid = user_id(namespace, os.getuid())
    if uid is not None:
        why = "the namespace forbids root; if the volume is somebody else's, choose with --uid"
        found.set("uid", uid, why)


def find_gpus(cluster: Cluster, found: Gathered) -> None:
    nodes = cluster.api.get(f"/api/v1/nodes?limit={MOST_NODES}")
    there = gpu_resources(items_of(nodes.record))
    if there and options.GPU_RESOURCE.default not in there:
        found.set("gpu_resource", there[0], "what its nodes have")
