"""How a command is started, and how what it has left is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.node.processes import process

# Started by the one below; it leaves a process without variables, and one that sends a notice.
KILLED = """
import os, signal, subprocess, time
from dray.node.notifications import notices

def send():
    os.write(1, f"sender {os.getpid()}\\n".encode())
    time.sleep(60)

notices.in_background(send)
bare = subprocess.Popen(["/bin/sleep", "60"], env={}, start_new_session=True)
os.write(1, f"bare {bare.pid}\\n".encode())
os.kill(os.getpid(), signal.SIGKILL)
"""
ADOPTS = """
import os, signal, subprocess, sys, time
from dray.node.processes import process

process.adopt_orphans()
other = subprocess.Popen(["/bin/sleep", "60"])
words = [sys.executable, sys.argv[1], "member"]
killed = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
said = dict(killed.stdout.readline().split() for _ in range(2))
bare, sender = int(said["bare"]), int(said["sender"])
try:
    assert killed.wait() == -signal.SIGKILL
    found = process.adopted([other.pid])
    assert found == [bare], (found, said)
    while found:
        process.send(found, signal.SIGKILL)
        found = process.adopted([other.pid])
    process.reap_adopted([other.pid])
    assert not os.path.exists(f"/proc/{bare}")
    assert {other.pid, sender} <= set(process.parents())
    other.kill()
    while other.pid in process.parents():
        time.sleep(0.01)
    process.reap_adopted([other.pid])  # whose end is for somebody else to learn
    assert other.wait() == -signal.SIGKILL
finally:
    process.send([other.pid, bare, sender], signal.SIGKILL)
"""


def test_what_a_killed_process_has_left_is_found_without_its_variables(tmp_path: Path) -> None:
    program = tmp_path / "dray-node-1.py"
    program.write_text(KILLED)
    words = [sys.executable, "-c", ADOPTS, str(program)]
    ended = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


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
