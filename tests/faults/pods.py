"""Pods as processes of this machine: the simulation's Kubernetes, by the real clock."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.simulation.kube_objects import Pod
from tests.simulation.kubernetes import KubeSystem
from tests.simulation.luck import Calm

TICK = 0.1  # seconds between two looks of the controller


class Container:
    """The first process of a pod; to the Kubernetes, what a simulated process is."""

    def __init__(self, words: list[str], env: dict[str, str], log: Path) -> None:
        self.place: Any = None
        self.at_end: list[Callable[[Any], None]] = []
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                words, env=env, stdout=output, stderr=output, start_new_session=True, cwd="/"
            )

    @property
    def dead(self) -> bool:
        return (self.process.returncode or 0) < 0

    @property
    def result(self) -> int | None:
        return self.process.returncode


class RealTime:
    """To the Kubernetes, what the simulation's kernel is."""

    pids = 1000

    @property
    def now(self) -> float:
        return time.time()

    def say(self, text: str) -> None:
        """Nobody listens."""

    def signal(self, container: Container, number: int) -> None:
        container.process.send_signal(number)

    def kill(self, container: Container) -> None:
        os.killpg(container.process.pid, signal.SIGKILL)


class Pods:
    """Answers the kubectl of one site, and starts what its Jobs describe."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.socket = folder / "socket"
        self.containers: list[Container] = []
        kernel: Any = RealTime()
        start: Any = self._start
        self.system = KubeSystem(kernel, Calm(), start)
        self.system.folder = folder / "mounts"
        self.lock = threading.Lock()
        self.is_over = threading.Event()
        self.server = socketserver.ThreadingUnixStreamServer(str(self.socket), self._handler())
        for target in (self.server.serve_forever, self._control):
            threading.Thread(target=target, daemon=True).start()

    def close(self) -> None:
        self.is_over.set()
        self.server.shutdown()
        self.server.server_close()

    def _control(self) -> None:
        while not self.is_over.wait(TICK):
            with self.lock:
                self._reap()
                self.system.tick()

    def _reap(self) -> None:
        for container in list(self.containers):
            if container.process.poll() is not None:
                self.containers.remove(container)
                for act in container.at_end:
                    act(container)

    def _start(self, pod: Pod) -> Container:
        described = pod.job.template["spec"]["containers"][0]
        env = {one["name"]: str(one.get("value", "")) for one in described["env"]}
        env |= {"HOSTNAME": pod.name, "PATH": "/usr/bin:/bin", "TMPDIR": str(self.folder)}
        if pod.mount:
            env["DRAY_SECRETS"] = pod.mount
        container = Container(described["command"], env, self.folder / "pods.log")
        self.containers.append(container)
        return container

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            if "helper" in asked:
                return {"there": self.system.helper() is not None}
            reply = self.system.answer(asked["method"], asked["path"], asked["thing"])
            return {"code": reply.code, "record": reply.record}

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        answer = self._answer

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                asked = json.loads(self.rfile.readline())
                self.wfile.write(json.dumps(answer(asked)).encode() + b"\n")

        return Handler
