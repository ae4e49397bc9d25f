"""KAI beside a control plane: what groups pods, places and binds them, and lets them share GPUs."""

from __future__ import annotations

import json
import shutil

from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace, find_addition
from tests.rigs.kubernetes.control import ADDRESS, INSIDE
from tests.rigs.kubernetes.images import RESERVATION
from tests.rigs.kubernetes.node import GPU
from tests.rigs.processes import until

NAME = "kai"
GROUP = "scheduling.run.ai"
DEFINITIONS = "definitions/kai-scheduler/crds"
ALL = "everybody"  # the queue above all others
UNLIMITED = -1
# Where a pod for each GPU that is shared keeps it from others: fixed in KAI's sources.
RESERVATIONS = "kai-resource-reservation"
RESERVING = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}]
PRIORITIES = {"train": 50, "build": 100}  # as its installation has them: from 100 on, never ended
WEBHOOKS = 9444  # Kueue has the usual one
NOWHERE = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
PROGRAMS = {
    "admission": (
        *NOWHERE,
        f"--webhook-addr={WEBHOOKS}",
        "--gpu-sharing-enabled",
        "--gpu-pod-runtime-class-name=",
    ),
    "podgrouper": NOWHERE,
    "binder": (*NOWHERE, f"--resource-reservation-pod-image={RESERVATION}"),
    "scheduler": ("--listen-address=127.0.0.1:8080",),
}


class Kai:
    """Runs as processes of the control plane."""

    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster = cluster
        self.control = cluster.control
        self.home = find_addition(NAME)
        self.folder = cluster.folder / NAME

    def start(self) -> None:
        self._define()
        self._label_nodes()
        self._furnish()
        own = (f"KUBECONFIG={self.folder}/kubeconfig", f"TMPDIR={self.folder}")
        for program, words in PROGRAMS.items():
            path = str(self.home / "bin" / program)
            self.control.machine.start(program, "env", *own, path, *words)
        self.cluster.create(*self._webhooks())
        self.control.machine.wait("admission", self._is_ready)

    def stop(self) -> None:
        """Leave the cluster as it was before: others are not to find a queue there."""
        delete = ("delete", "--ignore-not-found")
        webhooks = [one["kind"].lower() for one in self._webhooks()]
        kinds = ",".join([*webhooks, "clusterrole", "clusterrolebinding"])
        self.cluster.kubectl(*delete, kinds, NAME)
        for program in filter(self.control.machine.runs, PROGRAMS):
            self.control.machine.kill(program)
        self.cluster.kubectl(*delete, f"--filename={self.home / DEFINITIONS}")
        self.cluster.kubectl(*delete, "namespace", RESERVATIONS, "--wait=false")

    def _define(self) -> None:
        """Put on the API server what an installation puts there, but for its pods."""
        self.cluster.kubectl("create", f"--filename={self.home / DEFINITIONS}")
        # They end at once where one of them is not served yet.
        self.cluster.kubectl("wait", "crd", "--all", "--for=condition=Established")
        until(lambda: not self.cluster.try_kubectl("get", f"queues.{GROUP}").returncode)
        self.cluster.priority_classes(**PRIORITIES)
        self.cluster.create(
            objects.made("v1", "Namespace", RESERVATIONS),
            objects.made("v1", "ServiceAccount", RESERVATIONS, RESERVATIONS),
            *objects.right(RESERVATIONS, RESERVATIONS, RESERVATIONS, RESERVING),
            queue(ALL, UNLIMITED),
        )

    def _label_nodes(self) -> None:
        """Tell of GPUs what NVIDIA's feature discovery tells."""
        for node in self.cluster.nodes.values():
            labels = (f"{GPU}.count={node.gpus}", f"{GPU}.memory=40960")
            self.cluster.kubectl("label", "node", node.name, *labels)

    def _furnish(self) -> None:
        self.control.pki.issue(NAME, NAME, "system:masters", hosts=(ADDRESS,))
        certificates = self.folder / "k8s-webhook-server/serving-certs"
        certificates.mkdir(parents=True)
        for end in ("crt", "key"):
            shutil.copy(self.control.pki.folder / f"{NAME}.{end}", certificates / f"tls.{end}")
        self.control.write_kubeconfig(self.folder / "kubeconfig", NAME, INSIDE)

    def _webhooks(self) -> list[objects.Object]:
        return [
            self._webhook("Mutating", "mutate", "CREATE"),
            self._webhook("Validating", "validate", "CREATE", "UPDATE"),
        ]

    def _webhook(self, kind: str, path: str, *operations: str) -> objects.Object:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        asked = {
            "url": f"https://{ADDRESS}:{WEBHOOKS}/{path}--v1-pod",
            "caBundle": self.control.pki.bundle(),
        }
        webhook = {
            "name": "pods.kai.scheduler",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": asked,
            "rules": [{**rule, "operations": list(operations)}],
        }
        return objects.made(
            "admissionregistration.k8s.io/v1",
            f"{kind}WebhookConfiguration",
            NAME,
            webhooks=[webhook],
        )

    def _is_ready(self) -> bool:
        self.control.machine.check(*PROGRAMS)
        spec = {"containers": [{"name": "try", "image": RESERVATION}]}
        tried = json.dumps(objects.made("v1", "Pod", "try", "default", spec=spec))
        words = ("create", "--dry-run=server", "--filename=-")
        return not self.cluster.try_kubectl(*words, stdin=tried).returncode

    # For an administrator

    def add_queue(self, name: str, gpus: float) -> None:
        """Make a queue that may have so many GPUs."""
        self.cluster.create(queue(name, gpus, ALL))

    def admit(self, namespace: Namespace) -> None:
        """Let the user of a namespace look at queues, and at what KAI says of pods."""
        kinds = ",".join(f"{one}.{GROUP}" for one in ("queues", "podgroups"))
        rule = ("--verb=get,list", f"--resource={kinds}")
        self.cluster.kubectl("create", "clusterrole", NAME, *rule)
        account = f"--serviceaccount={namespace.name}:{objects.USER}"
        bound = ("clusterrolebinding", NAME, f"--clusterrole={NAME}", account)
        self.cluster.kubectl("create", *bound)

    def reserved(self) -> list[str]:
        """The GPUs that are shared."""
        pods = self.control.get(f"/api/v1/namespaces/{RESERVATIONS}/pods")["items"]
        said = [one["metadata"]["annotations"].get("run.ai/reserve_for_gpu_index") for one in pods]
        return [one for one in said if one]


def queue(name: str, gpus: float, above: str = "") -> objects.Object:
    free = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    resources = {"cpu": free, "memory": free, "gpu": {**free, "limit": gpus}}
    spec = {"resources": resources} | ({"parentQueue": above} if above else {})
    return objects.made(f"{GROUP}/v2", "Queue", name, spec=spec)
