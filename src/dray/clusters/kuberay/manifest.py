"""The objects of Kubernetes that make a Ray cluster. Pure: what `dray cluster up` would create is a
value.

    RayCluster NAME       KubeRay's operator makes the pods, the head's Service and the token of it
    Job NAME-timer        of no pods: it ends when its time is up, and all it owns ends with it
    …       NAME-mlflow   a claim, a Deployment and a Service
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dray.clusters.kube.names import MANAGED
from dray.clusters.kube.volumes import Volume
from dray.clusters.kuberay.state import QUEUE_LABEL
from dray.errors import UsageError
from dray.records import NamedTuple
from dray.transport.kuberay_api import VERSION

Object = dict[str, Any]

CLUSTER = "dray/cluster"  # the label of all that belongs to a cluster that dray has made
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
# Of an image of Ray's own, the version is in its tag.
RAY_IMAGE = re.compile(r"(?:^|/)ray(?:-ml|-llm)?:(\d+\.\d+\.\d+)(?![\d.])")
OLDEST_WITH_TOKEN = (2, 52)
GROUP_NAME = "workers"
CLAIM = "PersistentVolumeClaim"
# Ray fails what waits longer for GPUs, which is nothing of dray's own: a year.
START_TIMEOUT = "31536000"
MLFLOW_PORT = 5000
MLFLOW_FOLDER = "/mlflow"
MLFLOW_MEMORY = "4Gi"


class Wish(NamedTuple):
    """What a Ray cluster is to be; sizes are in bytes."""

    name: str
    namespace: str
    image: str
    ray_version: str
    workers: int = 1
    gpus: int = 1
    cpus: int = 8
    memory: int = 16 << 30
    head_cpus: int = 2
    head_memory: int = 8 << 30
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = {}
    volumes: tuple[Volume, ...] = ()
    queue: str = ""
    pull_secrets: tuple[str, ...] = ()
    mlflow_image: str = ""  # '' for no MLflow
    mlflow_size: int = 10 << 30
    seconds: int = 0  # after which it is removed; 0 for never

    @property
    def timer(self) -> str:
        return f"{self.name}-timer"

    @property
    def mlflow(self) -> str:
        return f"{self.name}-mlflow"

    @property
    def mlflow_uri(self) -> str:
        return f"http://{self.mlflow}:{MLFLOW_PORT}"


def version_of(image: str, told: str = "") -> str:
    """Return the version of Ray in an image: KubeRay has to be told, where Ray asks for a token."""
    found = RAY_IMAGE.search(image)
    version = told or (found[1] if found else "")
    if not version:
        raise UsageError(
            f"the version of Ray in {image} is not known",
            hint="Write --ray-version: 'docker run --rm IMAGE ray --version' prints it.",
        )
    numbers = re.fullmatch(r"(\d{1,4})\.(\d{1,4})\.\d{1,4}", version)
    if numbers is None:
        raise UsageError(f"--ray-version {version}: write it as 2.60.0")
    if (int(numbers[1]), int(numbers[2])) < OLDEST_WITH_TOKEN:
        raise UsageError(
            f"Ray {version} knows no token: whoever reached its port would run programs there",
            hint="Use an image with Ray 2.52 or newer.",
        )
    return version


def require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot be a RayCluster's name",
            hint="It is of at most 40 small letters, digits and '-', and begins with a letter.",
        )


def objects_of(wish: Wish) -> list[Object]:
    """Return all objects, in the order in which they are created."""
    made = [timer(wish)] if wish.seconds else []
    made.append(ray_cluster(wish))
    return [*made, *(mlflow_objects(wish) if wish.mlflow_image else ())]


def labels_of(wish: Wish) -> dict[str, str]:
    return {**MANAGED, CLUSTER: wish.name}


def described(version: str, kind: str, name: str, wish: Wish, spec: Object) -> Object:
    about = {"name": name, "namespace": wish.namespace, "labels": labels_of(wish)}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def ray_cluster(wish: Wish) -> Object:
    head = {
        "serviceType": "ClusterIP",
        # Jobs run on workers alone; only their drivers are on the head.
        "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"},
        "template": pod(wish, "ray-head", wish.head_cpus, wish.head_memory),
    }
    workers = {
        "groupName": GROUP_NAME,
        "replicas": wish.workers,
        "minReplicas": wish.workers,
        "maxReplicas": wish.workers,
        "rayStartParams": {},
        "template": pod(wish, "ray-worker", wish.cpus, wish.memory, wish.gpus),
    }
    spec = {
        "rayVersion": wish.ray_version,
        "authOptions": {"mode": "token"},
        "headGroupSpec": head,
        "workerGroupSpecs": [workers],
    }
    made = described(VERSION, "RayCluster", wish.name, wish, spec)
    if wish.queue:
        made["metadata"]["labels"][QUEUE_LABEL] = wish.queue
    return made


def pod(wish: Wish, container: str, cpus: int, memory: int, gpus: int = 0) -> Object:
    """Describe a pod; it gets all that it asks for, and no more."""
    amounts = {"cpu": str(cpus), "memory": str(memory)}
    if gpus:
        amounts[wish.gpu_resource] = str(gpus)
    named = [(f"storage-{number}", one) for number, one in enumerate(wish.volumes)]
    env = [{"name": "RAY_JOB_START_TIMEOUT_SECONDS", "value": START_TIMEOUT}]
    if wish.mlflow_image:
        env.append({"name": "MLFLOW_TRACKING_URI", "value": wish.mlflow_uri})
    spec: Object = {
        "containers": [
            {
                "name": container,
                "image": wish.image,
                "env": env,
                "resources": {"requests": amounts, "limits": dict(amounts)},
                "volumeMounts": [one.mount(name) for name, one in named],
            }
        ],
        "volumes": [one.described(name) for name, one in named],
        "automountServiceAccountToken": False,
        **pull_secrets(wish),
    }
    if gpus:
        taint = {"key": wish.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
        spec["tolerations"] = [taint]
        spec["nodeSelector"] = dict(wish.node_selector)
    return {"metadata": {"labels": labels_of(wish)}, "spec": spec}


def pull_secrets(wish: Wish) -> Object:
    listed = [{"name": one} for one in wish.pull_secrets]
    return {"imagePullSecrets": listed} if listed else {}


def timer(wish: Wish) -> Object:
    """Describe what ends the cluster, without a laptop and without rights for any pod: a Job of no
    pods, which Kubernetes ends at its deadline and removes, and with it what it owns."""
    container = {"name": "timer", "image": wish.image, "command": ["true"]}  # never started
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "parallelism": 0,
        "completions": 1,
        "activeDeadlineSeconds": wish.seconds,
        "ttlSecondsAfterFinished": 0,
        "template": {"metadata": {"labels": labels_of(wish)}, **template},
    }
    return described("batch/v1", "Job", wish.timer, wish, spec)


def owned(thing: Object, timer_uid: str, wish: Wish) -> Object:
    """Let an object end with the timer."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": wish.timer, "uid": timer_uid}
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [owner]}}


