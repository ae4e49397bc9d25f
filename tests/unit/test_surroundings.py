"""What is written where a container's own code can put something else in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dray.node.sessions import surroundings
from dray.node.sessions.surroundings import Beside, open_pipe, write_apart


def test_variables_go_to_a_pipe_and_to_nothing_else(tmp_path: Path) -> None:
    precious = tmp_path / ".bashrc"
    precious.write_text("mine")
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "hard").hardlink_to(precious)
    for name in ("link", "hard"):
        with pytest.raises(OSError, match=name):
            open_pipe(str(tmp_path / name))
        write_apart(str(tmp_path / name), b"export TOKEN=secret")
        os.wait()
    assert precious.read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_apart(str(tmp_path / "pipe"), b"export TOKEN=secret")
    os.wait()
    assert os.read(reader, 100) == b"export TOKEN=secret"
    os.close(reader)


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = tmp_path / ".ssh", tmp_path / "run"
    home.mkdir()
    run.mkdir()
    beside = Beside(str(run), "/inside")
    write = surroundings.write_new

    def swap_first(name: str, content: bytes, folder: int) -> None:
        if not os.path.islink(beside.path):
            os.rename(beside.path, run / "moved")
            os.symlink(home, beside.path)
        write(name, content, folder)

    monkeypatch.setattr(surroundings, "write_new", swap_first)
    beside.make({"config": b"1", "authorized_keys": b"2"})
    assert sorted(os.listdir(run / "moved")) == ["authorized_keys", "config"]
    beside.remove()
    assert (list(home.iterdir()), os.path.lexists(beside.path)) == ([], False)
