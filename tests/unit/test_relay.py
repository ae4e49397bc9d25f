"""The standing connection: nobody who is stopped, slow or gone holds up anybody else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dray.node.formats.wire import MARK
from dray.transport import lending, standing
from dray.transport.channel import Here
from dray.transport.link import AgentLink
from tests.conftest import wait_for

WAIT = """#!/bin/sh
echo asked >> "$0.asked"
n=0
while [ -e "$0.wait" ] && [ $n -lt 1000 ]; do sleep 0.1; n=$((n + 1)); done
"""


def request(verb: str, **more: object) -> bytes:
    text = json.dumps({"verb": verb, **more}).encode()
    return b"%d 0\n" % len(text) + text


class Standing:
    """A standing connection to real agents on this machine, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "link"
        self.root = folder / "root"
        self.squeue = folder / "bin/squeue"
        self.squeue.parent.mkdir()
        self.squeue.write_text(WAIT)
        self.squeue.chmod(0o755)
        self.agent = AgentLink(Here(), str(self.root), sys.executable, "slurm")
        self.agent.ask("ids")  # its file is there
        self.opened: list[subprocess.Popen[bytes]] = []
        self.thread = threading.Thread(
            target=standing.serve, args=(self.path, self.open, []), kwargs={"pings": False}
        )

    def open(self) -> subprocess.Popen[bytes]:
        self.opened.append(self.agent.open_session())
        return self.opened[-1]

    def running(self) -> int:
        return sum(one.poll() is None for one in self.opened)

    def connect(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(30)
        link.connect(str(self.path))
        return link

    def send(self, said: bytes) -> socket.socket:
        link = self.connect()
        with suppress(OSError):
            link.sendall(said)
        return link

    def ask(self, verb: str, **more: object) -> Any:
        return answer(self.send(request(verb, **more)))

    def stop(self) -> None:
        for one in self.opened:
            with suppress(OSError):
                one.kill()
        self.thread.join(30)
        assert not self.thread.is_alive()
        for one in self.opened:
            one.wait()


def answer(link: socket.socket) -> Any:
    """None where it was sent away."""
    with link:
        said = b""
        with suppress(ConnectionError):
            while piece := link.recv(1 << 16):
                said += piece
    if not said:
        return None
    assert said.startswith(MARK)
    head, _, rest = said[len(MARK) :].partition(b"\n")
    return json.loads(rest[: int(head.split()[0])])


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standing]:
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        one = Standing(Path(folder))
        one.thread.start()
        wait_for(lambda: standing.is_open(one.path))
        yield one
        one.stop()


ASKED = {"ids": []}


@pytest.mark.parametrize("part", [1, 3, -1], ids=["in the head", "in the text", "before the end"])
def test_one_who_stops_while_asking(kept: Standing, part: int) -> None:
    with kept.send(request("ids")[:part]) as stopped:
        for _ in range(3):
            assert kept.ask("ids") == ASKED
        stopped.sendall(request("ids")[part:])
        assert answer(stopped) == ASKED  # and goes on when he likes
    assert len(kept.opened) == 1


def test_one_who_dies_while_asking(kept: Standing) -> None:
    for part in range(1, len(request("ids"))):
        kept.send(request("ids")[:part]).close()
        assert kept.ask("ids") == ASKED
    assert len(kept.opened) == 1


def test_one_who_does_not_read_his_answer(kept: Standing) -> None:
    log = kept.root / "jobs/some-1/attempts/001/log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * (1 << 20))
    (kept.root / "jobs/some-1/job.json").touch()
    asked = request("log", id="some-1", attempt=1, offset=0, rank=0)
    stopped = [kept.send(asked) for _ in range(6)]
    assert kept.ask("ids") == {"ids": ["some-1"]}
    assert [answer(one)["payload"] for one in stopped] == [1 << 20] * 6


def test_one_who_dies_while_the_cluster_works(kept: Standing) -> None:
    wait = Path(f"{kept.squeue}.wait")
    wait.touch()
    kept.send(request("status", ids=[])).close()
    wait_for(Path(f"{kept.squeue}.asked").exists)
    assert kept.ask("ids") == ASKED
    wait.unlink()
    for _ in range(3):
        assert kept.ask("status", ids=[]) == {"jobs": [], "waiting": []}


def test_a_scheduler_that_does_not_answer_holds_up_nobody(kept: Standing) -> None:
    wait = Path(f"{kept.squeue}.wait")
    wait.touch()
    slow = [kept.send(request("status", ids=[])) for _ in range(3)]
    wait_for(Path(f"{kept.squeue}.asked").exists)
    assert kept.ask("ids") == ASKED
    more = [kept.send(request("ids")) for _ in range(4)]
    slow += [kept.send(request("status", ids=[])) for _ in range(4)]
    assert [answer(one) for one in more] == [ASKED] * 4
    wait.unlink()
    assert [answer(one)["jobs"] for one in slow] == [[]] * 7
    assert len(kept.opened) == 4


