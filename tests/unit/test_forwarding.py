"""Forwarded ports and sockets: what the node may say of them, and what a killed dray leaves."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from dray.errors import UsageError
from dray.node.sessions.frames import BadFrame
from dray.sessions.forwarding import Awaited, Forward, Forwarding


@pytest.fixture
def said() -> list[str]:
    return []


def awaited(said: list[str], port: int) -> Awaited:
    forward = Forward(8000, port, reverse=True)
    return Awaited(cast("Any", None), forward, Forwarding([forward], said.append))


@pytest.mark.parametrize("asked", [0, 9000])
def test_a_port_is_told_once(said: list[str], asked: int) -> None:
    end = awaited(said, asked)
    end.opened({"port": 9000})
    with pytest.raises(BadFrame):
        end.opened({"port": 9000})
    assert said == ["port 9000 of the job leads to port 8000 here"]


@pytest.mark.parametrize(
    ("asked", "port"), [(9000, 9001), (0, 0), (0, 65536), (0, -1), (9000, "9000"), (0, None)]
)
def test_a_port_that_was_not_asked_for(said: list[str], asked: int, port: object) -> None:
    with pytest.raises(BadFrame):
        awaited(said, asked).opened({"port": port})
    assert said == []


def left(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    made.listen(1)
    return made


def test_a_socket_of_a_killed_dray_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left(path).close()
    forwarding = Forwarding([Forward(str(path), 8000)], print)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    forwarding.close()
    assert not os.path.lexists(path)


def test_what_somebody_listens_on_or_is_no_socket_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with left(tmp_path / "s"):
        for name in ("s", "file", "link"):
            with pytest.raises(UsageError, match="in use"):
                Forwarding([Forward(str(tmp_path / name), 8000)], print)
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "s"]
