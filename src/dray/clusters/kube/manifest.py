"""The objects that dray creates: a Job for each job, its Secret, and the helper. Pure.

A job is an Indexed Job of which one pod runs at a time, or one for each node. A pod that is taken
away fails its index, and the next index starts at once: the controller's growing back-off is for
one index only, so a job that is interrupted often loses nothing to it. So an index is no rank: pods
agree on their ranks themselves. One success ends the Job (``successPolicy``), and so do the exit
codes by which the supervisor says that the job has ended (``FailJob``). Nothing of the user's
command is in it: that is in job.json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.kube import names, volumes
from dray.clusters.kube.carrying import NODE
from dray.clusters.options import kubernetes as options
from dray.job.model import JobSpec
from dray.node.schedulers import gathered
from dray.node.schedulers import kubernetes as pod
from dray.programs import shipping
from dray.records import NamedTuple

Object = dict[str, Any]

PYTHON = "@PYTHON@"  # stands for the words that start dray's Python: the helper knows them
PODS = 1000  # that one node of a job may use up, one after another
MOST_PODS = 100_000  # completions that the API takes of a Job whose failed indexes are counted
CONTAINER = "job"
MOST_WORDS, LONGEST_WORD = 10, 4096  # of what starts dray's Python
SECRETS = "/dray/secrets"
SECRET_MOUNT = {"name": "secrets", "mountPath": SECRETS, "readOnly": True}
SCRATCH = "/dray/scratch"
# Of a container that never got to start what it was given: wrong machine, nothing there.
NOT_STARTED = (126, 127, 128)
CLOSING = 20  # seconds beyond the grace of the command, for what dray writes down
KEPT = 86400  # seconds for which an ended Job is kept
KEPT_WITH_SECRETS = 600
NO_GPUS = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "value": "void",
}  # else CUDA images see all of a node's
UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Of the helper. A tenth of a CPU suffices while nothing is asked; with no more than that, an answer
# takes seconds.
AGENT_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
AGENT_LIMITS = {"cpu": "2", "memory": "256Mi"}
IDLE_SECONDS = 900
IDLE_SECONDS_ON_ONE_NODE = 30  # a job may wait for the volume on another one

# The helper's first process: it ends when nobody has been connected for a while.
WAITING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
busy = time.monotonic()
while time.monotonic() - busy < {idle}:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    if any(one.isdigit() and one != "1" for one in os.listdir("/proc")):
        busy = time.monotonic()
    time.sleep(5)
"""


class Place(NamedTuple):
    """Where the objects go, and whose they are."""

    namespace: str
    root: str
    user: str
    scheduler: str = "default"  # what starts pods there, as found out
    queue: str = ""
    versions: Mapping[str, str] = {}  # of the APIs that are served beside Kubernetes
    limits_cpu: bool = False  # a quota demands limits
    one_node: bool = False  # the volume can be on one node at a time
    machine: str = ""  # the architecture of dray's own Python there, as Kubernetes calls it


def job_manifest(
    job: JobSpec, settings: Mapping[str, Any], place: Place, *, index: int | None = None
) -> Object:
    """Describe the Job of a job; ``index``: of one in an array, whose directory it starts from."""
    job_id = job.id if index is None else f"{job.id}.{index}"
    name = names.job_name(job_id, job.resumed_after)
    labels = labels_of(settings, place) | {names.JOB: job_id}
    folder = f"{place.root}/{'jobs' if index is None else 'arrays'}/{job.id}"
    metadata = {
        "name": name,
        "labels": labels | queue_labels(settings, place),
        "annotations": {names.CREATED: f"{job.created!r}"},
    }
    kept = KEPT_WITH_SECRETS if job.secrets else KEPT
    spec = {
        "completionMode": "Indexed",
        "completions": completions(job),
        "parallelism": job.resources.nodes,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": completions(job),
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "podFailurePolicy": failure_policy(),
        "ttlSecondsAfterFinished": kept,
        "template": {
            "metadata": pod_metadata(job, settings, place, labels),
            "spec": merged(pod_spec(job, settings, place, folder, name, index), settings),
        },
    }
    if place.scheduler == "kueue" and options.QUEUE.of(settings):
        spec["suspend"] = True  # Kueue would do that as well; of a namespace's default, it does
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def completions(job: JobSpec) -> int:
    return min(PODS * job.resources.nodes, MOST_PODS)


def failure_policy() -> Object:
    final = [code for code in (*gathered.CODES.values(), gathered.OWN_FAULT, *NOT_STARTED) if code]
    by_us = {"containerName": CONTAINER, "operator": "In", "values": sorted(final)}
    return {"rules": [{"action": "FailJob", "onExitCodes": by_us}]}


