"""The control plane: etcd, API server, controllers, scheduler and DNS on a machine of their own.

No way leads out of its network. The service address of the API server is one of its own addresses,
so pods reach it without a kube-proxy.
"""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes.machine import HERE, Machine
from tests.rigs.kubernetes.pki import Pki

ADDRESS, SERVICE = "10.77.0.1", "10.96.0.1"
INSIDE = f"https://{ADDRESS}:443"
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
HOSTS = ("127.0.0.1", "localhost", ADDRESS, SERVICE, *NAMES, f"{NAMES[-1]}.cluster.local")
FRONT = "front-proxy"  # the API server, where it passes on what it was asked
ETCD, ETCD_PEERS = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
# A node that is silent so long is lost, and its pods are given up soon after: by default that
# takes 50 s and 300 s.
NODE_IS_LOST = "8s"
PODS_ARE_GIVEN_UP = 2


class ControlPlane:
    def __init__(self, folder: Path, programs: Path, path: str) -> None:
        self.machine = Machine(folder / "control", path)
        self.programs = programs
        self.folder = folder
        self.pki = Pki(folder / "pki")
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.machine.power_on()
        self.machine.run(
            "sh", "-ec",
            "ip link add br0 type bridge; ip link set br0 up;"
            f"ip address add {ADDRESS}/24 dev br0; ip address add {SERVICE}/32 dev br0;"
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
        )  # fmt: skip
        self._issue()
        self._start_etcd()
        self._start_forwarding()
        self.start_apiserver()
        self._start_controllers()
        self._start_dns()

    def connect(self, machine: Machine, number: int) -> None:
        """Lay a cable from a node to the bridge, and tell where its pods are."""
        address = node_address(number)
        # The node's process is named as this process sees it: only the network is entered.
        lay = (
            f"ip link delete v{number} 2>/dev/null || true;"  # the kernel takes its time with it
            f"ip link add v{number} type veth peer name eth0 netns {machine.pid};"
            f"ip link set v{number} master br0 up;"
            f"ip route replace {pod_network(number)} via {address}"
        )
        there = ["nsenter", f"--target={self.machine.pid}", "--net"]
        subprocess.run([*there, "sh", "-ec", lay], check=True, env=self.machine.env)
        machine.run(
            "sh", "-ec",
            f"ip address add {address}/24 dev eth0; ip link set eth0 up;"
            f"ip route add default via {ADDRESS}; echo 1 > /proc/sys/net/ipv4/ip_forward",
        )  # fmt: skip

    def _issue(self) -> None:
        self.pki.issue("apiserver", "kube-apiserver", hosts=HOSTS)
        self.pki.issue("to-kubelets", "kube-apiserver-kubelet-client", "system:masters")
        self.pki.issue("to-additions", FRONT)
        self.pki.issue("admin", "admin", "system:masters")
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.pki.issue(name, f"system:{name}")
            self.write_kubeconfig(self.folder / f"{name}.kubeconfig", name, INSIDE)

    def write_kubeconfig(self, path: Path, name: str, server: str) -> None:
        """Write the file of a user who has a certificate."""
        user = {
            "client-certificate": str(self.pki.folder / f"{name}.crt"),
            "client-key": str(self.pki.folder / f"{name}.key"),
        }
        path.write_text(json.dumps(kubeconfig(server, self.pki.bundle(), user)))

    def _start_etcd(self) -> None:
        self.machine.start(
            "etcd",
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={ETCD_PEERS}",
            f"--initial-advertise-peer-urls={ETCD_PEERS}",
            f"--initial-cluster=default={ETCD_PEERS}",
            "--unsafe-no-fsync",
        )

    def _start_forwarding(self) -> None:
        self.port = self.lead_to("forward", 443)
        self.write_kubeconfig(self.folder / "admin.kubeconfig", "admin", self.url)

    def lead_to(self, name: str, port: int) -> int:
        """Lead a port of the loopback to one of the control plane; return which. ``name``: of the
        process that does it."""
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            number = listener.fileno()
            words = [
                sys.executable,
                "-S",
                str(HERE / "forward.py"),
                str(number),
                ADDRESS,
                str(port),
            ]
            self.machine.start(name, *words, inherited=[number])
            found: int = listener.getsockname()[1]
            return found

    def start_apiserver(self) -> None:
        pki = self.pki.folder
        self.machine.start(
            "kube-apiserver",
            str(self.programs / "kube-apiserver"),
            f"--etcd-servers={ETCD}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            "--secure-port=443",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--client-ca-file={self.pki.ca}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-key-file={self.pki.sa_key}",
            f"--service-account-signing-key-file={self.pki.sa_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-certificate-authority={self.pki.ca}",
            f"--kubelet-client-certificate={pki}/to-kubelets.crt",
            f"--kubelet-client-key={pki}/to-kubelets.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            # For the APIs that others serve beside it.
            f"--proxy-client-cert-file={pki}/to-additions.crt",
            f"--proxy-client-key-file={pki}/to-additions.key",
            f"--requestheader-client-ca-file={self.pki.ca}",
            f"--requestheader-allowed-names={FRONT}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--default-not-ready-toleration-seconds={PODS_ARE_GIVEN_UP}",
            f"--default-unreachable-toleration-seconds={PODS_ARE_GIVEN_UP}",
            "--shutdown-delay-duration=0s",
        )
        self.wait_until_ready()

    def kill_apiserver(self) -> None:
        """Kill it: when it is asked to end, it waits for open streams for a minute."""
        self.machine.kill("kube-apiserver")

    def wait_until_ready(self) -> None:
        self.machine.wait("kube-apiserver", lambda: self.answers("/readyz"))

    def answers(self, path: str) -> bool:
        self.machine.check("etcd", "kube-apiserver", "forward")
        try:
            self.get(path)
        except OSError:
            return False
        return True

    def get(self, path: str) -> Any:
        """Ask the API server as its administrator."""
        context = ssl.create_default_context(cafile=str(self.pki.ca))
        context.load_cert_chain(self.pki.folder / "admin.crt", self.pki.folder / "admin.key")
        with urllib.request.urlopen(f"{self.url}{path}", context=context, timeout=10) as answer:
            data = answer.read()
        return json.loads(data) if data.startswith(b"{") else data.decode()

    def _start_controllers(self) -> None:
        pki = self.pki.folder
        name = "kube-controller-manager"
        self.machine.start(
            name,
            str(self.programs / name),
            f"--kubeconfig={self.folder}/{name}.kubeconfig",
            f"--service-account-private-key-file={self.pki.sa_key}",
            f"--root-ca-file={self.pki.ca}",
            f"--cluster-signing-cert-file={self.pki.ca}",
            f"--cluster-signing-key-file={pki}/ca.key",
            "--use-service-account-credentials",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            # At its own rate it takes seconds to make the accounts of all its controllers.
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            "--pvclaimbinder-sync-period=1s",  # a claim seen before its volume waits so long
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={NODE_IS_LOST}",
            "--node-eviction-rate=10",
        )
        name = "kube-scheduler"
        self.machine.start(
            name,
            str(self.programs / name),
            f"--kubeconfig={self.folder}/{name}.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        )
        self.machine.wait("kube-controller-manager", self._has_accounts)

    def _has_accounts(self) -> bool:
        self.machine.check("kube-controller-manager", "kube-scheduler")
        base = "/api/v1/namespaces/default"
        wanted = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
        return all(self.answers(f"{base}/{one}") for one in wanted)

    def _start_dns(self) -> None:
        admin = (str(self.pki.folder / f"admin.{end}") for end in ("crt", "key"))
        words = [sys.executable, "-S", str(HERE / "dns.py"), ADDRESS, INSIDE, str(self.pki.ca)]
        self.machine.start("dns", *words, *admin)

    def hang(self) -> None:
        """Let nothing through between the tests and the API server, and break nothing off."""
        self.machine.signal("forward", signal.SIGUSR1)

    def resume(self) -> None:
        self.machine.signal("forward", signal.SIGUSR2)


def node_address(number: int) -> str:
    return f"10.77.0.{10 + number}"


def pod_network(number: int) -> str:
    return f"10.88.{number}.0/24"


def kubeconfig(
    server: str, authority: str, user: dict[str, str], namespace: str = "default"
) -> dict[str, Any]:
    cluster = {"server": server, "certificate-authority-data": authority}
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