def test_those_beyond_the_first_are_closed_again(
    kept: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray.transport import relay

    monkeypatch.setattr(relay, "SPARE_SECONDS", 0.1)
    wait = Path(f"{kept.squeue}.wait")
    wait.touch()
    slow = [kept.send(request("status", ids=[])) for _ in range(3)]
    wait_for(lambda: kept.running() == 3)
    wait.unlink()
    assert [answer(one)["jobs"] for one in slow] == [[]] * 3
    wait_for(lambda: kept.running() == 1)
    assert kept.ask("ids") == ASKED


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\n", b"5 9000000\n", b"9" * 50, b"2 0\n{}and more", b"\0\0\0\1"],
)
def test_what_is_no_request_is_sent_away(kept: Standing, said: bytes) -> None:
    assert answer(kept.send(said)) is None
    assert kept.ask("ids") == ASKED
    assert len(kept.opened) == 1


def test_a_big_request_goes_its_own_way(kept: Standing) -> None:
    assert kept.ask("ids", filling="x" * (9 << 20)) is None
    assert kept.ask("ids", filling="x" * (7 << 20)) == ASKED


def test_it_ends_with_its_last_agent(kept: Standing) -> None:
    assert kept.ask("ids") == ASKED
    kept.opened[0].kill()
    kept.thread.join(30)
    assert not kept.thread.is_alive()
    assert not kept.path.exists()


# -- one who needs an agent for longer ------------------------------------------------------------


def said_by(borrowed: lending.Borrowed) -> Any:
    """One answer of an agent that was lent."""
    os.set_blocking(borrowed.source, True)
    said = b""
    while b"}" not in said:
        piece = os.read(borrowed.source, 1 << 16)
        assert piece, said
        said += piece
    head, _, rest = said.partition(MARK)[2].partition(b"\n")
    return json.loads(rest[: int(head.split()[0])])


def test_an_agent_is_lent_and_others_are_there(kept: Standing) -> None:
    borrowed = lending.borrow(kept.path)
    assert borrowed is not None
    try:
        os.write(borrowed.target, request("ids"))
        assert said_by(borrowed) == ASKED
        assert kept.ask("ids") == ASKED
        assert len(kept.opened) > 1
        os.write(borrowed.target, request("enter", id="some-1", rank=0) + b"for the job")
        assert "it is not running now" in said_by(borrowed)["error"]
        assert borrowed.code() == 1
        assert kept.opened[0].poll() == 1
    finally:
        borrowed.close()
    wait_for(lambda: kept.running() >= 2)
    assert kept.ask("ids") == ASKED


def test_what_is_lent_ends_with_who_borrowed_it(kept: Standing) -> None:
    borrowed = lending.borrow(kept.path)
    assert borrowed is not None
    pipe = os.dup(borrowed.target)  # somebody still has it
    borrowed.close()
    wait_for(lambda: kept.opened[0].poll() is not None)
    os.close(pipe)
    assert kept.ask("ids") == ASKED


def test_what_is_lent_outlives_the_lender(kept: Standing) -> None:
    borrowed = lending.borrow(kept.path)
    assert borrowed is not None
    wait_for(lambda: len(kept.opened) == 3)
    for other in kept.opened[1:]:
        other.kill()
    kept.thread.join(30)
    assert not kept.thread.is_alive()
    os.write(borrowed.target, request("ids"))
    assert said_by(borrowed) == ASKED
    borrowed.close()


def test_where_none_is_free_none_is_lent(kept: Standing) -> None:
    wait = Path(f"{kept.squeue}.wait")
    wait.touch()
    slow = kept.send(request("status", ids=[]))
    wait_for(Path(f"{kept.squeue}.asked").exists)
    assert lending.borrow(kept.path) is None
    wait.unlink()
    assert answer(slow)["jobs"] == []
    assert lending.borrow(kept.path.with_name("nobody")) is None


def test_what_an_agent_complains_of_holds_nobody_up(kept: Standing) -> None:
    """Its pipe for that is read, whatever is in it."""
    complaining = kept.root.parent / "complaining"
    complaining.write_text(f'#!/bin/sh\nyes | head -c 1000000 >&2\nexec {sys.executable} "$@"\n')
    complaining.chmod(0o755)
    kept.agent = AgentLink(Here(), str(kept.root), str(complaining), "slurm")
    first = lending.borrow(kept.path)
    assert first is not None
    assert kept.ask("ids") == ASKED  # the second one has complained first
    first.close()