def pod_spec(
    job: JobSpec,
    settings: Mapping[str, Any],
    place: Place,
    folder: str,
    secret: str,
    index: int | None,
) -> Object:
    known = volumes.of(settings)
    described = [one.described(f"volume-{n}") for n, one in enumerate(known)]
    mounts = [one.mount(f"volume-{n}") for n, one in enumerate(known)]
    described.append({"name": "scratch", "emptyDir": {}})
    mounts.append({"name": "scratch", "mountPath": SCRATCH})
    described.append({"name": "shm", "emptyDir": shared_memory(job, settings)})
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if job.secrets:
        described.append(secret_volume(secret))
        mounts.append(SECRET_MOUNT)
    container = {
        "name": CONTAINER,
        "image": image_of(job, settings),
        "command": pod_command(folder),
        "workingDir": "/",
        "env": variables(job, settings, place, index),
        "resources": resources(job, settings, place),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    selector = node_selector(job, settings, place)
    return {
        **common_spec(settings),
        **scheduling(settings, place),
        "terminationGracePeriodSeconds": math.ceil(job.resume.grace) + CLOSING,
        **({"nodeSelector": selector} if selector else {}),
        **(beside({names.JOB: "Exists"}, place) if place.one_node else {}),
        "tolerations": tolerations(settings),
        "containers": [container],
        "volumes": described,
    }


def beside(more: Mapping[str, str], place: Place) -> Object:
    """Keep a pod to the node of those that use the same root. The first of them goes anywhere:
    Kubernetes makes that exception for a pod which its own rule is about."""
    terms = [{"key": key, "operator": operator} for key, operator in more.items()]
    chosen = {
        "matchLabels": {names.ROOT: names.root_label(place.root, place.user)},
        **({"matchExpressions": terms} if terms else {}),
    }
    rule = {"labelSelector": chosen, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}


def pod_command(folder: str) -> list[str]:
    root = folder.rsplit("/", 2)[0]
    return [PYTHON, "-I", "-S", f"{root}/node/{shipping.name()}", "pod", folder]


def secret_volume(name: str) -> Object:
    return {"name": "secrets", "secret": {"secretName": name, "defaultMode": 0o444}}


def carrying(manifest: Object) -> Object:
    """Let a Job bring its own submission along, in its Secret: see kube.carrying."""
    filled: Object = json.loads(json.dumps(manifest))
    filled["metadata"]["annotations"][names.CARRIED] = "true"
    spec = filled["spec"]["template"]["spec"]
    container = spec["containers"][0]
    folder = container["command"][-1]
    node = f"{SECRETS}/{NODE}"
    container["command"] = [PYTHON, "-I", "-S", node, "carried", SECRETS, folder]
    if all(one["name"] != SECRET_MOUNT["name"] for one in spec["volumes"]):
        spec["volumes"].append(secret_volume(filled["metadata"]["name"]))
        container["volumeMounts"].append(SECRET_MOUNT)
    return filled


def with_python(manifest: Object, words: Sequence[str]) -> Object:
    """Fill in the words that start dray's Python there."""
    filled: Object = json.loads(json.dumps(manifest))
    container = filled["spec"]["template"]["spec"]["containers"][0]
    own = [one for one in container["command"] if one != PYTHON]
    container["command"] = [*words, *own]
    return filled


def python_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the words that start dray's Python in a job's pod; none where it is no such pod."""
    containers = names.value_at(pod, "spec", "containers")
    first = containers[0] if isinstance(containers, list) and containers else None
    command = names.value_at(first, "command")
    if names.text_at(first, "name") != CONTAINER or not isinstance(command, list):
        return []
    words = command[: command.index("-I")] if "-I" in command else []
    return words if len(words) <= MOST_WORDS and all(map(is_word, words)) else []


def is_word(value: object) -> bool:
    """Return whether this can be a word of a command: the API server says so, and kubectl is given
    it."""
    return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_WORD


def image_of(job: JobSpec, settings: Mapping[str, Any]) -> str:
    return str(job.container.image if job.container else options.IMAGE.of(settings))


def common_spec(settings: Mapping[str, Any]) -> Object:
    """Describe what all pods have in common: whose they are, and what they may do."""
    uid, gid = options.UID.of(settings), options.GID.of(settings)
    identity: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if uid is not None:
        identity |= {"runAsUser": uid, "runAsNonRoot": uid != 0}
    if gid is not None:
        identity["runAsGroup"] = gid
    if options.GROUPS.of(settings):
        identity["supplementalGroups"] = list(options.GROUPS.of(settings))
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": identity,
    }
    if options.PULL_SECRETS.of(settings):
        spec["imagePullSecrets"] = [{"name": one} for one in options.PULL_SECRETS.of(settings)]
    if options.SERVICE_ACCOUNT.of(settings):
        spec["serviceAccountName"] = options.SERVICE_ACCOUNT.of(settings)
    return spec


def scheduling(settings: Mapping[str, Any], place: Place) -> Object:
    spec: Object = {}
    if place.scheduler in ("kai", "volcano"):
        spec["schedulerName"] = {"kai": "kai-scheduler", "volcano": "volcano"}[place.scheduler]
    chosen = options.PRIORITY_CLASS.of(settings)
    if chosen and place.scheduler not in ("kueue", "kai"):
        spec["priorityClassName"] = chosen
    return spec


def queue_labels(settings: Mapping[str, Any], place: Place) -> dict[str, str]:
    """Return the labels by which Kueue and KAI know whose turn it is."""
    queue, chosen = options.QUEUE.of(settings), options.PRIORITY_CLASS.of(settings)
    labels = {}
    if place.scheduler == "kueue":
        labels["kueue.x-k8s.io/queue-name"] = queue
        labels["kueue.x-k8s.io/priority-class"] = chosen
    if place.scheduler == "kai":
        labels["kai.scheduler/queue"] = queue
        labels["priorityClassName"] = chosen
    return {name: value for name, value in labels.items() if value}


def pod_metadata(
    job: JobSpec, settings: Mapping[str, Any], place: Place, labels: Mapping[str, str]
) -> Object:
    annotations = dict(options.ANNOTATIONS.of(settings) or {})
    queue = options.QUEUE.of(settings)
    if place.scheduler == "volcano" and queue:
        annotations["scheduling.volcano.sh/queue-name"] = queue
    if place.scheduler == "kai" and job.resources.gpus % 1:
        annotations["gpu-fraction"] = f"{job.resources.gpus:g}"
    more = queue_labels(settings, place) if place.scheduler == "kai" else {}
    metadata: Object = {"labels": {**labels, **more}}
    return metadata | ({"annotations": annotations} if annotations else {})


def labels_of(settings: Mapping[str, Any], place: Place) -> dict[str, str]:
    """Return the labels of everything that is created."""
    own = {
        **names.MANAGED,
        names.ROOT: names.root_label(place.root, place.user),
        "user": names.label_value(place.user),
    }
    if options.PRIORITY.of(settings):
        own["priority"] = options.PRIORITY.of(settings)
    return {**(options.LABELS.of(settings) or {}), **own}


def resources(job: JobSpec, settings: Mapping[str, Any], place: Place) -> Object:
    wanted = job.resources
    requests: Object = {"cpu": str(wanted.cpus)}
    limits: Object = {"cpu": str(wanted.cpus)} if place.limits_cpu else {}
    if wanted.memory:
        requests["memory"] = limits["memory"] = str(wanted.memory)
    if wanted.gpus and not wanted.gpus % 1:
        resource = options.GPU_RESOURCE.of(settings)
        requests[resource] = limits[resource] = str(int(wanted.gpus))
    return {"requests": requests, **({"limits": limits} if limits else {})}


def shared_memory(job: JobSpec, settings: Mapping[str, Any]) -> Object:
    size = options.SHM.of(settings) or (job.resources.memory or 0) // 2
    return {"medium": "Memory", **({"sizeLimit": str(size)} if size else {})}


def variables(
    job: JobSpec, settings: Mapping[str, Any], place: Place, index: int | None
) -> list[Object]:
    """Return the variables of the supervisor; the command's own are in job.json, apart from those
    by which an image knows whose cluster it is on."""
    found: list[Object] = [
        {"name": "TMPDIR", "value": SCRATCH},
        # Its host's name may be that of the node, which has more pods (hostNetwork).
        {"name": gathered.NODE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    if job.secrets:
        found.append({"name": pod.SECRETS, "value": SECRETS})
    if index is not None:
        found.append({"name": gathered.INDEX, "value": str(index)})
    if job.launch != "none":
        source = {"fieldRef": {"fieldPath": "status.podIP"}}
        found.append({"name": gathered.ADDRESS, "valueFrom": source})
    if not job.resources.gpus:
        found.append(NO_GPUS)
    return [*found, *account(settings, place)]


def account(settings: Mapping[str, Any], place: Place) -> list[Object]:
    """Return the variables from which images set up an account of the user."""
    known = {
        "CLUSTER_USER": place.user,
        "CLUSTER_USER_ID": options.UID.of(settings),
        "CLUSTER_GROUP_NAME": options.GROUP.of(settings),
        "CLUSTER_GROUP_ID": options.GID.of(settings),
    }
    return [{"name": name, "value": str(one)} for name, one in known.items() if one is not None]


def node_selector(job: JobSpec, settings: Mapping[str, Any], place: Place) -> dict[str, str]:
    selector = dict(options.NODE_SELECTOR.of(settings) or {})
    if job.resources.gpu_type:
        selector[options.GPU_TYPE_LABEL.of(settings)] = job.resources.gpu_type
    if place.machine:
        selector.setdefault("kubernetes.io/arch", place.machine)
    return selector


def tolerations(settings: Mapping[str, Any]) -> list[Object]:
    seconds = math.ceil(options.NODE_LOSS.of(settings))
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in UNREACHABLE
    ]
    return [*map(toleration, options.TOLERATIONS.of(settings)), *lost]


def toleration(text: str) -> Object:
    """Read KEY[=VALUE][:EFFECT]."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    found: Object = {"key": key, "operator": "Equal" if equals else "Exists"}
    found |= {"value": value} if equals else {}
    return found | ({"effect": effect} if effect else {})


def merged(spec: Object, settings: Mapping[str, Any]) -> Object:
    """Merge the patch of the settings into a pod's spec."""
    return merge(spec, options.PATCH.of(settings) or {})


def merge(into: Object, change: Mapping[str, Any]) -> Object:
    """Merge two objects as a strategic patch does: tables by key, named lists by name, and the rest
    replaced."""
    found = dict(into)
    for key, value in change.items():
        old = found.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            found[key] = merge(old, value)
        elif isinstance(old, list) and is_named(old) and is_named(value):
            by_name = {one["name"]: one for one in old}
            for one in value:
                by_name[one["name"]] = merge(by_name.get(one["name"], {}), one)
            found[key] = list(by_name.values())
        else:
            found[key] = value
    return found


def is_named(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value)


# -- beside the Job -------------------------------------------------------------------------------


def secret_manifest(
    name: str, secrets: Mapping[str, bytes], owner: Mapping[str, Any], labels: Mapping[str, str]
) -> Object:
    """Describe the Secret of a job, which is removed with its Job."""
    import base64  # only for jobs with secrets

    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(labels), "ownerReferences": [dict(owner)]},
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in secrets.items()},
    }


