"""Each end of a session trusts neither the other nor its neighbours."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.sessions import frames
from dray.node.sessions.link import (
    FLOOD,
    MOST_CHANNELS,
    MOST_PATIENCE,
    SILENCE,
    Channel,
    End,
    Link,
    patience_of,
)
from dray.node.sessions.ready import Interests
from dray.transport.ways import Connection, SocketWay
from tests.conftest import Dray, wait_for
from tests.sessions.conftest import Enter, Inside

pytestmark = pytest.mark.sessions
ANOTHER = 54321  # a user who is not the one of the tests


def socket_of(inside: Inside) -> str:
    door = inside.dray.jobs / inside.job / "attempts/001/door.json"
    return str(json.loads(door.read_text())["socket"])


# -- neighbours on the node -----------------------------------------------------------------------


# The tests' Python may be where only its owner can read.
BECOME = f"""
import os, socket, sys
os.setgroups([]); os.setgid({ANOTHER}); os.setuid({ANOTHER})
"""


def as_another(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", BECOME + code, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


KNOCK = """
s = socket.socket(socket.AF_UNIX); s.settimeout(5)
try: s.connect(sys.argv[1])
except OSError as error: sys.exit("refused: %s" % error.strerror)
print(repr(s.recv(100)))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_node_is_not_let_in(running: Enter) -> None:
    inside = running("local")
    path = socket_of(inside)
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert "Permission denied" in as_another(KNOCK, path).stderr
    # Even where the folder is open, by somebody's mistake.
    os.chmod(os.path.dirname(path), 0o755)
    os.chmod(path, 0o777)
    assert as_another(KNOCK, path).stdout in ("b''\n", "")
    assert inside.output("echo", "mine") == "mine"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_door_that_is_somebody_elses_is_not_used(
    running: Enter, dray: Dray, tmp_path: Path
) -> None:
    """A job's own code can write where its door is."""
    inside = running("local")
    folder = Path(tempfile.mkdtemp(prefix="dray-test-", dir="/tmp"))
    folder.chmod(0o777)
    listen = "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])\n"
    listen += "s.listen(); print('ready', flush=True); c, _ = s.accept(); print(c.recv(9999))"
    words = [sys.executable, "-c", BECOME + listen, str(folder / "s")]
    server = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    try:
        door = dray.jobs / inside.job / "attempts/001/door.json"
        told = json.loads(door.read_text())
        door.write_text(json.dumps({**told, "socket": str(folder / "s")}))
        ended = inside.exec("cat", given=b"a secret")
        assert ended.returncode != 0
        assert b"belongs to somebody else" in ended.stderr
        door.write_text(json.dumps(told))
    finally:
        server.kill()
        said = server.communicate()[0]
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert b"secret" not in said


# -- a laptop that means ill, or is broken ---------------------------------------------------------


def knock(path: str) -> socket.socket:
    near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    near.settimeout(100)
    near.connect(path)
    return near


HELLO = frames.record_frame(0, frames.HELLO, {"version": frames.VERSION})


def test_the_server_survives_whatever_is_sent(running: Enter) -> None:
    inside = running("local")
    path = socket_of(inside)
    chance = random.Random(1)
    for number in range(60):
        with knock(path) as near:
            garbage = chance.randbytes(chance.randrange(1, 5000))
            if number % 3 == 1:
                garbage = HELLO + garbage
            if number % 3 == 2:
                garbage = HELLO + frames.frame(
                    chance.randrange(6), chance.randrange(16), chance.randbytes(8)
                )
            near.sendall(garbage)
            near.shutdown(socket.SHUT_WR)
            until_end(near)
    assert inside.output("echo", "alive") == "alive"


def until_end(near: socket.socket) -> bytes:
    received = b""
    with suppress(OSError):
        while piece := near.recv(65536):
            received += piece
    return received


