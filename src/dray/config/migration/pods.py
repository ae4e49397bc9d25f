"""Reads the YAML of a pod or a Job, as guides of Kubernetes clusters have them."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dray.config.migration.found import (
    HANDLED,
    SECRET_NAME,
    SECRET_VALUE,
    Found,
    Gathering,
    Text,
    as_number,
)
from dray.errors import ConfigError
from dray.transport import kube_api
from dray.transport.kubectl import Kubectl

WHAT = "a pod's or a Job's YAML"
BESIDE: tuple[str, ...] = ()
# kubectl reads YAML without a cluster where it is to add a label to it.
READ = ("label", "--local", "--dry-run=client", "--output=json", "--filename=-", "dray/read=yes")
MARK = "dray/read"
BLANK = re.compile(r"\s*")

PLACEHOLDERS = ("your-username",)
GPU = "nvidia.com/gpu"
PATCH = "has no counterpart; what pods need can be in patch, as it is in Kubernetes"
SCHEDULERS = {"default-scheduler": "default", "kai-scheduler": "kai", "volcano": "volcano"}
LABELS = {
    "user": "user",
    "priority": "priority",
    "kueue.x-k8s.io/queue-name": "queue",
    "kueue.x-k8s.io/priority-class": "priority_class",
    "kai.scheduler/queue": "queue",
    "scheduling.volcano.sh/queue-name": "queue",
}
QUEUES = {"kueue.x-k8s.io": "kueue", "kai.scheduler": "kai", "scheduling.volcano.sh": "volcano"}
IDENTITY = {"runAsUser": "uid", "runAsGroup": "gid"}
# What the images of a guide are told about their user.
ACCOUNT = {
    "CLUSTER_USER": "user",
    "CLUSTER_USER_ID": "uid",
    "CLUSTER_GROUP_NAME": "group",
    "CLUSTER_GROUP_ID": "gid",
}
OWN = {
    **dict.fromkeys(
        ("restartPolicy", "backoffLimit", "completions", "parallelism", "completionMode", "name",
         "generateName", "ttlSecondsAfterFinished", "suspend", "podFailurePolicy", "runAsNonRoot",
         "allowPrivilegeEscalation", "seccompProfile", "automountServiceAccountToken"),
        HANDLED,
    ),
    "ports": "no port has to be declared",
    "workingDir": "a job starts in its code",
}  # fmt: skip
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9}


# Of a pod's spec: the setting, and its value.
FIELDS: Mapping[str, Callable[[Any], tuple[str, Any]]] = {
    "nodeSelector": lambda value: (
        "node_selector",
        {str(name): str(one) for name, one in table(value).items()},
    ),
    "imagePullSecrets": lambda value: (
        "pull_secrets",
        [str(table(one).get("name", "")) for one in rows(value)],
    ),
    "serviceAccountName": lambda value: ("service_account", str(value)),
    "priorityClassName": lambda value: ("priority_class", str(value)),
    "schedulerName": lambda value: ("scheduler", SCHEDULERS.get(str(value), str(value))),
    "terminationGracePeriodSeconds": lambda value: ("job.resume.grace", f"{value}s"),
    "activeDeadlineSeconds": lambda value: ("job.resources.time", f"{value}s"),
}


def recognises(text: Text) -> bool:
    kind = r'^[{ \t]*"?kind"?:[ \t]*"?(?:Pod|Job)"?[ \t]*(?:#.*|,.*)?$'
    return bool(re.search(kind, text.content, re.M) and "apiVersion" in text.content)


def read(text: Text, _: Mapping[str, Text]) -> Found:
    into = Gathering(text, PLACEHOLDERS, "kubernetes")
    chosen: dict[str, Any] = {}
    for one in documents(text):
        if one.get("kind") in ("Pod", "Job") and not chosen:
            chosen = one
        else:
            into.add_note(f"a further {one.get('kind')}", "only the first pod or Job is read")
    gather_metadata(table(chosen.get("metadata")), into)
    spec = table(chosen.get("spec"))
    if chosen.get("kind") == "Job":
        template = table(spec.pop("template", {}))
        for key in spec:
            gather_other(f"spec.{key}", key, into)
        gather_metadata(table(template.get("metadata")), into)
        spec = table(template.get("spec"))
    gather_spec(spec, into)
    return finished(into)


def finished(into: Gathering) -> Found:
    """Return what was found, named after its namespace."""
    namespace = str(into.cluster.get("namespace", ""))
    name = namespace.removeprefix("runai-") or "kubernetes"
    volumes = into.cluster.get("volumes", [])
    into.add_note("context", "the current one is used, whichever that is, until you name one here")
    if volumes and "root" not in into.cluster:
        into.add_note("root", "if others use the first volume too, name a folder of your own in it")
    return into.found()._replace(name=name, needs="volumes")


# -- reading ------------------------------------------------------------------------------------


def documents(text: Text) -> list[dict[str, Any]]:
    """Return the objects of a file. Nothing is sent anywhere: kubectl only reads it."""
    said = text.content
    if not said.lstrip().startswith("{"):
        code, out, complaint = kube_api.run(Kubectl(kubeconfig=os.devnull).argv(*READ), said)
        if code:
            last = complaint.strip().splitlines()[-1:] or ["it does not say why"]
            raise ConfigError(f"{text.path}: kubectl cannot read it: {last[0]}")
        said = out.decode("utf-8", "replace")
    try:
        found = list(objects_in(said))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{text.path}: this is no JSON: {error}") from None
    if not any(one.get("kind") in ("Pod", "Job") for one in found):
        raise ConfigError(f"{text.path}: there is no pod and no Job in it")
    return found


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that are written one behind the other."""
    decoder, text, at = json.JSONDecoder(), text.strip(), 0
    while at < len(text):
        found, end = decoder.raw_decode(text, at)
        at = BLANK.match(text, end).end()  # type: ignore[union-attr]
        yield from table_items(found) if table(found).get("kind") == "List" else [table(found)]


