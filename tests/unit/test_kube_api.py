"""Requests to the API server through a ``kubectl proxy`` that goes away."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.transport.channel import LinkLost
from dray.transport.kube_api import Api
from dray.transport.kubectl import Kubectl

KUBECTL = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/asked"
echo '{"kind": "Job"}'
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as name:  # sockets need a short path
        kubectl = Path(name) / "kubectl"
        kubectl.write_text(KUBECTL)
        kubectl.chmod(0o755)
        monkeypatch.setenv("PATH", name, prepend=":")
        yield Path(name)


@pytest.fixture
def ending_proxy(folder: Path) -> Iterator[Path]:
    """A proxy that takes a request, and ends without a word."""
    path = folder / "proxy"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        thread.join(10)


def test_who_only_looks_asks_again_without_the_proxy(folder: Path, ending_proxy: Path) -> None:
    reply = Api(Kubectl(), ending_proxy).get("/apis/batch/v1/jobs")
    assert reply.record == {"kind": "Job"}
    assert "get --raw /apis/batch/v1/jobs" in (folder / "asked").read_text()


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH"])
def test_what_may_have_been_carried_out_is_not_done_twice(
    folder: Path, ending_proxy: Path, method: str
) -> None:
    with pytest.raises(LinkLost, match="the API server did not answer"):
        Api(Kubectl(), ending_proxy).ask(method, "/apis/batch/v1/jobs/one", {})
    assert not (folder / "asked").exists()