BAD = [
    {"what": "program", "argv": []},
    {"what": "program", "argv": "ls"},
    {"what": "program", "argv": ["a\0b"]},
    {"what": "program", "argv": [1]},
    {"what": "tcp", "port": 70000},
    {"what": "tcp", "port": "22"},
    {"what": "tcp", "port": True},
    {"what": "unix", "path": "x" * 500},
    {"what": "unix", "path": ""},
    {"what": "terminal", "rows": -1, "columns": 3, "term": "x"},
    {"what": "terminal", "rows": 3, "columns": 3, "term": ""},
    {"what": "terminal", "rows": 3, "columns": 3, "term": "x", "name": "no such"},
    {"what": "listen", "port": -1},
    {"what": []},
    {},
]


def test_what_makes_no_sense_is_refused(running: Enter) -> None:
    inside = running("local")
    answers = []
    with Connection(SocketWay(socket_of(inside))) as connection:

        class Waiting(End):
            def refused(self, record: dict[str, Any]) -> None:
                answers.append(record["error"])

        for record in BAD:
            connection.link.open(record, lambda channel: Waiting())
        until = time.monotonic() + 30
        while len(answers) < len(BAD) and time.monotonic() < until:
            connection.turn(Interests(), 1)
        assert connection.link.is_alive
    assert len(answers) == len(BAD)