def is_data(thing: Mapping[str, Any]) -> bool:
    """Return whether an object holds what outlives the cluster."""
    return bool(thing["kind"] == CLAIM)


# -- MLflow -------------------------------------------------------------------------------------


def mlflow_objects(wish: Wish) -> list[Object]:
    labels = {**labels_of(wish), "app.kubernetes.io/name": wish.mlflow}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(wish.mlflow_size)}},
    }
    deployment = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # its files are for one at a time
        "selector": {"matchLabels": {"app.kubernetes.io/name": wish.mlflow}},
        "template": {"metadata": {"labels": labels}, "spec": mlflow_pod(wish)},
    }
    service = {
        "type": "ClusterIP",
        "selector": {"app.kubernetes.io/name": wish.mlflow},
        "ports": [{"name": "http", "port": MLFLOW_PORT}],
    }
    return [
        described("v1", CLAIM, wish.mlflow, wish, claim),
        described("apps/v1", "Deployment", wish.mlflow, wish, deployment),
        described("v1", "Service", wish.mlflow, wish, service),
    ]


def mlflow_pod(wish: Wish) -> Object:
    hosts = ",".join(allowed_hosts(wish))
    words = [
        "mlflow", "server", "--host", "0.0.0.0", "--port", str(MLFLOW_PORT), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{MLFLOW_FOLDER}/mlflow.db",
        "--artifacts-destination", f"{MLFLOW_FOLDER}/artifacts", "--allowed-hosts", hosts,
    ]  # fmt: skip
    local = {"name": "Host", "value": f"localhost:{MLFLOW_PORT}"}
    probe = {"path": "/health", "port": MLFLOW_PORT, "httpHeaders": [local]}
    container = {
        "name": "mlflow",
        "image": wish.mlflow_image,
        "command": words,
        "ports": [{"containerPort": MLFLOW_PORT}],
        "readinessProbe": {"httpGet": probe},
        "resources": {
            "requests": {"cpu": "500m", "memory": MLFLOW_MEMORY},
            "limits": {"cpu": "2", "memory": MLFLOW_MEMORY},
        },
        "volumeMounts": [{"name": "data", "mountPath": MLFLOW_FOLDER}],
    }
    data = {"name": "data", "persistentVolumeClaim": {"claimName": wish.mlflow}}
    return {
        "containers": [container],
        "volumes": [data],
        "automountServiceAccountToken": False,
        **pull_secrets(wish),
    }


def allowed_hosts(wish: Wish) -> Iterator[str]:
    """Yield how MLflow may be called; it refuses requests that call it anything else."""
    own = [wish.mlflow, f"{wish.mlflow}.{wish.namespace}", f"{wish.mlflow}.{wish.namespace}.svc"]
    for name in (*own, "localhost", "127.0.0.1"):
        yield from (name, f"{name}:*")


# -- comparing ----------------------------------------------------------------------------------


def differences(wanted: Any, there: Any, path: str = "") -> list[str]:
    """Return where what is there is not what is wanted; the API server may have added to it."""
    if isinstance(wanted, dict):
        found = there if isinstance(there, dict) else {}
        below = ((f"{path}.{key}".lstrip("."), key) for key in wanted)
        return [
            line for where, key in below for line in differences(wanted[key], found.get(key), where)
        ]
    if isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        pairs = enumerate(zip(wanted, there, strict=True))
        return [
            line for n, (one, other) in pairs for line in differences(one, other, f"{path}[{n}]")
        ]
    same = wanted == there or (not wanted and there is None)
    if same:
        return []
    if isinstance(wanted, list) or isinstance(there, list | dict):
        return [path]
    has = "nothing" if there is None else str(there)[:100]
    return [f"{path} ({has} there, {str(wanted)[:100]} asked for)"]


def told(thing: Mapping[str, Any]) -> str:
    return f"{thing['kind']} {thing['metadata']['name']}"


def plan_of(wish: Wish) -> Object:
    """Return all as one list, as ``kubectl create`` takes it."""
    return {"apiVersion": "v1", "kind": "List", "items": objects_of(wish)}
