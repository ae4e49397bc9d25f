"""The folder of the sockets: the first one that will do, and never one with too long a name."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.cli import warm
from dray.transport import sockets
from dray.transport.ssh import socket_folder

OURS = f"dray-{os.getuid()}"
FALLBACK = f"/tmp/{OURS}"
SSH_NAME = "c" * 40 + "." + "r" * 16  # what ssh binds for ControlPath=…/%C


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ds", dir="/tmp") as folder:
        yield Path(folder)


def choose(monkeypatch: pytest.MonkeyPatch, runtime: object, temporary: object) -> str:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TMPDIR", str(temporary))
    return sockets.folder()


def test_the_first_one_that_will_do(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (short / "run").mkdir()
    (short / "tmp").mkdir()
    long = short / ("x" * 40)
    long.mkdir()
    assert choose(monkeypatch, short / "run", short / "tmp") == f"{short}/run/{OURS}"
    assert choose(monkeypatch, f"{short}/run/", "") == f"{short}/run/{OURS}"
    assert choose(monkeypatch, "", short / "tmp") == f"{short}/tmp/{OURS}"
    assert choose(monkeypatch, long, short / "tmp") == f"{short}/tmp/{OURS}"
    assert choose(monkeypatch, short / "not-there", short / "tmp") == f"{short}/tmp/{OURS}"
    assert choose(monkeypatch, "", long) == FALLBACK
    assert choose(monkeypatch, "", ".") == FALLBACK  # not there for a process elsewhere
    assert choose(monkeypatch, "", "") == FALLBACK


def test_ssh_can_bind_in_the_longest_one(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for extra in range(1, 60):
        base = short / ("ä" * (extra // 2) + "x" * (extra % 2))
        base.mkdir(exist_ok=True)
        chosen.append(choose(monkeypatch, "", base))
    assert FALLBACK in chosen
    longest = max(chosen, key=lambda one: len(os.fsencode(one)))
    assert longest != FALLBACK
    assert len(os.fsencode(f"{longest}/{SSH_NAME}")) < 104  # on macOS, with the zero at its end
    os.mkdir(longest)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{longest}/{SSH_NAME}")


def test_the_warm_process_is_beside_the_connections(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "", short)
    folder = socket_folder()
    assert Path(warm.socket_path(())).parent == folder
    folder.chmod(0o755)
    with pytest.raises(PermissionError):
        warm.socket_path(())
