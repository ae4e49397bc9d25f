"""How a command is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dray.node.processes import process


def test_a_command_whose_supervisor_has_died_meanwhile_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would record what it does, and the next attempt could run beside it."""
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)  # so the parent that is found is another one
        pid = process.start(["touch", "begun"], str(tmp_path), dict(os.environ), log)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127
    assert not (tmp_path / "begun").exists()
    pid = process.start(["touch", "begun"], str(tmp_path), dict(os.environ), log)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "begun").exists()
    os.close(log)