def test_who_never_reads_is_given_up(running: Enter) -> None:
    inside = running("local")
    with knock(socket_of(inside)) as near:
        near.sendall(HELLO)
        pings = frames.frame(0, frames.PING) * (10 * FLOOD // frames.HEAD.size)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            near.sendall(pings)
    assert inside.output("echo", "alive") == "alive"


# -- a node that means ill -------------------------------------------------------------------------


class Pair:
    """The laptop's end, and what a node may say to it."""

    def __init__(self) -> None:
        here, self.there = socket.socketpair()
        self.here = here
        self.there.settimeout(5)
        self.asked: list[dict[str, Any]] = []
        self.link = Link(here.fileno(), here.fileno(), 1, self._is_asked, frames.MARK)
        self.there.sendall(frames.MARK + HELLO)
        self.read()

    def _is_asked(self, channel: Channel, record: dict[str, Any]) -> None:
        self.asked.append(record)
        channel.refuse("no")

    def read(self) -> None:
        self.link.read()

    def say(self, *said: bytes) -> None:
        for one in said:
            self.there.sendall(one)
            self.read()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.here.close()
    made.there.close()


class Recording(End):
    def __init__(self) -> None:
        self.received = 0
        self.is_closed = False

    def data(self, piece: bytes) -> None:
        self.received += len(piece)

    def closed(self) -> None:
        self.is_closed = True


def test_more_than_the_window_is_not_taken(pair: Pair) -> None:
    end = Recording()
    channel = pair.link.open({}, lambda _: end)
    piece = frames.frame(channel.number, frames.DATA, b"x" * frames.LARGEST)
    for _ in range(frames.WINDOW // frames.LARGEST):
        pair.say(piece)
    assert pair.link.is_alive
    pair.say(piece)
    assert not pair.link.is_alive
    assert end.received == frames.WINDOW
    assert end.is_closed


@pytest.mark.parametrize(
    "said",
    [
        frames.frame(1, frames.CREDIT, frames.NUMBER.pack(1)),  # nothing was sent yet
        frames.record_frame(1, frames.OPEN, {}),  # ours to open
        frames.record_frame(0, frames.HELLO, {"version": 1}),  # once is enough
        frames.frame(1, frames.DATA, b"x")[:5] + b"\xff\xff\xff\xff",
        frames.frame(1, 99),
        frames.frame(1, frames.EXIT, b"[" * 100_000),
        frames.frame(1, frames.EXIT, b"[1]"),
        frames.frame(1, frames.RESIZE, b"\0\0\0"),
        frames.frame(1, frames.END) + frames.frame(1, frames.DATA, b"late"),
    ],
)
def test_what_no_honest_node_says(pair: Pair, said: bytes) -> None:
    pair.link.open({}, lambda _: End())
    pair.say(*(said[at : at + 1000] for at in range(0, len(said), 1000)))
    assert not pair.link.is_alive
    assert pair.link.is_foreign


@pytest.mark.parametrize(
    ("asked", "borne"),
    [(None, SILENCE), (300, 300), (10**9, MOST_PATIENCE), (-1, SILENCE), ("600", SILENCE)],
)
def test_the_silence_that_is_borne_has_a_limit(asked: object, borne: float) -> None:
    assert patience_of({"patience": asked}) == borne


def test_who_was_stopped_itself_blames_nobody(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 10 * SILENCE)
    pair.link.tick()
    assert pair.link.is_alive
    for later in range(int(SILENCE) + 2):
        monkeypatch.setattr(time, "monotonic", lambda at=later: now + 10 * SILENCE + at)
        pair.link.tick()
    assert not pair.link.is_alive


def test_a_node_can_open_nothing_without_end(pair: Pair) -> None:
    for number in range(2, 2 * MOST_CHANNELS + 20, 2):
        pair.say(frames.record_frame(number, frames.OPEN, {"what": "tcp", "port": 22}))
    assert pair.link.is_alive
    assert not pair.link.channels  # each was refused


@given(st.lists(st.binary(max_size=400), max_size=20))
def test_no_bytes_break_the_reader(pieces: list[bytes]) -> None:
    pair = Pair()
    try:
        pair.link.open({}, lambda _: End())
        for piece in pieces:
            if piece:
                pair.say(piece)
    finally:
        pair.here.close()
        pair.there.close()


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    chance = random.Random(7)
    sent = [(chance.randrange(9), frames.DATA, chance.randbytes(50)) for _ in range(200)]
    stream = b"".join(frames.frame(*one) for one in sent)
    reader, found = frames.Reader(), []
    while stream:
        size = chance.randrange(1, 40)
        found += list(reader.feed(stream[:size]))
        stream = stream[size:]
    assert found == sent


def test_a_banner_without_end_is_not_kept() -> None:
    here, there = socket.socketpair()
    link = Link(here.fileno(), here.fileno(), 1, lambda *_: None, frames.MARK)
    here.setblocking(False)
    there.setblocking(False)
    for _ in range(1000):
        with suppress(BlockingIOError):
            there.send(b"hello! " * 1000)
        if not link.is_alive:
            break
        link.read()
    assert "prints without end" in link.why
    here.close()
    there.close()


def test_a_forward_offers_nothing_of_this_machine(running: Enter, dray: Dray) -> None:
    """A job that has its own server at the door cannot reach a port of the laptop."""
    inside = running("local")
    fake = dray.home / "fake"
    with (
        socket.create_server(("127.0.0.1", 0)) as private,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind(str(fake))
        server.listen()
        door = dray.jobs / inside.job / "attempts/001/door.json"
        told = json.loads(door.read_text())
        door.write_text(json.dumps({**told, "socket": str(fake)}))
        process = inside.start("forward", inside.job, "0:8888")
        far, _ = server.accept()
        port = private.getsockname()[1]
        ask = {"what": "tcp", "port": port}
        on = {"what": "incoming", "on": 1, "port": port}
        far.sendall(frames.MARK + HELLO)
        far.sendall(frames.record_frame(2, frames.OPEN, ask))
        far.sendall(frames.record_frame(4, frames.OPEN, on))
        refused = b""
        wait_until = time.monotonic() + 30
        while refused.count(b"nothing of this machine") < 2 and time.monotonic() < wait_until:
            refused += far.recv(65536)
        assert refused.count(b"nothing of this machine") == 2
        private.settimeout(0.2)
        with pytest.raises(TimeoutError):
            private.accept()
        process.kill()
        process.communicate()
        far.close()
        door.write_text(json.dumps(told))
    wait_for(lambda: inside.exec("true").returncode == 0)
