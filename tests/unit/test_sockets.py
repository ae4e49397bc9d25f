"""The folder of the sockets: the first one that will do, and never one with too long a name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.cli import warm
from dray.transport import sockets
from dray.transport.sockets import socket_folder

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


@pytest.fixture
def another(short: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """To be somebody whose folders all belong to another user: to us, as it is."""
    number = os.getuid() + 77_000
    monkeypatch.setattr(os, "getuid", lambda: number)
    monkeypatch.setenv("DRAY_HOME", str(short / "home"))
    os.mkdir(f"/tmp/dray-{number}", 0o700)
    yield f"dray-{number}"
    os.rmdir(f"/tmp/dray-{number}")


def test_where_somebody_else_was_first(
    short: Path, another: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base in ("run", "tmp"):
        (short / base / another).mkdir(parents=True, mode=0o700)
    assert choose(monkeypatch, short / "run", short / "tmp") == ""
    chosen = sockets.reserve()
    assert chosen.startswith(f"/tmp/{another}-")
    assert len(os.fsencode(chosen)) + 1 + sockets.SSH_NAME <= sockets.LIMIT
    assert sockets.folder() == chosen  # from now on everybody finds it
    assert not os.path.exists(chosen)
    os.mkdir(chosen, 0o700)  # somebody else has read the name, and was quicker
    try:
        assert sockets.folder() == ""
        assert sockets.reserve() != chosen
    finally:
        os.rmdir(chosen)


def test_a_link_is_nobodys_folder(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run", "tmp", "elsewhere"):
        (short / name).mkdir(mode=0o700)
    (short / "run" / OURS).symlink_to(short / "elsewhere")
    assert choose(monkeypatch, short / "run", short / "tmp") == f"{short}/tmp/{OURS}"
    assert not sockets.is_private(f"{short}/run/{OURS}")


def test_a_place_where_others_could_move_it_away(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short / "run").mkdir()
    (short / "run").chmod(0o777)
    assert choose(monkeypatch, short / "run", short) == f"{short}/{OURS}"
    (short / "run").chmod(0o1777)  # as /tmp is
    assert choose(monkeypatch, short / "run", short) == f"{short}/run/{OURS}"


# Another user may not be able to read the code: it is imported before it is they who run it.
CHOOSE = """
import contextlib, os, dray.errors, dray.home
from dray.transport.sockets import socket_folder
os.setgid({number}), os.setuid({number})
print(socket_folder())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_a_user_whose_folder_is_taken(short: Path) -> None:
    number = 54321
    taken = Path(f"/tmp/dray-{number}")
    taken.mkdir(mode=0o700)
    try:
        os.chown(short, number, number)
        words = [sys.executable, "-c", CHOOSE.format(number=number)]
        env = {"HOME": str(short), "PYTHONPATH": os.pathsep.join(sys.path)}
        twice = [
            subprocess.run(words, env=env, capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
        found = {ended.stdout.strip() for ended in twice}
        (chosen,) = map(Path, found)
        assert chosen.stat().st_uid == number
        assert chosen.stat().st_mode & 0o777 == 0o700
        chosen.rmdir()
    finally:
        taken.rmdir()