def owner_of(job: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": names.text_at(job, "metadata", "name"),
        "uid": names.text_at(job, "metadata", "uid"),
    }


def helper_priority(settings: Mapping[str, Any], place: Place) -> Object:
    """Return the priority class of the helper, which waits in no queue: those of Kueue and KAI are
    of their queues, and a pod that names one which Kubernetes does not know is refused."""
    return {} if place.scheduler in ("kueue", "kai") else scheduling(settings, Place("", "", ""))


def helper_manifest(settings: Mapping[str, Any], place: Place) -> Object:
    """Describe the helper: a pod on the same volumes in which the agent is started."""
    known = volumes.of(settings)
    labels = labels_of(settings, place)
    idle = IDLE_SECONDS_ON_ONE_NODE if place.one_node else IDLE_SECONDS
    python = re.sub(r"\n+", "\n", WAITING).strip().format(idle=idle)
    container = {
        "name": "agent",
        "image": options.AGENT_IMAGE.of(settings),
        "command": ["python3", "-I", "-S", "-c", python],
        "workingDir": "/",
        "env": [{"name": "HOME", "value": SCRATCH}, {"name": "TMPDIR", "value": SCRATCH}],
        "resources": {"requests": AGENT_REQUESTS, "limits": AGENT_LIMITS},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            *(one.mount(f"volume-{n}") for n, one in enumerate(known)),
            {"name": "scratch", "mountPath": SCRATCH},
        ],
    }
    selector = dict(options.NODE_SELECTOR.of(settings) or {})
    spec = {
        **common_spec(settings),
        **helper_priority(settings, place),
        **(beside({}, place) if place.one_node else {}),
        **({"nodeSelector": selector} if selector else {}),
        "terminationGracePeriodSeconds": 5,
        "tolerations": tolerations(settings),
        "containers": [container],
        "volumes": [
            *(one.described(f"volume-{n}") for n, one in enumerate(known)),
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": names.helper_name(place.root, place.user), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 0,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
