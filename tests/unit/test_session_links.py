"""One end of a session's connection: what it writes together."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from dray.node.sessions import frames, link
from dray.node.sessions.link import COMPANY, Link
from dray.node.sessions.ready import Interests


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(link, "time", found)
    return found


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps writes apart
    far.setblocking(False)
    with near, far:
        yield Link(near.fileno(), near.fileno(), 2, lambda channel, record: None), far


def is_wanted(one: Link) -> bool:
    """Return whether the end waits to write."""
    wanted = Interests()
    one.interests(wanted)
    return one.write in wanted.wait(0.0)


def test_an_announcement_is_written_with_what_follows_it(
    clock: Clock, ends: tuple[Link, socket.socket]
) -> None:
    near, far = ends
    near.start({}, b"mark")
    near.write()
    assert not is_wanted(near)
    with pytest.raises(BlockingIOError):
        far.recv(1 << 16)
    near.send(frames.frame(0, frames.PING))
    assert is_wanted(near)
    near.write()
    piece = far.recv(1 << 16)
    assert piece.startswith(b"mark")
    assert piece.endswith(frames.frame(0, frames.PING))


def test_an_announcement_that_stays_alone_is_written_soon(
    clock: Clock, ends: tuple[Link, socket.socket]
) -> None:
    near, far = ends
    near.start({}, b"mark")
    assert near.tick() == pytest.approx(COMPANY)
    clock.now += COMPANY / 2
    near.announce(frames.frame(0, frames.PONG))  # does not begin the wait anew
    assert near.tick() == pytest.approx(COMPANY / 2)
    clock.now += COMPANY / 2 + 0.001
    assert near.tick() > 1.0  # whoever runs it is not woken again and again, should it be blocked
    assert is_wanted(near)
    near.write()
    assert far.recv(1 << 16).endswith(frames.frame(0, frames.PONG))


def test_an_announcement_does_not_hold_up_what_waits_already(
    clock: Clock, ends: tuple[Link, socket.socket]
) -> None:
    near, far = ends
    near.send(frames.frame(0, frames.PING))
    near.announce(frames.frame(0, frames.PONG))
    assert is_wanted(near)
    near.write()
    assert far.recv(1 << 16) == frames.frame(0, frames.PING) + frames.frame(0, frames.PONG)
