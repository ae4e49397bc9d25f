"""A real Ray cluster, in a network namespace of its own: a head and workers, each a node that can
be killed. Ray's control service listens on every address, so it must not be in the machine's own
namespace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.rigs.processes import until

STARTING = 300.0  # seconds, on a busy machine
PORT = 6400
DASHBOARD = 8265
PATIENCE = 90  # seconds for which Ray lets a job of its own wait for GPUs; usually 900
HEAD = 2  # the last number of its address
DAEMONS = ("gcs_server", "raylet", "dashboard", "log_monitor")  # whose logs tell of their end
GPUS, CPUS = 2, 2  # of every node, but the head has no GPU; Ray takes our word for it


class NodeEnded(RuntimeError):
    """A node has ended by itself; says what it said."""


class Ray:
    """``token``: what requests have to bring, if they have to. Each node but the head has a disk of
    its own at ``own`` and at ``scratch``; all else is shared."""

    def __init__(self, folder: Path, bin_folder: Path, token: str = "") -> None:
        self.folder = folder
        self.bin = bin_folder
        self.token = token
        self.space = f"dray-ray-{os.getpid()}"
        self.link = f"dr{os.getpid() % 10**6}"
        self.subnet = f"10.{os.getpid() // 250 % 250}.{os.getpid() % 250}"
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.own = folder / "own"
        self.scratch = folder / "scratch"
        self.home = folder / "home"

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def address(self) -> str:
        return f"http://{self.address_of(HEAD)}:{DASHBOARD}"

    def address_of(self, node: int) -> str:
        return f"{self.subnet}.{node}"

    def start(self, workers: int = 2) -> None:
        for path in (self.home, self.own, self.scratch):
            path.mkdir(parents=True)
        self._make_network()
        self.start_head()
        for number in range(workers):
            self.add_node(HEAD + 1 + number)

    def _make_network(self) -> None:
        inner = f"{self.link}i"
        for words in (
            f"ip netns add {self.space}",
            f"ip link add {self.link} type veth peer name {inner} netns {self.space}",
            f"ip addr add {self.subnet}.1/24 dev {self.link}",
            f"ip link set {self.link} up",
            f"ip -n {self.space} link set lo up",
            f"ip -n {self.space} link set {inner} up",
            *(f"ip -n {self.space} addr add {self.subnet}.{n}/24 dev {inner}" for n in range(2, 9)),
        ):
            subprocess.run(words.split(), check=True)

    def start_head(self) -> None:
        self._bring_up(HEAD, self._start_head, self.alive)

    def _bring_up(self, node: int, start: Callable[[], None], is_up: Callable[[], object]) -> None:
        """Start a node, and again where Ray gives up: it does after half a minute, which a busy
        machine may need."""
        for tries_left in range(5, -1, -1):
            start()
            try:
                until(is_up, STARTING)
            except NodeEnded:
                self._kill(self._processes_of(node))
                if not tries_left:
                    raise
            else:
                return

    def _start_head(self) -> None:
        self._start(
            HEAD,
            "--head",
            f"--port={PORT}",
            "--dashboard-host=0.0.0.0",
            f"--dashboard-port={DASHBOARD}",
            "--ray-client-server-port=10001",
            f"--temp-dir={self.folder}/t",
            "--include-dashboard=true",
            "--num-gpus=0",
        )

    def add_node(self, node: int) -> None:
        before = self.alive()
        self._bring_up(node, lambda: self._start_worker(node), lambda: self.alive() - before)

    def _start_worker(self, node: int) -> None:
        self._start(
            node,
            f"--address={self.address_of(HEAD)}:{PORT}",
            f"--dashboard-agent-listen-port={52400 + node}",
            f"--num-gpus={GPUS}",
        )

    def _start(self, node: int, *flags: str) -> None:
        words = ["ip", "netns", "exec", self.space]
        if node != HEAD:
            mounts = [f"mount -t tmpfs -o size=1g none {one}" for one in (self.own, self.scratch)]
            words += ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]
        words += [str(self.bin / "ray"), "start", "--block"]
        words += [f"--node-ip-address={self.address_of(node)}", "--disable-usage-stats"]
        words += [f"--num-cpus={CPUS}", "--object-store-memory=80000000"]
        env = {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "DRAY_TEST_NODE": str(node),
            "TMPDIR": str(self.scratch),
            "RAY_JOB_START_TIMEOUT_SECONDS": str(PATIENCE),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            # Usually 100: connections that leave a request behind are noticed sooner.
            "RAY_STATE_SERVER_MAX_HTTP_REQUEST": "40",
            # A busy machine is no reason to give anything up.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
            "RAY_agent_register_timeout_ms": "600000",
            "RAY_worker_register_timeout_seconds": "600",
            "RAY_health_check_timeout_ms": "60000",
        }
        if self.token:
            env.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=self.token)
        else:
            env.update(RAY_AUTH_MODE="disabled")
        with (self.folder / f"node{node}.log").open("ab") as log:
            self.nodes[node] = subprocess.Popen(
                [*words, *flags], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill_node(self, node: int) -> None:
        """Switch a node off: nothing of it is left, and nothing says goodbye."""
        self._kill(self._processes_of(node))
        self.nodes.pop(node).wait(30)

    def _processes_of(self, node: int) -> list[int]:
        """List what runs on a node: all that has inherited its mark."""
        mark = b"DRAY_TEST_NODE=%d\0" % node
        return [pid for pid in self._all() if mark in environment_of(pid)]

    def _all(self) -> list[int]:
        words = ["ip", "netns", "pids", self.space]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return [int(one) for one in said.split()]

    def _kill(self, pids: list[int]) -> None:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # nobody notices that another has gone
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def call(self, path: str) -> Any:
        request = urllib.request.Request(self.address + path)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def alive(self) -> set[str]:
        """Return the nodes that Ray takes to be there, by the ids that it has given them."""
        try:
            found = self.call("/api/v0/nodes")["data"]["result"]["result"]
        except OSError:
            found = []
        self.require_nodes()
        return {one["node_id"] for one in found if one["state"] == "ALIVE"}

    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("/api/jobs/")
        return found

    def logs(self) -> list[Path]:
        """Return what Ray has written down."""
        found = (self.folder / "t").resolve().rglob("logs/*")
        return [one for one in found if one.is_file()]

    def running(self, job: str) -> set[int]:
        """Return the nodes on which a job's command runs."""
        mark = b"DRAY_JOB_ID=%s\0" % job.encode()
        about = [environment_of(pid) for pid in self._all()]
        return {
            node
            for node in self.nodes
            for one in about
            if mark in one and b"DRAY_TEST_NODE=%d\0" % node in one
        }

    def require_nodes(self) -> None:
        """Raise NodeEnded, with what Ray has written down about it, if one has ended by itself."""
        for node, process in self.nodes.items():
            if process.poll() is not None:
                raise NodeEnded(f"node {node} has ended by itself:\n{self._account(node)}")

    def _account(self, node: int) -> str:
        told = [self.folder / f"node{node}.log"]
        told += [one for one in self.logs() if one.name.startswith(DAEMONS)]
        return "\n".join(f"-- {one.name}\n{end_of(one)}" for one in told)

    def stop(self) -> None:
        until(lambda: self._kill(self._all()) or not self._all(), 30)
        for process in self.nodes.values():
            process.wait(30)
        subprocess.run(["ip", "netns", "del", self.space], check=False)
        subprocess.run(["ip", "link", "del", self.link], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def end_of(path: Path) -> str:
    text = path.read_text(errors="replace")
    return text[-3000:]


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""


if __name__ == "__main__":  # for looking at it by hand: rigs.ray FOLDER BIN WORKERS [TOKEN]
    rig = Ray(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[4:5])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        rig.start(int(sys.argv[3]))
        print(rig.address, rig.space, flush=True)
        while True:
            time.sleep(60)
    finally:
        rig.stop()