def table_items(found: Any) -> list[dict[str, Any]]:
    return [table(one) for one in rows(table(found).get("items"))]


def table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# -- gathering ----------------------------------------------------------------------------------


def gather_metadata(metadata: dict[str, Any], into: Gathering) -> None:
    if metadata.get("namespace"):
        into.set("namespace", metadata["namespace"], "namespace")
    for where in ("labels", "annotations"):
        others = {}
        for name, value in table(metadata.get(where)).items():
            if name == "gpu-fraction":
                into.set("job.resources.gpus", float_of(value), f"{name}: {value}")
            elif name in LABELS:
                into.set(LABELS[name], str(value), f"{name}: {value}")
                scheduler = QUEUES.get(name.partition("/")[0])
                if scheduler:
                    into.set("scheduler", scheduler, name)
            elif name != MARK:
                others[name] = str(value)
        if others:
            into.set(where, {**into.cluster.get(where, {}), **others}, where)


def gather_spec(spec: dict[str, Any], into: Gathering) -> None:
    containers = [table(one) for one in rows(spec.pop("containers", []))]
    volumes = {str(table(one).get("name")): table(one) for one in rows(spec.pop("volumes", []))}
    gather_identity(table(spec.pop("securityContext", {})), into)
    for key, value in spec.items():
        if key == "tolerations":
            gather_tolerations(rows(value), into)
        elif key in FIELDS:
            setting, converted = FIELDS[key](value)
            into.set(setting, converted, key)
        else:
            gather_other(key, key, into)
    for container in containers[:1]:
        gather_container(container, volumes, into)
    for container in containers[1:]:
        into.add_note(f"container {container.get('name')}", "a job has one container")


def gather_identity(context: dict[str, Any], into: Gathering) -> None:
    for key, value in context.items():
        if key in IDENTITY:
            into.set(IDENTITY[key], value, f"{key}: {value}")
        elif key == "supplementalGroups":
            into.set("groups", value, key)
        else:
            gather_other(f"securityContext.{key}", key, into)


def gather_tolerations(listed: list[Any], into: Gathering) -> None:
    found = []
    for one in map(table, listed):
        value = f"={one['value']}" if one.get("value") else ""
        effect = f":{one['effect']}" if one.get("effect") else ""
        if one.get("key"):
            found.append(f"{one['key']}{value}{effect}")
        else:
            into.add_note("toleration without a key", PATCH)
    if found:
        into.set("tolerations", found, "tolerations")


def gather_container(
    container: dict[str, Any], volumes: Mapping[str, Any], into: Gathering
) -> None:
    command = [str(one) for key in ("command", "args") for one in rows(container.pop(key, []))]
    if command:
        note_command(shlex.join(command), into)
    gather_identity(table(container.pop("securityContext", {})), into)
    gather_mounts(rows(container.pop("volumeMounts", [])), volumes, into)
    gather_environment(rows(container.pop("env", [])), into)
    resources = table(container.pop("resources", {}))
    wanted = {**table(resources.get("limits")), **table(resources.get("requests"))}
    for name, amount in wanted.items():
        gather_resource(name, str(amount), into)
    for key, value in container.items():
        if key == "image":
            into.set("image", str(value), f"image: {value}")
        else:
            gather_other(key, key, into)


