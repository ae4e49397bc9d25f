"""The whole cluster: started under a folder of its own, used by an administrator, ended whole."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.kubernetes import cgroups, objects
from tests.rigs.kubernetes.control import ControlPlane, kubeconfig
from tests.rigs.kubernetes.leftovers import PREFIX, lock, sweep
from tests.rigs.kubernetes.machine import HERE
from tests.rigs.kubernetes.node import Node
from tests.rigs.link import Link
from tests.rigs.processes import until

LEEWAY = 60  # seconds that the API server takes a token which has expired


@dataclass(frozen=True)
class Namespace:
    name: str
    claim: str
    volume: Path  # what the claim is bound to, as this machine sees it


class Unavailable(Exception):
    """What a cluster needs is not here."""


class Kubernetes:
    def __init__(self, nodes: int = 2, gpus: int = 4) -> None:
        programs, parts = find_programs()
        with one_at_a_time():
            sweep()
            # Not below a folder that a node has one of its own for, and short, for sockets.
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._owner = lock(self.folder)
        self.folder.chmod(0o755)
        self.volumes = self.folder / "volumes"
        self.volumes.mkdir()
        path = f"{parts}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
        self.control = ControlPlane(self.folder, programs, path)
        self.nodes = {
            node.name: node
            for node in (Node(self.control, one, parts, gpus) for one in range(1, nodes + 1))
        }
        self.admin = self.folder / "admin.kubeconfig"
        self._kubectl = programs / "kubectl"
        self._numbers = itertools.count(1)

    def start(self) -> None:
        with ThreadPoolExecutor() as pool:
            prepared = {node: pool.submit(node.prepare) for node in self.nodes.values()}
            self.control.start()
            for node, preparation in prepared.items():
                preparation.result()
                node.start()
        for node in self.nodes.values():
            node.wait_until_ready()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.machine.power_off()
        self.control.machine.power_off()
        cgroups.remove(self.folder.name)
        shutil.rmtree(self.folder)
        os.close(self._owner)

    # For an administrator

    def kubectl(self, *words: str, stdin: str | None = None, config: Path | None = None) -> str:
        """Run kubectl, as the administrator if no one else is named; raise if it fails."""
        done = self.try_kubectl(*words, stdin=stdin, config=config)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def try_kubectl(
        self, *words: str, stdin: str | None = None, config: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, whatever comes of it."""
        return subprocess.run(
            [str(self._kubectl), f"--kubeconfig={config or self.admin}", *words],
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "HOME": str(self.folder)},  # it keeps what it has discovered
        )

    @property
    def bin(self) -> Path:
        """A folder with kubectl, for somebody's PATH."""
        return self._kubectl.parent

    def create(self, *described: objects.Object, config: Path | None = None) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": described}
        self.kubectl("create", "--filename=-", stdin=json.dumps(listed), config=config)

    def namespace(self) -> Namespace:
        """Make a namespace with a volume that all nodes share."""
        name = f"space-{next(self._numbers)}"
        volume = self.volumes / name
        volume.mkdir()
        volume.chmod(0o777)
        self.create(*objects.namespace(name, volume), *objects.user(name))
        until(lambda: self._is_usable(name))
        return Namespace(name, objects.CLAIM, volume)

    def _is_usable(self, name: str) -> bool:
        base = f"/api/v1/namespaces/{name}"
        claim = self.control.get(f"{base}/persistentvolumeclaims/{objects.CLAIM}")
        account = self.control.answers(f"{base}/serviceaccounts/default")
        return account and claim["status"].get("phase") == "Bound"

    def remove(self, namespace: Namespace) -> None:
        """Take a namespace away with all that is in it; nobody waits for its pods' ends."""
        where = f"--namespace={namespace.name}"
        self.kubectl("delete", "jobs", "--all", "--cascade=background", "--wait=false", where)
        self.kubectl("delete", "pods", "--all", "--force", "--wait=false", where)
        for kind in ("namespace", "persistentvolume"):
            self.kubectl("delete", kind, namespace.name, "--wait=false")

    def kubeconfig(
        self, namespace: Namespace, *, port: int | None = None, token: str | None = None
    ) -> Path:
        """Write the file of somebody who may use this namespace only; maybe by a link's port."""
        where = f"--namespace={namespace.name}"
        given = token or self.kubectl("create", "token", objects.USER, where, "--duration=24h")
        server = f"https://127.0.0.1:{port or self.control.port}"
        user = {"token": given.strip()}
        config = kubeconfig(server, self.control.pki.bundle(), user, namespace.name)
        path = self.folder / f"{namespace.name}-{next(self._numbers)}.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def expired_token(self, namespace: Namespace) -> str:
        """Sign a token that ended so long ago that the API server refuses it at once."""
        base = f"/api/v1/namespaces/{namespace.name}/serviceaccounts/{objects.USER}"
        account = {"name": objects.USER, "uid": self.control.get(base)["metadata"]["uid"]}
        now = int(time.time())
        issuer = "https://kubernetes.default.svc"
        return self.control.pki.token(
            {
                "iss": issuer,
                "aud": [issuer],
                "iat": now - 7200,
                "nbf": now - 7200,
                "exp": now - 2 * LEEWAY,
                "sub": f"system:serviceaccount:{namespace.name}:{objects.USER}",
                "kubernetes.io": {"namespace": namespace.name, "serviceaccount": account},
            }
        )

    def add_quota(self, namespace: Namespace, **hard: str) -> None:
        """Limit what a namespace may use; ``gpu`` stands for the resource's name."""
        names = {"gpu": "requests.nvidia.com/gpu"}
        limits = {names.get(name, name): value for name, value in hard.items()}
        self.create(objects.quota(namespace.name, limits))
        path = f"/api/v1/namespaces/{namespace.name}/resourcequotas/quota"
        until(lambda: self.control.get(path)["status"].get("hard") == limits)

    def priority_classes(self, **values: int) -> None:
        """Make the priority classes that are not there yet."""
        there = self.control.get("/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
        known = {one["metadata"]["name"] for one in there}
        new = [
            objects.priority_class(name, value)
            for name, value in values.items()
            if name not in known
        ]
        if new:
            self.create(*new)

    # What goes wrong

    def kill_kubelet(self, node: str) -> None:
        """Kill a kubelet; its containers run on."""
        self.nodes[node].machine.kill("kubelet")

    def power_off(self, node: str) -> None:
        """Switch a node off, with all that runs on it."""
        self.nodes[node].power_off()

    def start_node(self, node: str) -> None:
        """Bring back what was killed or switched off, and wait until the node says it is ready."""
        one = self.nodes[node]
        if not one.machine.is_on:
            one.prepare()
            one.start()
        elif not one.machine.runs("kubelet"):
            one.start_kubelet()
        one.wait_until_ready()

    def restart_apiserver(self) -> None:
        """Break every stream off, and be there again."""
        self.control.kill_apiserver()
        self.control.start_apiserver()

    def hang(self) -> None:
        self.control.hang()

    def resume(self) -> None:
        self.control.resume()

    @contextmanager
    def link(self, delay: float = 0.0) -> Iterator[Link]:
        """Lead to the API server over a link that is slow and can be frozen and cut."""
        link = Link(self.control.port, delay)
        try:
            yield link
        finally:
            link.close()


def find_programs() -> tuple[Path, Path]:
    """Find what ``build`` has made: Kubernetes' own programs, and the rest."""
    if os.getuid() != 0:
        raise Unavailable("a Kubernetes of the tests' own needs root, for its namespaces")
    if not cgroups.hierarchies():
        raise Unavailable("a Kubernetes of the tests' own needs the hierarchies of cgroup v1")
    build = HERE / "build"
    done = subprocess.run([build, "--find"], capture_output=True, text=True)
    found = done.stdout.split()
    if len(found) != 2:
        raise Unavailable(f"{done.stderr.strip() or 'not built'}: run make test-kubernetes")
    return Path(found[0]), Path(found[1])


def find_addition(name: str) -> Path:
    """Find what ``addition`` has made: what queues jobs beside Kubernetes."""
    done = subprocess.run([HERE / "addition", name, "--find"], capture_output=True, text=True)
    if not done.stdout:
        said = done.stderr.strip() or f"{name} is not built"
        raise Unavailable(f"{said}: run make test-kubernetes")
    return Path(done.stdout.strip())


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep two from sweeping what the other is about to use."""
    with Path(tempfile.gettempdir(), f"{PREFIX}lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
