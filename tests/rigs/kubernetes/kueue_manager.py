"""Kueue's manager beside a control plane: its definitions, webhooks and visibility API with it."""

from __future__ import annotations

import json
import re
import shutil

from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace, find_addition
from tests.rigs.kubernetes.control import ADDRESS, INSIDE
from tests.rigs.processes import until

GROUP = "kueue.x-k8s.io"
VERSION = f"{GROUP}/v1beta2"
SPACE = "kueue-system"
FLAVOR = "default"
GPU = "nvidia.com/gpu"
USERS = "queue-users"
# What its installation gives to those who use queues.
RULES: list[objects.Object] = [
    {"apiGroups": [GROUP], "resources": ["localqueues", "workloads"], "verbs": ["get", "list"]},
    {
        "apiGroups": [f"visibility.{GROUP}"],
        "resources": ["localqueues/pendingworkloads"],
        "verbs": ["get"],
    },
]
WEBHOOKS, VISIBILITY = 9443, 8082
VISIBILITY_NAME = f"visibility-server.{SPACE}.svc"  # as the API server expects it to be called
# Fixed in its sources: the rest is told by its configuration.
CERTIFICATES = ("visibility", "etc/kueue/metrics/certs")
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": SPACE,
    "health": {"healthProbeBindAddress": "127.0.0.1:8081"},
    "metrics": {"bindAddress": "0"},
    "webhook": {"port": WEBHOOKS, "certDir": f"/{CERTIFICATES[0]}"},
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
    "integrations": {"frameworks": ["batch/job"]},
}
SERVICE = re.compile(r"( +)service:\n +name: webhook-service\n +namespace: system\n +path: (\S+)")


class Kueue:
    """Runs as a process of the control plane, in a root of its own: it is one static program."""

    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster = cluster
        self.home = find_addition("kueue")
        self.root = cluster.folder / "kueue"

    def start(self) -> None:
        control = self.cluster.control
        control.pki.issue("kueue", "kueue", "system:masters", hosts=(ADDRESS, VISIBILITY_NAME))
        self._furnish()
        self._define()
        control.machine.start(
            "kueue", "chroot", str(self.root), "/kueue", "--config=/config.json",
            "--kubeconfig=/kubeconfig",
        )  # fmt: skip
        control.machine.wait("kueue", self._is_ready)

    def _furnish(self) -> None:
        pki = self.cluster.control.pki.folder
        for folder in CERTIFICATES:
            place = self.root / folder
            place.mkdir(parents=True)
            for end in ("crt", "key"):
                shutil.copy(pki / f"kueue.{end}", place / f"tls.{end}")
        (self.root / "tmp").mkdir()
        shutil.copy(self.home / "bin/kueue", self.root)
        (self.root / "config.json").write_text(json.dumps(CONFIGURATION))
        config = self.root / "kubeconfig"
        self.cluster.control.write_kubeconfig(config, "kueue", INSIDE)
        inside = config.read_text().replace(f"{pki}/kueue.", f"/{CERTIFICATES[0]}/tls.")
        config.write_text(inside)

    def _define(self) -> None:
        """Put on the API server what an installation puts there, but for its pod and its rights:
        whoever is asked, is asked by an address of the control plane."""
        definitions = self.home / "definitions"
        crds = self.cluster.kubectl("kustomize", str(definitions / "crd"))
        webhooks = (definitions / "webhook/manifests.yaml").read_text()
        for text in (crds, webhooks):
            self.cluster.kubectl("create", "--filename=-", stdin=self._by_address(text))
        # It ends at once where one of them is not served yet.
        self.cluster.kubectl("wait", "crd", "--all", "--for=condition=Established")
        self.cluster.control.machine.wait("kube-apiserver", self._are_served)
        to_visibility = {"type": "ExternalName", "externalName": ADDRESS}
        service = {"name": "visibility-server", "namespace": SPACE, "port": VISIBILITY}
        self.cluster.create(
            objects.made("v1", "Namespace", SPACE),
            objects.made("v1", "Service", "visibility-server", SPACE, spec=to_visibility),
            objects.made(
                "apiregistration.k8s.io/v1",
                "APIService",
                f"v1beta2.visibility.{GROUP}",
                spec={
                    "group": f"visibility.{GROUP}",
                    "version": "v1beta2",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "caBundle": self.cluster.control.pki.bundle(),
                    "service": service,
                },
            ),
        )

    def _are_served(self) -> bool:
        served = self.cluster.control.answers(f"/apis/{VERSION}")
        return served and len(self.cluster.control.get(f"/apis/{VERSION}")["resources"]) > 0

    def _by_address(self, text: str) -> str:
        url = f"url: https://{ADDRESS}:{WEBHOOKS}"
        return SERVICE.sub(rf"\1{url}\2\n\1caBundle: {self.cluster.control.pki.bundle()}", text)

    def _is_ready(self) -> bool:
        self.cluster.control.machine.check("kueue")
        flavor = objects.made(VERSION, "ResourceFlavor", FLAVOR, spec={})
        made = self.cluster.try_kubectl("create", "--filename=-", stdin=json.dumps(flavor))
        return made.returncode == 0 or "AlreadyExists" in made.stderr

    # For an administrator

    def add_queue(self, namespace: Namespace, name: str, **quota: str) -> None:
        """Make a queue of a namespace with a quota of its own, in which a job of a higher priority
        takes the place of a lower one; ``gpu`` stands for the resource's name."""
        limits = {GPU if one == "gpu" else one: value for one, value in quota.items()}
        resources = [{"name": one, "nominalQuota": value} for one, value in limits.items()]
        shares = {
            "coveredResources": list(limits),
            "flavors": [{"name": FLAVOR, "resources": resources}],
        }
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [shares],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        cluster_queue = f"{namespace.name}-{name}"
        self.cluster.create(
            objects.made(VERSION, "ClusterQueue", cluster_queue, spec=spec),
            objects.made(
                VERSION, "LocalQueue", name, namespace.name, spec={"clusterQueue": cluster_queue}
            ),
        )
        path = f"/apis/{VERSION}/namespaces/{namespace.name}/localqueues/{name}"
        until(lambda: is_active(self.cluster.control.get(path)))

    def admit(self, namespace: Namespace) -> None:
        """Let the user of a namespace look at its queues."""
        self.cluster.create(*objects.right(USERS, namespace.name, objects.USER, RULES))

    def priorities(self, **values: int) -> None:
        self.cluster.create(
            *(
                objects.made(VERSION, "WorkloadPriorityClass", name, value=value)
                for name, value in values.items()
            )
        )

    def usage(self, namespace: Namespace, name: str) -> dict[str, str]:
        """What a queue has given away, by resource."""
        path = f"/apis/{VERSION}/clusterqueues/{namespace.name}-{name}"
        given = self.cluster.control.get(path)["status"].get("flavorsReservation", [])
        return {one["name"]: one["total"] for flavor in given for one in flavor["resources"]}


def is_active(queue: objects.Object) -> bool:
    conditions = queue.get("status", {}).get("conditions", [])
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)