def note_command(words: str, into: Gathering) -> None:
    is_secret = SECRET_NAME.search(words) or SECRET_VALUE.search(words)
    into.add_note("command" if is_secret else words, "it is the job's: dray run -- …")


def gather_mounts(mounts: list[Any], volumes: Mapping[str, Any], into: Gathering) -> None:
    found = []
    for mount in map(table, mounts):
        name, path = str(mount.get("name")), str(mount.get("mountPath", ""))
        volume = table(volumes.get(name))
        text = volume_text(volume, path)
        if table(volume.get("emptyDir")) and path == "/dev/shm":
            gather_shm(str(volume["emptyDir"].get("sizeLimit", "")), into)
        elif "emptyDir" in volume:
            into.add_note(f"{path} (emptyDir)", "a job has a folder of its own there: $TMPDIR")
        elif not text or mount.get("subPath"):
            into.add_note(f"{path} ({', '.join(sorted({*volume} - {'name'}))})", PATCH)
        else:
            found.append(text + (":ro" if mount.get("readOnly") else ""))
    if found:
        into.set("volumes", found, "volumes")


def volume_text(volume: Mapping[str, Any], path: str) -> str:
    """Write a volume as a setting; '' for one of a kind that has none."""
    claim, nfs, host = (
        table(volume.get(key)) for key in ("persistentVolumeClaim", "nfs", "hostPath")
    )
    if claim:
        return f"pvc:{claim.get('claimName')}:{path}"
    if nfs:
        return f"nfs:{nfs.get('server')}:{nfs.get('path')}:{path}"
    return f"host:{host.get('path')}:{path}" if host else ""


def gather_shm(limit: str, into: Gathering) -> None:
    size = size_of(limit)
    if size:
        into.set("shm", size, f"/dev/shm: {limit}")


def gather_environment(listed: list[Any], into: Gathering) -> None:
    variables: dict[str, str] = {}
    for one in map(table, listed):
        name, value = str(one.get("name", "")), one.get("value")
        if not isinstance(value, str):
            into.add_note(
                f"env {name}", "its value is not in the file: dray run --secret, or patch"
            )
        else:
            gather_variable(name, value, variables, into)
    if variables:
        into.set("job.env", variables, "env")


def gather_variable(name: str, value: str, variables: dict[str, str], into: Gathering) -> None:
    """Collect one variable: whose the files are, a secret, or one of the job's."""
    if name in ACCOUNT:
        key = ACCOUNT[name]
        known = key in into.cluster
        if not known:
            read = as_number(value) if key in ("uid", "gid") else value
            into.set(key, read, f"{name}: {value}")
    elif SECRET_NAME.search(name) or SECRET_VALUE.search(value):
        into.add_note(f"env {name}", f"if jobs need it, dray run --secret {name}")
    else:
        variables[name] = value


def gather_resource(name: str, amount: str, into: Gathering) -> None:
    origin = f"{name}: {amount}"
    if name == "cpu":
        number = float_of(amount.removesuffix("m")) / (1000 if amount.endswith("m") else 1)
        into.set("job.resources.cpus", max(math.ceil(number), 1), origin)
    elif name == "memory" and size_of(amount):
        into.set("job.resources.memory", size_of(amount), origin)
    elif name.endswith("/gpu") or "/mig-" in name:
        if name != GPU:
            into.set("gpu_resource", name, origin)
        into.set("job.resources.gpus", float_of(amount), origin)
    else:
        into.add_note(origin, PATCH)


def gather_other(origin: str, key: str, into: Gathering) -> None:
    into.add_note(origin, OWN.get(key, PATCH))


def float_of(text: object) -> float | int:
    """Read a number; 0 where it is none."""
    found = re.fullmatch(r"\d{1,9}(\.\d{1,9})?", str(text))
    number = float(found[0]) if found else 0.0
    return int(number) if number.is_integer() else number


def size_of(text: str) -> str:
    """Write an amount of memory as dray does; '' where it is none."""
    found = re.fullmatch(r"(\d{1,15})(Ki|Mi|Gi|Ti|k|M|G)?", text)
    if not found:
        return ""
    megabytes = math.ceil(int(found[1]) * UNITS.get(found[2] or "", 1) / 2**20)
    return f"{megabytes // 1024}G" if megabytes % 1024 == 0 else f"{megabytes}M"
