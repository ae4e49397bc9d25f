"""What a cluster leaves whose tests were killed: its machines end by themselves, the rest not."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.rigs.kubernetes import cgroups

PREFIX = "dray-kubernetes-"


def lock(folder: Path) -> int:
    """Say that the folder is in use, as long as this process lives."""
    held = os.open(folder / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return held


def sweep() -> None:
    """Take away what clusters have left that nobody owns any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/"):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            continue
        try:
            held = lock(folder)
        except BlockingIOError:
            continue  # its owner lives
        try:
            for pid in first_processes(folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            cgroups.remove(folder.name)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(held)


def first_processes(folder: Path) -> list[int]:
    """Find the first processes of the machines in a folder, by their whole command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if is_first(words, folder):
                found.append(int(entry.name))
    return found


def is_first(words: list[str], folder: Path) -> bool:
    """Say whether a command is as ``Machine.power_on`` has it; unshare has the same at its end."""
    _, option, program, where, *_ = [*words, "", "", ""]
    return option == "-S" and Path(program).name == "init.py" and Path(where).parent == folder
