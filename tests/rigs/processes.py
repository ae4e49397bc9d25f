"""Starting daemons for a test session and ending exactly those."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dray.node.processes.process import parents


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} did not come true")
        time.sleep(0.05)


def end_by_pid_file(path: Path, patience: float = 10.0) -> None:
    """Ask, then insist. A zombie counts as ended."""
    with suppress(FileNotFoundError, ValueError):
        pid = int(path.read_text())
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            with suppress(TimeoutError):
                until(lambda: pid not in parents(), patience)
                return
