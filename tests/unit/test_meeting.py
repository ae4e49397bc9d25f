"""How pods of a job meet, over real connections of this machine."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dray.node.attempt import follower, meeting
from dray.node.attempt.follower import Follower
from dray.node.attempt.meeting import Meeting
from dray.node.formats import files
from dray.node.jobs.jobdir import JobDir

PART: Any = {"node": 1, "ranks": [2, 3], "address": "127.0.0.1"}
Joining = Callable[..., "Future[Any]"]


@pytest.fixture
def leader() -> Iterator[Meeting]:
    made = Meeting("127.0.0.1", 2)
    yield made
    made.close()


@pytest.fixture
def join() -> Iterator[Joining]:
    over = []
    with ThreadPoolExecutor(4) as pool:

        def offer(about: dict[str, Any], host: str) -> Future[Any]:
            return pool.submit(meeting.join, about, host, lambda: bool(over))

        yield offer
        over.append(True)


def stranger(leader: Meeting) -> socket.socket:
    return socket.create_connection(("127.0.0.1", leader.describe()["port"]), 5)


def attend(leader: Meeting, until: Callable[[], object]) -> None:
    for _ in range(500):
        if until():
            return
        leader.wait(0.02)
    raise AssertionError("it did not come to that")


def test_followers_are_given_their_parts_once_all_are_there(leader: Meeting, join: Joining) -> None:
    late = join(leader.describe(), "walk-10")
    attend(leader, lambda: leader.followers())
    assert not leader.is_complete()
    early = join(leader.describe(), "walk-9")
    attend(leader, leader.is_complete)
    other = {**PART, "node": 2, "ranks": [4, 5]}
    assigned = leader.assign([PART, other])
    # In the same order whoever comes first, so that a rank finds its node's disk again.
    assert [(host, ranks) for _, host, ranks in assigned] == [
        ("walk-9", [2, 3]),
        ("walk-10", [4, 5]),
    ]
    (first, part), (second, last) = early.result(), late.result()
    assert (part, last) == (PART, other)
    leader.dismiss_followers()
    with first, second:
        assert first.recv(1) == second.recv(1) == b""


def test_a_message_is_read_and_nothing_beyond_it(leader: Meeting, join: Joining) -> None:
    """What follows is for the process that inherits the connection."""
    follower = join(leader.describe(), "walk-1")
    attend(leader, lambda: leader.followers())
    (guest,) = leader.followers()
    guest.connection.send(meeting.encode(PART) + b"the first order\n")
    connection, _ = follower.result()
    with connection:
        assert connection.recv(100) == b"the first order\n"


@pytest.mark.parametrize("wrong", ["0" * 64, ""])
def test_whoever_does_not_know_the_token_is_sent_away(
    leader: Meeting, join: Joining, wrong: str
) -> None:
    about = {**leader.describe(), "token": wrong}
    refused = join(about, "walk-1")
    attend(leader, refused.done)
    assert refused.result() is None
    assert leader.followers() == []


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"[]\n",
        b"null\n",
        b"\xff\n",
        b"[" * 4000 + b"\n",
        b"x" * 100_000,
        b'{"host": "walk-1", "nonce": 7, "proof": []}\n',
        b'{"host": "../etc", "nonce": "00000000000000000000000000000000", "proof": ""}\n',
    ],
)
def test_a_stranger_learns_nothing_but_a_number(leader: Meeting, said: bytes) -> None:
    with stranger(leader) as one:
        attend(leader, lambda: leader.guests)
        heard = json.loads(one.makefile().readline())
        assert list(heard) == ["nonce"]
        with contextlib.suppress(OSError):  # it may have had enough before the end
            one.sendall(said)
        attend(leader, lambda: not leader.guests)
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(100) == b""


def test_an_answer_is_of_no_use_a_second_time(leader: Meeting, join: Joining) -> None:
    """Somebody who has listened to a follower cannot say the same: the number is another one."""
    with stranger(leader) as one:
        attend(leader, lambda: leader.guests)
        first = json.loads(one.makefile().readline())["nonce"]
    asked = (first, "0" * 32, "walk-1")
    proof = meeting.prove(leader.token, meeting.FOLLOWER, *asked)
    with stranger(leader) as other:
        attend(leader, lambda: any(guest.nonce != first for guest in leader.guests.values()))
        other.sendall(meeting.encode({"host": "walk-1", "nonce": "0" * 32, "proof": proof}))
        attend(leader, lambda: not leader.guests)
    assert leader.followers() == []


def test_strangers_who_say_nothing_keep_nobody_out(leader: Meeting, join: Joining) -> None:
    silent = [stranger(leader) for _ in range(meeting.MOST_STRANGERS + 20)]
    follower = join(leader.describe(), "walk-1")
    attend(leader, lambda: leader.followers())
    assert len(leader.guests) <= meeting.MOST_STRANGERS + 1
    for one in silent:
        one.close()
    leader.close()
    assert follower.result() is None


class Flooded:
    """A door at which somebody is always waiting."""

    def __init__(self, door: socket.socket) -> None:
        self.door = door
        self.close = door.close
        self.fileno = door.fileno
        self.came: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, None]:
        assert len(self.came) < 10 * meeting.MOST_STRANGERS, "nothing else is done any more"
        theirs, ours = socket.socketpair()
        self.came.append(theirs)
        return ours, None


@pytest.mark.hostile
def test_strangers_without_end_do_not_keep_the_leader(
    leader: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not even hear that its pod is to end."""
    door = Flooded(leader.door)
    with stranger(leader):
        monkeypatch.setattr(leader, "door", door)
        leader.wait(0.0)
    for one in door.came:
        one.close()


