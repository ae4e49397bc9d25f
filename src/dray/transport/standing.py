"""The standing connection, kept open between commands: one round trip instead of three.

A background process of the user holds sessions, each with a running agent behind it, and forwards
requests from a socket that only the user can open (``relay.py``). It is started after a first
command has got through, and ends by itself when it has been idle for a while or when the link
breaks. It is never needed: a command that does not find it, or loses it, connects on its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dray.node.code.packs import hash_of
from dray.node.formats import files

SILENCE_SECONDS = 150.0  # longer than Slurm is given to answer
BACKLOG = 64


def socket_of(folder: Path, *identity: str) -> Path:
    return folder / f"{hash_of(chr(0).join(identity).encode())[:20]}.link"


def connect(path: Path) -> socket.socket | None:
    """Connect to the standing connection; None if there is none."""
    if not path.exists():
        return None
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(SILENCE_SECONDS)
    try:
        link.connect(str(path))
    except OSError:
        link.close()
        return None
    return link


def is_open(path: Path) -> bool:
    link = connect(path)
    if link is not None:
        link.close()
    return link is not None


def start(path: Path, *spec: str) -> None:
    """Start the standing connection in the background, detached; nothing waits for it."""
    with open(os.devnull, "r+b") as null:
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), stream) for stream in (0, 1, 2)]
        # -P: nothing is imported from the current folder.
        argv = [sys.executable, "-P", "-m", "dray.transport.standing", str(path), *spec]
        os.posix_spawn(argv[0], argv, os.environ, file_actions=actions, setsid=True)


def serve(path: Path, open_session: Callable[[], subprocess.Popen[bytes]]) -> None:
    from dray.transport.relay import Relay

    lock = files.open_lock(f"{path}.lock")
    if not files.try_lock(lock):
        return  # another one is already there
    path.unlink(missing_ok=True)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(BACKLOG)
            Relay(listener, open_session).run()
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def main(path: str, root: str, python: str, scheduler: str, *channel: str) -> None:
    from dray.transport.channel import from_spec
    from dray.transport.link import AgentLink

    os.chdir("/")  # not to hold on to the user's folder
    link = AgentLink(from_spec(*channel), root, python, scheduler)
    serve(Path(path), link.open_session)


if __name__ == "__main__":
    main(*sys.argv[1:])
