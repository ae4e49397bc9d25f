"""The cgroups of a node's pods, below one of the rig's own in every hierarchy."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """Where the hierarchies of cgroup v1 are mounted; none where there is only v2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] == "cgroup"]


def make(name: str) -> None:
    for top in hierarchies():
        folder = top / name
        folder.mkdir(parents=True, exist_ok=True)
        if top.name == "cpuset":  # one without a processor can hold no process
            inherit(top, folder)


def inherit(top: Path, folder: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        below = top
        for part in folder.relative_to(top).parts:
            below /= part
            (below / name).write_text((top / name).read_text())


def remove(name: str, seconds: float = 10.0) -> None:
    """Remove a tree of cgroups; a process that is still in one is ended."""
    until = time.monotonic() + seconds
    for top in [*hierarchies(), ROOT / "unified"]:
        while (top / name).is_dir():
            for folder, _, _ in os.walk(top / name, topdown=False):
                end_processes(Path(folder))
                with suppress(OSError):
                    os.rmdir(folder)
            if not (top / name).is_dir():
                break
            if time.monotonic() > until:
                raise TimeoutError(f"{top / name} cannot be removed")
            time.sleep(0.05)


def end_processes(folder: Path) -> None:
    with suppress(OSError):
        for pid in map(int, (folder / "cgroup.procs").read_text().split()):
            with suppress(ProcessLookupError):
                if pid:  # 0 would be a process that cannot be seen from here
                    os.kill(pid, signal.SIGKILL)