def test_who_listens_where_a_dead_leader_did_gets_no_follower(join: Joining) -> None:
    """An address is given to another pod once its own is gone."""
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        about = {"address": "127.0.0.1", "port": impostor.getsockname()[1], "token": "1" * 64}
        joining = join(about, "walk-1")
        connection = impostor.accept()[0]
        connection.sendall(meeting.encode({"nonce": "0" * 32}))
        said = json.loads(connection.makefile().readline())
        assert "1" * 64 not in json.dumps(said)
        connection.sendall(meeting.encode({"proof": said["proof"]}) + meeting.encode(PART))
        assert joining.result() is None
        connection.close()


class Taken:
    """A lock that another pod has."""

    def take_if_free(self) -> bool:
        return False


@pytest.mark.parametrize("drips", [False, True])
def test_a_follower_does_not_stay_with_an_impostor(
    leader: Meeting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    """It waits for its turn as long as that takes, but not where nobody leads any more."""
    job_dir, over, served = JobDir(str(tmp_path)), threading.Event(), []
    monkeypatch.setattr(follower, "described", lambda _: {"resumed_after": 0})

    def serve(_: Follower, connection: socket.socket, part: object) -> None:
        connection.close()
        served.append(part)
        over.set()

    monkeypatch.setattr(Follower, "_serve", serve)
    job: Any = {"resumed_after": 0}
    lock: Any = Taken()
    with socket.create_server(("127.0.0.1", 0)) as impostor, ThreadPoolExecutor(2) as pool:
        about = {"address": "127.0.0.1", "port": impostor.getsockname()[1], "token": "1" * 64}
        files.write_json(job_dir.leader, {**about, "resumed_after": 0})
        pool.submit(Follower(job_dir, job, "walk-1", lock, over.is_set).run)
        connection = impostor.accept()[0]

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.2):
                    connection.sendall(b" ")

        if drips:
            pool.submit(drip)
        leader.wanted = 1
        files.write_json(job_dir.leader, {**leader.describe(), "resumed_after": 0})
        try:
            attend(leader, leader.is_complete)
            leader.assign([PART])
            assert over.wait(20)
        finally:
            over.set()
            connection.close()
    assert served == [PART]


def test_a_pod_that_comes_again_takes_its_own_place(leader: Meeting, join: Joining) -> None:
    first = join(leader.describe(), "walk-1")
    attend(leader, lambda: leader.followers())
    again = join(leader.describe(), "walk-1")
    attend(leader, first.done)
    assert first.result() is None
    assert [one.host for one in leader.followers()] == ["walk-1"]
    assert not again.done()


def test_a_follower_that_leaves_is_not_counted(leader: Meeting) -> None:
    with stranger(leader) as one:
        attend(leader, lambda: leader.guests)
        nonce = json.loads(one.makefile().readline())["nonce"]
        proof = meeting.prove(leader.token, meeting.FOLLOWER, nonce, "0" * 32, "walk-1")
        one.sendall(meeting.encode({"host": "walk-1", "nonce": "0" * 32, "proof": proof}))
        attend(leader, lambda: leader.followers())
    attend(leader, lambda: not leader.followers())


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"address": 7, "port": 1, "token": ""},
        {"address": "127.0.0.1", "port": 10**9, "token": ""},
    ],
)
def test_a_damaged_file_names_no_leader(about: dict[str, Any]) -> None:
    assert meeting.join(about, "walk-1", lambda: False) is None
