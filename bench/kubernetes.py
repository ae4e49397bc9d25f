"""A real Kubernetes over a link with 50 ms of round trip: submitting, uploading, looking."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes.cluster import Kubernetes, Unavailable
from tests.rigs.processes import until

from bench.measure import Figure, best_of, command, seconds
from bench.slurm import ONE_WAY, Laptop
from bench.snapshots import make_tree
from dray.config import loading as configuration
from dray.launcher import Launcher

JOBS = 1000
ARRAYS = 5
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


class KubeLaptop:
    """A dray that reaches a namespace over the slow link. Nothing that it submits is started: its
    pods wait for a scheduler that is not there."""

    def __init__(self, folder: Path, cluster: Kubernetes, port: int) -> None:
        self.namespace = cluster.namespace()
        self.config = cluster.kubeconfig(self.namespace, port=port)
        self.tree = folder / "tree"
        self.env = {
            **os.environ,
            "PATH": f"{cluster.bin}:{os.environ['PATH']}",
            "DRAY_HOME": str(folder / "dray"),
            "XDG_RUNTIME_DIR": str(folder / "s"),
        }
        for name in ("s", "dray"):
            (folder / name).mkdir(mode=0o700)
        settings = {
            "kind": "kubernetes",
            "kubeconfig": str(self.config),
            "namespace": self.namespace.name,
            "volumes": [f"pvc:{self.namespace.claim}:/home/me"],
            "image": "registry.local/python:1",
            "agent_image": "registry.local/python:1",
            "patch": json.dumps({"schedulerName": "nobody"}),
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        (folder / "dray/config.toml").write_text("\n".join(["[clusters.k8s]", *lines, ""]))
        make_tree(self.tree)

    def submit(self) -> None:
        self.dray("run", "--on", "k8s", "--", "/bin/true")

    def dray(self, *words: str) -> None:
        dray = str(Path(sys.executable).parent / "dray")
        command(dray, *words, cwd=self.tree, env=self.env, stderr=subprocess.DEVNULL)()

    def edit(self) -> None:
        (self.tree / "package0/module0/file0.py").write_bytes(random.randbytes(12_000))

    def kubectl(self, *words: str) -> list[str]:
        return ["kubectl", f"--kubeconfig={self.config}", *words]

    @contextmanager
    def echo(self) -> Iterator[Any]:
        """Open a connection to a program in the helper pod that sends back what it is sent."""
        helper = subprocess.run(
            self.kubectl("get", "jobs", "--output=name"),
            env=self.env, capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        name = next(one for one in helper if "dray-agent" in one).removeprefix("job.batch/")
        words = self.kubectl("exec", "--stdin", f"job/{name}", "--", "cat")
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=self.env, stdin=pipe, stdout=pipe, bufsize=0) as cat:
            assert cat.stdin is not None
            assert cat.stdout is not None
            cat.stdin.write(b"x\n")
            cat.stdout.read(2)

            def trip() -> None:
                cat.stdin.write(b"x\n")  # type: ignore[union-attr]
                cat.stdout.read(2)  # type: ignore[union-attr]

            yield trip
            cat.terminate()

    @contextmanager
    def proxy(self, folder: Path) -> Iterator[Any]:
        """Open a kubectl proxy to the API server."""
        path = folder / "proxy"
        words = self.kubectl("proxy", f"--unix-socket={path}")
        with subprocess.Popen(words, env=self.env, stdout=subprocess.DEVNULL) as proxy:
            until(path.exists, 20)
            time.sleep(0.5)

            def ask(method: str, place: str, body: Any = None, accept: str = "") -> bytes:
                link = HTTPConnection("localhost")
                link.sock = socket.socket(socket.AF_UNIX)
                link.sock.connect(str(path))
                headers = {"Accept": accept or "application/json", "Host": "localhost"}
                link.request(method, place, body and json.dumps(body), headers)
                answer = link.getresponse()
                found = answer.read()
                link.close()
                if answer.status >= 300:
                    raise RuntimeError(found)
                return found

            yield ask
            proxy.terminate()


@contextmanager
def far_away(port: int) -> Iterator[int]:
    """Lead to a port over the slow link, and yield its own. It is a process of its own: in this one
    it would take turns with the dray that is measured here."""
    words = [sys.executable, "-m", "tests.rigs.link", str(port), str(ONE_WAY)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as link:
        assert link.stdout is not None
        yield int(link.stdout.readline())
        link.terminate()


def run(_: Path) -> list[Figure]:
    try:
        cluster = Kubernetes()
    except Unavailable as error:
        print(f"no figures of Kubernetes: {error}", flush=True)
        return []
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))  # sockets need a short path
    short.chmod(0o755)
    try:
        cluster.start()
        with far_away(cluster.control.port) as port:
            laptop = KubeLaptop(short, cluster, port)
            return [*measure(laptop, short), *measure_many(cluster, laptop, short)]
    finally:
        cluster.stop()
        shutil.rmtree(short, ignore_errors=True)


def measure(laptop: KubeLaptop, folder: Path) -> list[Figure]:
    (folder / "empty").mkdir()
    dray = str(Path(sys.executable).parent / "dray")
    flags = ("run", "--on", "k8s", "--no-snapshot", "--", "/bin/true")
    command(dray, *flags, cwd=folder / "empty", env=laptop.env, stderr=subprocess.DEVNULL)()
    time.sleep(2)  # the helper is up, the tree settled
    first = seconds(laptop.submit)
    by_ssh = over_ssh()
    place = f"/apis/batch/v1/namespaces/{laptop.namespace.name}/jobs"
    with laptop.echo() as trip, laptop.proxy(folder) as ask:

        def by_hand() -> None:
            trip()
            ask("POST", place, job(f"by-hand-{random.randrange(10**9)}"))

        floor = best_of({"by hand": by_hand}, rounds=8)["by hand"]
    times = []
    for _ in range(8):
        laptop.edit()
        times.append(seconds(laptop.submit))
    queued = min(times)
    return [
        Figure(
            "Enter → Job created on Kubernetes, 50 ms link, one file of 5,000 changed",
            queued * 1000,
            "ms",
            f"one exec and one API round trip on open connections ({floor * 1000:.0f} ms)",
            queued / floor,
            "≤ 1.5×",
            queued / floor <= 1.5,
        ),
        Figure(
            "the same with the whole tree to send (60 MB)",
            first,
            "s",
            f"the same to Slurm over SSH ({by_ssh:.2f} s)",
            first / by_ssh,
            "≤ 1.2×",
            first / by_ssh <= 1.2,
        ),
    ]


def over_ssh() -> float:
    """Return how long the first upload takes over SSH, with the connection to open."""
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))
    short.chmod(0o755)
    try:
        with Laptop(short, extra=["--hold"]) as laptop:
            time.sleep(1.2)
            return seconds(laptop.submit)
    finally:
        shutil.rmtree(short, ignore_errors=True)


def measure_many(cluster: Kubernetes, laptop: KubeLaptop, folder: Path) -> list[Figure]:
    """Within one process, as a sweep submits them: the connection is open, the tree known."""
    os.environ.update(laptop.env)
    flags = {"job.on": "k8s"}

    def submit() -> None:
        launcher = Launcher(configuration.load(laptop.tree, flags))
        launcher.run_many([["/bin/true", str(number)] for number in range(JOBS)])

    submitted = best_of({"dray": submit}, ARRAYS)["dray"]

    pods = f"/api/v1/namespaces/{laptop.namespace.name}/pods?limit=1"
    until(lambda: left_out(cluster.control.get(pods)) >= JOBS * ARRAYS, 300)
    time.sleep(5)  # whoever creates them comes to rest

    def look() -> None:
        Launcher(configuration.load(laptop.tree, flags)).refresh()

    place = f"/apis/batch/v1/namespaces/{laptop.namespace.name}/jobs?includeObject=None"
    with laptop.proxy(folder) as ask:
        acts = {"refresh": look, "table": lambda: ask("GET", place, None, TABLE)}
        states = best_of(acts, 8)
    ratio = states["refresh"] / states["table"]
    table = f"one server-side table of the same ({states['table'] * 1000:.0f} ms)"
    return [
        Figure(
            f"state of {JOBS * ARRAYS:,} jobs on Kubernetes brought up to date",
            states["refresh"] * 1000,
            "ms",
            table,
            ratio,
            "≤ 1.5×",
            ratio <= 1.5,
        ),
        Figure(
            f"{JOBS:,} jobs submitted to Kubernetes in one call",
            submitted,
            "s",
            "",
            None,
            "none",
            True,
        ),
    ]


def left_out(listed: Any) -> int:
    """Return how many objects a list with a limit does not name."""
    return int(listed["metadata"].get("remainingItemCount", 0))


def job(name: str) -> dict[str, Any]:
    """Describe a Job that nobody starts."""
    container = {"name": "job", "image": "registry.local/python:1"}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": {"spec": spec}},
    }
