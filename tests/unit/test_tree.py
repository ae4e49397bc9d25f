"""Outputs are copied while the job that writes them goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dray.landing import Incoming, Landing
from dray.node.formats.files import MOST_PARTS
from dray.node.root.outputs import listing
from dray.transport import tree


def silent(done: int, total: int) -> None:
    pass


def copy_tree(source: Path, target: Path, progress: tree.Progress) -> tuple[int, int]:
    target.mkdir(exist_ok=True)
    with Landing(target) as landing:
        return tree.copy_changed(source, walk(source), landing, progress)


def walk(source: Path) -> list[Incoming]:
    return [Incoming(**one) for one in listing(str(source), lambda path: True)]


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Three files."""
    folder = tmp_path / "outputs"
    (folder / "x").mkdir(parents=True)
    for name in ("a", "x/b", "y"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize("gone", ["x/b", "x"])
def test_what_goes_away_in_the_middle_is_left_out(outputs: Path, tmp_path: Path, gone: str) -> None:
    """As when a trainer keeps only its newest checkpoints."""

    def remove(done: int, total: int) -> None:
        (outputs / "x/b").unlink(missing_ok=True)
        if gone == "x":
            shutil.rmtree(outputs / "x", ignore_errors=True)

    target = tmp_path / "home"
    assert copy_tree(outputs, target, remove) == (2, 2)
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == ["a", "y"]
    assert copy_tree(outputs, target, silent) == (0, 2)


def test_files_that_come_and_go_are_no_obstacle(outputs: Path, tmp_path: Path) -> None:
    script = (
        "import os, sys; os.chdir(sys.argv[1]); print(1, flush=True)\n"
        "while True:\n"
        "  for n in range(50): open('t%d' % n, 'w').close(); os.symlink('a', 'l%d' % n)\n"
        "  for n in range(50): os.unlink('t%d' % n); os.unlink('l%d' % n)"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(outputs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            for number in range(30):
                copied, count = copy_tree(outputs, tmp_path / str(number), silent)
                assert 3 <= copied == count
            for _ in range(30):  # into what is there already
                copy_tree(outputs, tmp_path / "0", silent)
        finally:
            writer.kill()
    assert (tmp_path / "29/x/b").read_text() == "x/b"


def test_the_deepest_file_that_is_listed_can_be_copied(outputs: Path, tmp_path: Path) -> None:
    count = len(list(walk(outputs)))
    folder = outputs
    for depth in range(1, MOST_PARTS + 2):
        (folder / f"file{depth}").touch()
        folder = folder / "d"
        folder.mkdir()
    assert len(list(walk(outputs))) == count + MOST_PARTS
    copied, _ = copy_tree(outputs, tmp_path / "target", silent)
    assert copied == count + MOST_PARTS
