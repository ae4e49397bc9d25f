"""dray forward: real sockets on both sides."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.rigs.link import Link
from tests.rigs.processes import free_ports
from tests.sessions.conftest import Enter, Inside

pytestmark = pytest.mark.sessions

# Answers each connection with what it was sent, once that has ended.
ECHO = """
import socket, sys, threading
where = sys.argv[1]
if where.startswith("/"):
    server = socket.socket(socket.AF_UNIX); server.bind(where)
else:
    server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", int(where)))
server.listen(100)
print("ready", flush=True)
def serve(one):
    while True:
        data = one.recv(65536)
        if not data: break
        one.sendall(data)
    one.shutdown(socket.SHUT_WR); one.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


@contextmanager
def echo(inside: Inside, where: str) -> Iterator[None]:
    with inside.start("exec", inside.job, "--", "python3", "-c", ECHO, where) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield
        server.kill()


class Forwarding:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.said: list[str] = []
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(line.decode() for line in self.process.stderr)

    def port(self) -> int:
        found = wait_for(lambda: re.search(r"127\.0\.0\.1:(\d+)", "".join(self.said)), 60)
        return int(found[1])


@contextmanager
def forwarding(inside: Inside, *words: str) -> Iterator[Forwarding]:
    with inside.start("forward", inside.job, *words) as process:
        forwarded = Forwarding(process)
        yield forwarded
        process.terminate()
        process.wait(30)
        forwarded.reading.join(30)


