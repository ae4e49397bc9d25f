"""A ``kubectl proxy`` of one's own, on a socket that only the user can open."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from dray import tracing
from dray.transport import kubectl as kubectls
from dray.transport.kubectl import Kubectl
from dray.transport.sockets import socket_folder

STARTING = 20.0  # seconds for kubectl to listen
# Its input ends with whoever has it open, however that ends; then nothing is left.
KEEPING = '"$@" & read -r line; kill $!; wait; rm -rf "$0"'


class Proxy:
    """Lives until it is closed, or this process and those that it has forked have ended."""

    def __init__(self, kubectl: Kubectl) -> None:
        folder = tempfile.mkdtemp(prefix="near-", dir=socket_folder())
        self.place = Path(folder, "api")
        words = kubectl.argv("proxy", f"--unix-socket={self.place}")
        tracing.trace_program(words)
        null = subprocess.DEVNULL
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPING, folder, *words],
            stdin=subprocess.PIPE,
            stdout=null,
            stderr=null,
            start_new_session=True,  # Ctrl-C is for us: something may be left to say
        )

    def wait(self) -> None:
        """Wait until kubectl listens; one that does not is asked no further."""
        until = time.monotonic() + STARTING
        while not self.place.exists() and time.monotonic() < until:
            if self._keeper.poll() is not None:
                raise kubectls.missing()
            time.sleep(0.01)

    def close(self) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
