"""KubeRay's operator beside a control plane, with its definitions, and an image with Ray."""

from __future__ import annotations

import subprocess
import sys

from tests.rigs.kubernetes import objects
from tests.rigs.kubernetes.cluster import Kubernetes, Namespace, find_addition
from tests.rigs.kubernetes.control import INSIDE
from tests.rigs.kubernetes.machine import HERE
from tests.rigs.kubernetes.ray_image import NAME as IMAGE

GROUP = "ray.io"
USERS = "ray-users"
ALL = ["get", "list", "watch", "create", "update", "patch", "delete"]
# What somebody is given who may start Ray clusters in a namespace.
RULES: list[objects.Object] = [
    {"apiGroups": [GROUP], "resources": ["rayclusters"], "verbs": ALL},
    {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ALL},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ALL},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ALL},
]


class KubeRay:
    """Runs as a process of the control plane."""

    image = IMAGE

    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster = cluster
        self.home = find_addition("kuberay")

    def start(self) -> None:
        control = self.cluster.control
        self.cluster.kubectl("create", f"--filename={self.home}/definitions/bases")
        self.cluster.wait_for_definitions()
        control.pki.issue("kuberay", "kuberay", "system:masters")
        config = control.folder / "kuberay.kubeconfig"
        control.write_kubeconfig(config, "kuberay", INSIDE)
        control.machine.start(
            "kuberay",
            "env",
            f"KUBECONFIG={config}",
            str(self.home / "bin/ray-operator"),
            "--enable-leader-election=false",
            "--metrics-addr=127.0.0.1:8085",
            "--health-probe-bind-address=127.0.0.1:8086",
        )

    def load_image(self) -> None:
        """Bring the image with Ray to all nodes."""
        words = [HERE / "ray-image", sys.executable]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        for node in self.cluster.nodes.values():
            node.machine.run("ctr", "--namespace=k8s.io", "images", "import", made.stdout.strip())

    def admit(self, namespace: Namespace) -> None:
        self.cluster.create(*objects.right(USERS, namespace.name, objects.USER, RULES))
