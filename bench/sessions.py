"""Into a running job on a real Slurm, over a link with 50 ms of round trip."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.rigs.processes import free_ports, until

from bench.measure import Figure, best_of, seconds
from bench.slurm import Laptop, short_folder

ROUNDS = 7
LOAD = 64 << 20  # bytes that go through a forwarded port
# Sends as much as it is asked for, and one byte back for one byte.
SERVER = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
def serve(one):
    with one:
        asked = one.recv(1)
        if asked == b"L":
            for _ in range(int(sys.argv[2]) >> 16): one.sendall(b"x" * 65536)
        else:
            one.sendall(asked)
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


# Sends every datagram back.
MIRROR = """
import socket, sys
mirror = socket.socket(type=socket.SOCK_DGRAM)
mirror.bind(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    piece, sender = mirror.recvfrom(65536)
    mirror.sendto(piece, sender)
"""
DATAGRAM = 1200  # bytes: what WebRTC sends at most
STREAM = 1250  # datagrams a second: a picture of 12 Mbit/s
SECONDS = 4


class Visitor(Laptop):
    """A laptop with a job that runs there."""

    def __enter__(self) -> Visitor:
        self.sshd.forwards = True
        super().__enter__()
        words = [self.program(), "run", "--on", "hpc", "--", "sleep", "3600"]
        self.job = self.said(*words)
        door = self.root / "jobs" / self.job / "attempts/001/door.json"
        until(door.exists, 60)
        self.number = json.loads(door.read_text())["place"]["number"]
        self.round_trip()
        return self

    def __exit__(self, *_: object) -> None:
        self.said(self.program(), "stop", "--now", self.job)
        until((self.root / "jobs" / self.job / "end.json").exists, 60)
        super().__exit__()

    def program(self) -> str:
        return str(Path(sys.executable).parent / "dray")

    def said(self, *words: str) -> str:
        options = {"cwd": self.tree, "env": self.env, "stderr": subprocess.DEVNULL}
        return subprocess.check_output(words, text=True, **options).strip()  # type: ignore[call-overload, no-any-return]

    def exec(self) -> None:
        self.dray("exec", self.job, "--", "true")

    def srun(self) -> None:
        """Start a program in the job by hand, on the login node itself."""
        words = ["srun", f"--jobid={self.number}", "--overlap", "-N1", "-n1", "--mem=0", "true"]
        subprocess.run(words, env=self.slurm.env, check=True)

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, cwd=self.tree, env=self.env, stdout=pipe, stderr=pipe)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def keystroke(laptop: Visitor) -> float:
    """Return the best time from a key to its echo, in a shell."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(laptop.tree)
        os.execve(laptop.program(), ["dray", "shell", laptop.job], laptop.env)
    try:
        read_until(terminal, b"", 5.0)
        os.write(terminal, b"cat\r")
        read_until(terminal, b"cat", 5.0)
        time.sleep(1.0)
        read_until(terminal, b"", 0.5)
        times = []
        for number in range(30):
            key = b"%c" % (97 + number % 26)
            times.append(
                seconds(lambda key=key: (os.write(terminal, key), read_until(terminal, key, 5)))
            )
        return min(times)
    finally:
        os.write(terminal, b"\r\x04\rexit\r")
        read_until(terminal, b"no such text", 3.0)
        os.close(terminal)
        os.waitpid(pid, 0)


def read_until(terminal: int, text: bytes, most: float) -> None:
    """Read until the text comes, or for so long."""
    found, until_then = b"", time.monotonic() + most
    while (left := until_then - time.monotonic()) > 0 and not (text and text in found):
        if select.select([terminal], [], [], left)[0]:
            try:
                found += os.read(terminal, 65536)
            except OSError:
                return


def load(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as near:
        near.sendall(b"L")
        received = 0
        while piece := near.recv(1 << 18):
            received += len(piece)
        assert received == LOAD


def greet(port: int) -> None:
    """Make a new connection, and send one byte there and back."""
    with socket.create_connection(("127.0.0.1", port)) as near:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near.sendall(b"g")
        assert near.recv(1) == b"g"


def mirrored(port: int) -> tuple[float, float, float]:
    """Send a stream of datagrams there and back; return the delay that half of them had at most,
    and nine of ten, and which share came back."""
    delays: list[float] = []
    with socket.socket(type=socket.SOCK_DGRAM) as near:
        near.connect(("127.0.0.1", port))
        near.settimeout(2.0)
        near.send(b"first" * 10)
        near.recv(DATAGRAM)

        def listen() -> None:
            with suppress(TimeoutError):
                while True:
                    sent = float(near.recv(DATAGRAM).split(b" ", 1)[0])
                    delays.append(time.perf_counter() - sent)

        listener = threading.Thread(target=listen)
        listener.start()
        begin = time.perf_counter()
        for number in range(STREAM * SECONDS):
            time.sleep(max(begin + number / STREAM - time.perf_counter(), 0.0))
            near.send(f"{time.perf_counter()} ".encode().ljust(DATAGRAM, b"x"))
        listener.join()
    delays.sort()
    share = len(delays) / (STREAM * SECONDS)
    return delays[len(delays) // 2], delays[len(delays) * 9 // 10], share


@contextmanager
def forwarded(laptop: Visitor, port: int) -> Iterator[tuple[int, int]]:
    """Forward a port by dray, and by ssh: the job's node is the login node here."""
    (by_ssh,) = free_ports(1)
    with forwarded_by_dray(laptop, f"0:{port}") as by_dray:
        ssh = ("ssh", "-N", "-L", f"{by_ssh}:127.0.0.1:{port}", "hpc")
        with laptop.started(*ssh):
            until(lambda: not socket.socket().connect_ex(("127.0.0.1", by_ssh)), 30)
            yield by_dray, by_ssh


@contextmanager
def forwarded_by_dray(laptop: Visitor, *words: str) -> Iterator[int]:
    with laptop.started(laptop.program(), "forward", laptop.job, *words) as dray:
        assert dray.stderr is not None
        line = dray.stderr.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line
        threading.Thread(target=dray.stderr.read, daemon=True).start()
        yield int(found[1])


def run(_: Path) -> list[Figure]:
    with short_folder() as folder, Visitor(folder) as laptop:
        laptop.exec()  # the connection stands from now on, and a warm process waits
        time.sleep(2)
        both = best_of({"exec": laptop.exec, "srun": laptop.srun}, ROUNDS)
        floor = laptop.trip + both["srun"]
        echo = keystroke(laptop)
        (port,) = free_ports(1)
        serving = (laptop.program(), "exec", laptop.job, "--", sys.executable, "-c", SERVER)
        with laptop.started(*serving, str(port), str(LOAD)) as server:
            assert server.stdout is not None
            server.stdout.readline()
            with forwarded(laptop, port) as (by_dray, by_ssh):
                acts = {"dray": lambda: load(by_dray), "ssh": lambda: load(by_ssh)}
                loads = best_of(acts, 3)
                greeting = best_of({"greet": lambda: greet(by_dray)}, 20)["greet"]
        mirroring = (laptop.program(), "exec", laptop.job, "--", sys.executable, "-c", MIRROR)
        with laptop.started(*mirroring, str(port)) as server:
            assert server.stdout is not None
            server.stdout.readline()
            with forwarded_by_dray(laptop, "--udp", f"0:{port}") as near:
                half, most, share = mirrored(near)
    speed, ssh_speed = (LOAD / loads[name] / 1e6 for name in ("dray", "ssh"))
    return [
        figure(
            "`dray exec JOB -- true`", both["exec"], "round trip + `srun --overlap true`", floor, 2
        ),
        figure("a key and its echo in `dray shell`", echo, "round trip", laptop.trip, 1.2),
        Figure(
            f"{LOAD >> 20} MB through `dray forward`",
            speed,
            "MB/s",
            f"`ssh -L`: {ssh_speed:.3g} MB/s",
            speed / ssh_speed,
            "≥ 0.8×",
            speed / ssh_speed >= 0.8,
        ),
        figure(
            "a new connection through it, and a byte back", greeting, "round trip", laptop.trip, 1.5
        ),
        figure(
            "a datagram there and back, of a picture's 12 Mbit/s (half of them)",
            half,
            "round trip",
            laptop.trip,
            1.2,
        ),
        figure(
            f"the same, nine of ten ({share:.1%} came back)", most, "round trip", laptop.trip, 1.5
        ),
    ]


def figure(what: str, value: float, against: str, floor: float, goal: float) -> Figure:
    told = f"{against}: {floor * 1000:.0f} ms"
    return Figure(
        what, value * 1000, "ms", told, value / floor, f"≤ {goal}×", value / floor <= goal
    )