def talk(port: int, data: bytes) -> bytes:
    """What comes back until the other side ends, too."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as near:
        received = bytearray()

        def receive() -> None:
            while piece := near.recv(65536):
                received.extend(piece)

        reader = threading.Thread(target=receive)
        reader.start()
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        reader.join(100)
    return bytes(received)


def test_a_port_of_the_job_is_one_of_this_machine(on: str, running: Enter) -> None:
    inside, (port,) = running(on), free_ports(1)
    data = os.urandom(2_000_000)
    with echo(inside, str(port)), forwarding(inside, f"0:{port}") as forwarded:
        assert talk(forwarded.port(), data) == data
        assert talk(forwarded.port(), b"") == b""


def test_a_socket_of_the_job(running: Enter, dray: Dray) -> None:
    inside, path = running("local"), str(dray.home / "s")
    with echo(inside, path), forwarding(inside, path) as forwarded:
        assert talk(forwarded.port(), b"through a path") == b"through a path"


def test_fifty_connections_at_once_and_a_slow_one(dray: Dray, hpc: Hpc, running: Enter) -> None:
    hpc.offer(dray)
    inside, (port,) = running("hpc"), free_ports(1)
    pieces = [os.urandom(200_000) for _ in range(50)]
    with echo(inside, str(port)), forwarding(inside, f"0:{port}") as forwarded:
        here = forwarded.port()
        slow = socket.create_connection(("127.0.0.1", here))
        slow.settimeout(0.5)
        with pytest.raises(TimeoutError):  # nobody reads what it gets back
            slow.sendall(b"x" * (256 << 20))
        with ThreadPoolExecutor(50) as threads:
            assert list(threads.map(lambda piece: talk(here, piece), pieces)) == pieces
        slow.close()


def test_a_large_transfer(dray: Dray, hpc: Hpc, running: Enter) -> None:
    hpc.offer(dray)
    inside, (port,) = running("hpc"), free_ports(1)
    block = os.urandom(1 << 20)
    with echo(inside, str(port)), forwarding(inside, f"0:{port}") as forwarded:
        sent, received = hashlib.sha256(), hashlib.sha256()
        with socket.create_connection(("127.0.0.1", forwarded.port())) as near:

            def send() -> None:
                for number in range(200):
                    piece = block[number:] + block[:number]
                    sent.update(piece)
                    near.sendall(piece)
                near.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            while piece := near.recv(1 << 18):
                received.update(piece)
            sender.join()
        assert received.digest() == sent.digest()


def test_nobody_at_the_other_end(running: Enter) -> None:
    inside, (port,) = running("local"), free_ports(1)
    with forwarding(inside, f"0:{port}") as forwarded:
        assert talk(forwarded.port(), b"") == b""
        wait_for(lambda: "Connection refused" in "".join(forwarded.said))


def test_a_port_that_is_taken_here(running: Enter) -> None:
    inside = running("local")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = inside.dray("forward", inside.job, str(port), check=False)
    assert ended.returncode == 2
    assert "cannot be listened on here" in ended.stderr
    assert f"0:{port}" in ended.stderr


def test_a_port_that_is_taken_in_the_job(running: Enter) -> None:
    inside = running("local")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = inside.dray("forward", inside.job, "--reverse", f"5678:{port}", check=False)
        assert ended.returncode == 4
        assert f"port {port} of the job cannot be listened on" in ended.stderr
        assert "already in use" in ended.stderr
        with forwarding(inside, "--reverse", f"5678:{port}", "5678:0") as other:
            wait_for(lambda: "of the job leads to port 5678 here" in "".join(other.said))
            assert f"port {port} of the job cannot be listened on" in "".join(other.said)


@pytest.mark.parametrize("fault", ["cut", "frozen"])
def test_a_lost_link_is_made_again(
    dray: Dray, hpc: Hpc, link: Link, running: Enter, fault: str
) -> None:
    hpc.offer(dray)
    inside, (port,) = running("hpc"), free_ports(1)
    server = dray.home / "server.py"
    server.write_text(ECHO)
    inside.exec("sh", "-c", f"nohup python3 {server} {port} >/dev/null 2>&1 & sleep 1")
    with forwarding(inside, f"0:{port}") as forwarded:
        assert talk(forwarded.port(), b"before") == b"before"
        if fault == "cut":
            link.cut()
        else:
            link.frozen.set()
        wait_for(lambda: "connecting again" in "".join(forwarded.said), 60)
        link.frozen.clear()
        link.cut()
        wait_for(lambda: "connected again" in "".join(forwarded.said), 90)
        assert talk(forwarded.port(), b"after") == b"after"


def test_in_reverse(on: str, running: Enter) -> None:
    if on == "k8s":
        pytest.skip("what is asked here is the same for all that relay")
    inside, (there,) = running(on), free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        with forwarding(inside, "--reverse", f"{port}:{there}") as forwarded:
            wait_for(lambda: "of the job leads to" in "".join(forwarded.said), 60)
            call = f"import socket; s = socket.create_connection(('127.0.0.1', {there})); "
            call += "s.sendall(b'hello'); s.shutdown(1); print(s.recv(99).decode())"
            caller = inside.start("exec", inside.job, "--", "python3", "-c", call)
            far, _ = here.accept()
            with far:
                assert far.recv(99) == b"hello"
                far.sendall(b"and back")
            assert caller.communicate(timeout=60)[0] == b"and back\n"


def test_datagrams(dray: Dray, hpc: Hpc, running: Enter) -> None:
    hpc.offer(dray)
    inside, (port,) = running("hpc"), free_ports(1)
    serve = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); "
    serve += f"s.bind(('127.0.0.1', {port})); print('ready', flush=True)\n"
    serve += "while True: d, a = s.recvfrom(65536); s.sendto(d[::-1], a)"
    server = inside.start("exec", inside.job, "--", "python3", "-c", serve)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    with forwarding(inside, "--udp", f"0:{port}") as forwarded:
        here = ("127.0.0.1", forwarded.port())
        senders = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(3)]
        for number, one in enumerate(senders):
            one.settimeout(10)
            one.sendto(b"abc%d" % number, here)
        for number, one in enumerate(senders):
            assert one.recv(99) == b"%dcba" % number
            one.close()
        with socket.socket(type=socket.SOCK_DGRAM) as one:
            one.settimeout(10)
            one.sendto(b"x" * 40_000, here)
            assert one.recv(65536) == b"x" * 40_000
    server.kill()
    server.communicate()
