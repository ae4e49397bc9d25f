"""A node: containerd, a kubelet and GPUs that do not exist, on a machine of their own."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes import cgroups
from tests.rigs.kubernetes.control import ADDRESS, INSIDE, ControlPlane, node_address, pod_network
from tests.rigs.kubernetes.machine import Machine

GPU = "nvidia.com/gpu"
SOCKET = "run/containerd/containerd.sock"
# What a kubelet, containerd and their plugins would write to on the machine of the tests.
OWN_FOLDERS = {"log": "/var/log", "lib": "/var/lib", "opt": "/opt"}
OWN_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
}
SHORTAGES = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
)
CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.nri.v1.nri",
]
[grpc]
  address = "/{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{parts}/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{parts}/bin/runc"
"""


class Node:
    def __init__(self, control: ControlPlane, number: int, parts: Path, gpus: int) -> None:
        self.control = control
        self.number = number
        self.name = f"node{number}"
        self.folder = control.folder / self.name
        self.parts = parts
        self.gpus = gpus
        self.machine = Machine(self.folder, control.machine.env["PATH"])
        self.cgroup = f"{control.folder.name}/{self.name}"
        self._started = ""  # when the kubelet was, as Kubernetes writes a time

    def prepare(self) -> None:
        """Do what needs no API server: switch on, start containerd, load the images."""
        self.machine.power_on()
        cgroups.make(self.cgroup)
        self._mount()
        self._write_settings()
        self.machine.start("containerd", "containerd", f"--config={self.folder}/containerd.toml")
        self.machine.wait("containerd", self._has_containerd)
        loaded = self.folder / "images-loaded"
        if not loaded.exists():
            images = str(self.parts / "images.tar")
            self.machine.run("ctr", "--namespace=k8s.io", "images", "import", images)
            loaded.touch()

    def start(self) -> None:
        """Join the cluster."""
        self.control.connect(self.machine, self.number)
        self.start_kubelet()
        self.machine.start("gpus", str(self.control.programs / "gpus"), str(self.gpus))

    def start_kubelet(self) -> None:
        folder = self.folder
        self._started = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.machine.start(
            "kubelet",
            str(self.control.programs / "kubelet"),
            f"--config={folder}/kubelet.json",
            f"--kubeconfig={folder}/kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={node_address(self.number)}",
            "--root-dir=/var/lib/kubelet",
            f"--cert-dir={folder}/certificates",
            f"--node-labels={GPU}.product=NVIDIA-A100-SXM4-40GB",
        )

    def wait_until_ready(self) -> None:
        self.machine.wait("kubelet", self._is_ready)

    def _is_ready(self) -> bool:
        self.machine.check("containerd", "kubelet", "gpus")
        try:
            status = self.control.get(f"/api/v1/nodes/{self.name}")["status"]
        except OSError:
            return False
        # What is said of a node that was lost a moment ago is still what it said itself.
        return status.get("allocatable", {}).get(GPU) == str(self.gpus) and any(
            one["type"] == "Ready"
            and one["status"] == "True"
            and one["lastHeartbeatTime"] > self._started
            for one in status.get("conditions", [])
        )

    def power_off(self) -> None:
        self.machine.power_off()
        cgroups.remove(self.cgroup)  # a machine that starts has none of before

    def _has_containerd(self) -> bool:
        self.machine.check("containerd")
        return Path(f"/proc/{self.machine.pid}/root", SOCKET).exists()

    def _mount(self) -> None:
        mounts = ["mount -t tmpfs tmpfs /run", "mkdir /run/netns"]
        for name, target in OWN_FOLDERS.items():
            (self.folder / name).mkdir(exist_ok=True)
            mounts.append(f"mount --bind {self.folder / name} {target}")
        for name, value in OWN_SETTINGS.items():
            file = self.folder / name.replace("/", "-")
            file.write_text(f"{value}\n")
            mounts.append(f"mount --bind {file} /proc/sys/{name}")
        self.machine.run("sh", "-ec", "\n".join(mounts))

    def _write_settings(self) -> None:
        folder, pki = self.folder, self.control.pki
        if (folder / "kubeconfig").exists():
            return
        for name in ("cni", "addresses", "pods", "plugins"):
            (folder / name).mkdir()
        pki.issue(
            self.name,
            f"system:node:{self.name}",
            "system:nodes",
            hosts=(self.name, node_address(self.number)),
        )
        self.control.write_kubeconfig(folder / "kubeconfig", self.name, INSIDE)
        (folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n")
        registries = self.control.folder / "registries"  # which a test may put there
        text = CONTAINERD.format(
            socket=SOCKET, parts=self.parts, folder=folder, registries=registries
        )
        (folder / "containerd.toml").write_text(text)
        network = pod_network(self.number)
        (folder / "cni/pods.conflist").write_text(json.dumps(pods_network(folder, network)))
        (folder / "kubelet.json").write_text(json.dumps(self._kubelet_settings(), indent=1))

    def _kubelet_settings(self) -> dict[str, Any]:
        pki = self.control.pki
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": True,
            "cgroupRoot": f"/{self.cgroup}",
            "enforceNodeAllocatable": ["pods"],
            "containerRuntimeEndpoint": f"unix:///{SOCKET}",
            "address": "0.0.0.0",
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(pki.ca)},
                "webhook": {"enabled": True},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.folder / f"{self.name}.crt"),
            "tlsPrivateKeyFile": str(pki.folder / f"{self.name}.key"),
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # The defaults evict pods from a machine whose disk is nearly full.
            "evictionHard": dict.fromkeys(SHORTAGES, "0%"),
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 4,
            "podLogsDir": str(self.folder / "pods"),
            "volumePluginDir": str(self.folder / "plugins"),
            "localStorageCapacityIsolation": False,
            "serializeImagePulls": False,
        }


def pods_network(folder: Path, network: str) -> dict[str, Any]:
    """A cable from each pod to its node, which knows the way to all others."""
    addresses = {
        "type": "host-local",
        "dataDir": str(folder / "addresses"),
        "ranges": [[{"subnet": network}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    cable = {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [cable]}
