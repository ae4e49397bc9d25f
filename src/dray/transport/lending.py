"""An agent of the standing connection, lent to a command for as long as that lasts.

A command that wants into a running job would open a session of its own: one round trip, a login
shell and a Python, each time. The standing connection has an agent there already, which can become
the way. It hands the agent's pipes over, and opens another one for those who come next. The
dialogue, on its socket:

    borrower → lender   LEND
    lender → borrower   one byte, with the agent's stdin, stdout and stderr
    lender → borrower   the exit code of the program that leads there, once it has ended

Whoever hangs up ends that program.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from dray.transport import standing

LEND = b"lend\n"
PATIENCE = 2.0  # seconds for the lender, and for the end of a program whose output has ended
COMPLAINTS = 1 << 16  # bytes: as much as a pipe holds


class Loan(threading.Thread):
    """Waits on the lender's side for the end of what was lent."""

    def __init__(self, process: subprocess.Popen[bytes], borrower: socket.socket) -> None:
        super().__init__(daemon=True)
        self.process = process
        self._borrower = borrower.dup()

    def run(self) -> None:
        code = self.process.wait()
        with suppress(OSError), self._borrower:
            if code >= 0:
                self._borrower.sendall(bytes([code]))


class Borrowed:
    """The borrower's side."""

    def __init__(self, lender: socket.socket, fds: list[int]) -> None:
        self._lender = lender
        self.target, self.source, self._errors = fds

    def code(self) -> int | None:
        """Return the exit code, if the program ends soon."""
        try:
            said = self._lender.recv(1)
        except OSError:
            return None
        return said[0] if said else None

    def complaints(self) -> bytes:
        os.set_blocking(self._errors, False)
        try:
            return os.read(self._errors, COMPLAINTS)
        except OSError:
            return b""

    def close(self) -> None:
        self._lender.close()
        for fd in (self.target, self.source, self._errors):
            os.close(fd)


def borrow(path: Path) -> Borrowed | None:
    """Borrow an agent of the standing connection with this socket; None if there is none, or none
    to spare."""
    lender = standing.connect(path)
    if lender is None:
        return None
    lender.settimeout(PATIENCE)
    fds: list[int] = []
    with suppress(OSError):
        lender.sendall(LEND)
        _, fds, *_ = socket.recv_fds(lender, 1, 3)
    if len(fds) == 3:
        return Borrowed(lender, fds)
    for fd in fds:
        os.close(fd)
    lender.close()
    return None
