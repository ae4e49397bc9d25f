"""Trees are removed, and nothing is done to the folders that they are in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dray.node.formats import files


def test_a_tree_that_somebody_else_removes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder above may be /tmp, and we may be root."""
    everybodys = tmp_path / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    tree = everybodys / "dray-door-0-1-2"
    (tree / "deep").mkdir(parents=True)
    remove = os.rmdir

    def removed_already(path: str, **more: int) -> None:
        remove(path, **more)
        raise FileNotFoundError(2, "gone", path)

    monkeypatch.setattr(shutil.os, "rmdir", removed_already)
    assert files.remove_tree(str(tree)) == []
    assert everybodys.stat().st_mode & 0o7777 == 0o1777
    assert not tree.exists()
