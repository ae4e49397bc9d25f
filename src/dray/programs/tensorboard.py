"""Starts TensorBoard on this machine, for this machine only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dray import tracing
from dray.errors import DrayError, Refused

STARTING = 120.0  # seconds: uvx may have to download it first
ENDING = 5.0
LOOK = 0.2
HOST = "127.0.0.1"
MISSING = "TensorBoard was not found on this machine"
INSTALL = "Install it beside dray (pip install tensorboard), or install uv, which fetches it."


def find() -> list[str]:
    """Return the words that start TensorBoard: the one beside dray's own Python, that of the active
    environment, or one that uv fetches. Nothing is taken from the current folder: it may be
    somebody else's."""
    beside = os.path.dirname(sys.executable)
    for folder in (beside, *os.environ.get("PATH", "").split(os.pathsep)):
        program = shutil.which("tensorboard", path=folder) if os.path.isabs(folder) else None
        if program:
            return [program]
    uvx = shutil.which("uvx")
    if uvx:
        return [uvx, "--from", "tensorboard", "--with", "setuptools<81", "tensorboard"]
    raise Refused(MISSING, hint=INSTALL)


class TensorBoard:
    def __init__(self, process: subprocess.Popen[bytes], port: int, said: Path) -> None:
        self.url = f"http://{HOST}:{port}/"
        self._process = process
        self._said = said

    def wait_until_ready(self) -> None:
        until = time.monotonic() + STARTING
        while time.monotonic() < until:
            self.require_running()
            try:
                with urllib.request.urlopen(self.url, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(LOOK)
        raise DrayError(f"TensorBoard did not answer within {STARTING:g} s: {self._last_words()}")

    def require_running(self) -> None:
        """Raise if TensorBoard has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise DrayError(f"TensorBoard ended with exit code {code}: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._said.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-5:]) or "it said nothing"


@contextmanager
def running(words: Sequence[str], logdir: Path, port: int) -> Iterator[TensorBoard]:
    """Run TensorBoard on a folder, on the loopback only, until the context ends."""
    argv = [
        *words,
        f"--logdir={logdir}",
        f"--host={HOST}",
        f"--port={port}",
        "--reload_interval=5",
    ]
    tracing.trace_program(argv)
    with tempfile.TemporaryDirectory(prefix="dray-board-") as folder:
        said = Path(folder, "said")
        with open(said, "wb") as output:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/"
            )
        try:
            yield TensorBoard(process, port, said)
        finally:
            process.terminate()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
