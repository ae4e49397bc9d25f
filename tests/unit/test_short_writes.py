"""A disk that is nearly full takes a part of what is written, and says so only by a number."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray.node.formats import files
from dray.node.ray.host import Host

LINE = b"iteration 12: reward 3.4\n"


def append_from_afar(path: str, content: bytes) -> None:
    Host().append(path, content)


@pytest.mark.parametrize("append", [files.append, append_from_afar])
def test_all_of_a_line_is_appended(
    append: Callable[[str, bytes], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_bytes(LINE)
    write = os.write

    def write_little(fd: int, content: Any) -> int:
        return write(fd, content[:7])

    monkeypatch.setattr(os, "write", write_little)
    append(str(log), LINE)
    monkeypatch.undo()
    assert log.read_bytes() == 2 * LINE
