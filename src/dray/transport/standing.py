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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dray.node.code.packs import hash_of
from dray.node.formats import files

SILENCE_SECONDS = 150.0  # longer than Slurm is given to answer
BACKLOG = 64


def socket_of(folder: Path, *identity: str) -> Path:
    return folder / f"{hash_of(chr(0).join(identity).encode())[:20]}.link"


def companion_of(path: Path) -> Path:
    """Return where the program listens that is kept beside this connection."""
    return path.with_suffix(".near")


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


def serve(
    path: Path,
    open_session: Callable[[], subprocess.Popen[bytes]],
    companion: Sequence[str] = (),
    *,
    pings: bool = False,
) -> None:
    from dray.transport.relay import Relay

    lock = files.open_lock(f"{path}.lock")
    if not files.try_lock(lock):
        return  # another one is already there
    path.unlink(missing_ok=True)
    try:
        with beside(path, companion), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(BACKLOG)
            Relay(listener, open_session, pings=pings).run()
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


@contextmanager
def beside(path: Path, argv: Sequence[str]) -> Iterator[None]:
    """Keep a program running meanwhile. It ends with us, however we end: its shell's input does."""
    if not argv:
        yield
        return
    place = companion_of(path)
    place.unlink(missing_ok=True)
    words = ["/bin/sh", "-c", '"$@" & read -r line; kill $!', "sh", *argv]
    null = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=null, stderr=null) as shell:
        try:
            yield
        finally:
            assert shell.stdin is not None
            shell.stdin.close()
            place.unlink(missing_ok=True)


def main(path: str, root: str, python: str, scheduler: str, *channel: str) -> None:
    from dray.transport.channel import from_spec
    from dray.transport.link import AgentLink

    os.chdir("/")  # not to hold on to the user's folder
    way = from_spec(*channel)
    link = AgentLink(way, root, python, scheduler)
    companion = way.companion(str(companion_of(Path(path))))
    serve(Path(path), link.open_session, companion, pings=way.is_fragile)


if __name__ == "__main__":
    main(*sys.argv[1:])
