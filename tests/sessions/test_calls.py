"""A job that is called out to the login node: who is let in, and who is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.sessions import calling, proof
from dray.node.sessions.calls import Call, Calls, append, parse, path_beside
from dray.node.sessions.dialing import Dialing
from dray.node.sessions.ready import Interests
from tests.conftest import wait_for
from tests.sessions.test_distrust import BECOME

pytestmark = pytest.mark.sessions
HERE = ["127.0.0.1"]


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    made = Calls(path_beside(str(tmp_path / "door.json")))
    made.make()
    return made


class Caller(threading.Thread):
    """Somebody on the login node."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.found: socket.socket | None = None

    def run(self) -> None:
        self.found = calling.call(self.path, "localhost")

    def __enter__(self) -> Caller:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(60)
        assert not self.is_alive()
        if self.found is not None:
            self.found.close()


def answer(calls: Calls, seconds: float = 30.0) -> socket.socket | None:
    """What the job's server does, until somebody is let in or the time is over."""
    found: list[int] = []
    dialing = Dialing(calls, found.append)
    until = time.monotonic() + seconds
    while not found and time.monotonic() < until:
        wanted = Interests()
        for then in wanted.wait(min(dialing.interests(wanted), 0.05)):
            then()
    dialing.close()
    return socket.socket(fileno=found[0]) if found else None


@contextmanager
def reception(secret: bytes | None = None) -> Iterator[calling.Reception]:
    made = calling.Reception()
    made.secret = secret or made.secret
    try:
        yield made
    finally:
        made.close()


def dial(port: int) -> socket.socket:
    near = socket.create_connection(("127.0.0.1", port))
    near.settimeout(30)
    return near


def exactly(near: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (piece := near.recv(count - len(found))):
        found += piece
    return found


def test_who_calls_is_answered(calls: Calls) -> None:
    with Caller(calls.path) as caller:
        near = answer(calls)
        assert near is not None
        near.settimeout(30)
        caller.join(30)
        assert caller.found is not None
        near.sendall(b"first\0bytes")
        caller.found.settimeout(30)
        assert exactly(caller.found, 11) == b"first\0bytes"
        caller.found.sendall(b"answer")
        assert exactly(near, 6) == b"answer"
        near.close()
    assert answer(calls, 0.5) is None  # and only once


def test_each_side_has_to_know_the_secret(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's own code, or whoever else, may have written another one."""
    monkeypatch.setattr(calling, "PATIENCE", 2.0)
    with Caller(calls.path) as caller:
        wait_for(lambda: os.path.getsize(calls.path))
        told = json.loads(Path(calls.path).read_text())
        Path(calls.path).write_text("")
        append(calls.path, Call(told["addresses"], told["port"], os.urandom(proof.SECRET)))
        assert answer(calls, 1.0) is None
    assert caller.found is None


def test_who_does_not_know_the_secret_hears_no_word_of_the_session() -> None:
    with reception() as desk, dial(desk.port) as near:
        near.sendall(os.urandom(proof.NONCE))
        assert desk.wait(0.2) is None
        assert len(exactly(near, proof.NONCE + proof.PROOF)) == 64
        near.sendall(os.urandom(proof.PROOF) + b"more")
        assert desk.wait(0.2) is None
        with suppress(ConnectionError):
            assert near.recv(100) == b""
        assert not desk.guests


def test_what_the_listener_says_proves_nothing_for_a_dialer() -> None:
    with reception() as desk, dial(desk.port) as near:
        near.sendall(os.urandom(proof.NONCE))
        desk.wait(0.2)
        said = exactly(near, proof.NONCE + proof.PROOF)
        near.sendall(said[proof.NONCE :])
        assert desk.wait(0.2) is None
        assert not desk.guests


def test_what_was_heard_before_is_of_no_use(calls: Calls) -> None:
    """Somebody has heard a whole conversation, and even the secret is the same once more."""
    secret = os.urandom(proof.SECRET)
    dialer, listener = proof.Dialer(secret), proof.Listener(secret)
    from_listener = listener.take(dialer.greeting)
    from_dialer = dialer.take(from_listener)
    assert listener.take(from_dialer) == b""
    assert dialer.is_done
    assert listener.is_done
    with reception(secret) as desk, dial(desk.port) as near:
        near.sendall(dialer.greeting)
        desk.wait(0.2)
        exactly(near, proof.NONCE + proof.PROOF)
        near.sendall(from_dialer)
        assert desk.wait(0.2) is None
        assert not desk.guests
    with socket.create_server(("127.0.0.1", 0)) as false:
        append(calls.path, Call(HERE, false.getsockname()[1], secret))

        def repeat() -> None:
            near, _ = false.accept()
            with near:
                exactly(near, proof.NONCE)
                near.sendall(from_listener)
                assert exactly(near, 1) == b""  # it hears no proof, and nothing else

        thread = threading.Thread(target=repeat)
        thread.start()
        assert answer(calls, 1.0) is None
        thread.join(30)


CROWD = """
import time
port = int(sys.argv[1])
print("ready", flush=True)
held = []
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    s = socket.socket()
    try:
        s.connect(("127.0.0.1", port))
        s.sendall(b"x" * (len(held) % 40))
    except OSError: continue
    held.append(s)
    del held[:-400]
got = b""
for s in held:
    s.setblocking(False)
    try: got += s.recv(1000)[64:]
    except OSError: pass
print(len(held), repr(got))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_crowd_of_others_holds_up_nobody(calls: Calls) -> None:
    """Another user has found out the port, and connects again and again: some say nothing, some
    begin to talk."""
    with Caller(calls.path) as caller:
        wait_for(lambda: os.path.getsize(calls.path))
        port = json.loads(Path(calls.path).read_text().splitlines()[0])["port"]
        words = [sys.executable, "-c", BECOME + CROWD, str(port), "3"]
        crowd = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        near = answer(calls)
        assert near is not None
        caller.join(30)
        assert caller.found is not None
        caller.found.sendall(b"secret")
        near.settimeout(30)
        assert exactly(near, 6) == b"secret"
        near.close()
        assert b" b''" in crowd.communicate(timeout=60)[0]


@given(st.binary(max_size=300))
def test_lines_that_make_no_sense_are_left_out(line: bytes) -> None:
    for call in parse(line):
        assert 0 < call.port < 65536


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"addresses": "x", "port": 1, "secret": "00"}',
        b'{"addresses": [1], "port": 1, "secret": "00"}',
        b'{"addresses": [], "port": true, "secret": "%s"}' % (b"00" * 32),
        b'{"addresses": [], "port": 70000, "secret": "%s"}' % (b"00" * 32),
        b'{"addresses": [], "port": 1, "secret": "%s"}' % (b"00" * 31),
        b'{"addresses": [], "port": 1, "secret": "%s"}' % (b"zz" * 32),
    ],
)
def test_calls_of_the_wrong_shape(line: bytes) -> None:
    assert parse(line) == []


def test_a_line_that_is_half_there_is_read_later(calls: Calls) -> None:
    line = Call(HERE, 9, os.urandom(proof.SECRET)).line()
    with Path(calls.path).open("ab", buffering=0) as file:
        file.write(line[:10])
        assert calls.is_waiting()
        assert calls.take() == []
        file.write(line[10:] + line)
        assert [call.port for call in calls.take()] == [9, 9]
    assert not calls.is_waiting()
    calls.remove()
    assert not calls.is_waiting()
    assert calls.take() == []


def test_names_are_not_looked_up(calls: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        append(calls.path, Call(["localhost", "::1%", "no"], port, os.urandom(proof.SECRET)))
        assert answer(calls, 0.5) is None
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
