"""The folders of doors: whose are taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.node.sessions import door

MAKE = """
import sys, time
from dray.node.sessions import door
door.PLACES = (sys.argv[1],)
path, lock = door.make_folder()
print(path, flush=True)
time.sleep(100)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(door, "PLACES", (str(tmp_path),))
    return tmp_path


def test_a_folder_stays_while_its_process_lives_though_nobody_sees_it(place: Path) -> None:
    """As in a container with process ids of its own, which shares the place."""
    words = [sys.executable, "-c", MAKE, str(place)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        made = Path(other.stdout.readline().strip())
        unseen = made.with_name(made.name.replace(f"-{other.pid}-", "-99999999-"))
        made.rename(unseen)
        os.close(door.make_folder()[1])
        assert unseen.is_dir()
        other.kill()
    os.close(door.make_folder()[1])
    assert not unseen.exists()


def test_what_cannot_be_removed_is_in_nobodys_way(place: Path) -> None:
    left = [place / f"{door.PREFIX}{os.getuid()}-99999999-{end}" for end in "abc"]
    left[0].symlink_to("/nowhere")
    left[1].mkdir()
    (left[1] / "s").touch()
    left[2].write_text("a file")
    path, lock = door.make_folder()
    assert Path(path).parent == place
    assert not left[1].exists()
    os.close(lock)


def test_what_a_killed_server_left_is_cleared_whatever_is_there(place: Path) -> None:
    """In a container's folder, its own code may have put anything."""
    run, other = place / "run", place / "other"
    for folder in (run, other, run / "beside-1"):
        folder.mkdir()
    (run / "beside-1/host_key").write_text("secret")
    (run / "beside-2").symlink_to(other)
    (run / "beside-3").write_text("a file")
    pipes = [one / "ask" for one in (run / "beside-1", other)]
    for pipe in pipes:
        os.mkfifo(pipe)
    readers = [os.open(one, os.O_RDONLY | os.O_NONBLOCK) for one in pipes]
    made = door.Door(str(place / "door.json"), {}, dict)
    made._places = [str(place / "door.json"), str(place / "missing"), str(run)]
    made.server = 99999999
    made.reaped(made.server)
    assert [os.read(one, 10) for one in readers] == [b"end\n", b""]
    assert (list(run.iterdir()), other.is_dir()) == ([], True)
    made.close(lambda: None)
    for one in readers:
        os.close(one)
