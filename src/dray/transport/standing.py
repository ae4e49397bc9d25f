"""A connection kept open between commands: one round trip instead of three.

A background process of the user's own holds one SSH session with a running agent behind it, and
passes requests on from a socket that only the user can open. It is started after a first command
has got through, ends by itself when nobody has asked for a while or when the session breaks, and
is never needed: whoever does not find it, or loses it, connects as before.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dray.node import files
from dray.node.packs import hash_of
from dray.node.wire import MARK

IDLE_SECONDS = 600.0
FIRST_WORD_SECONDS = 1.0
SILENCE_SECONDS = 150.0  # longer than Slurm is given to answer
PIECE = 1 << 18


class Broken(Exception):
    """One side of the relay is gone."""


def socket_of(folder: Path, *identity: str) -> Path:
    return folder / f"{hash_of(chr(0).join(identity).encode())[:20]}.link"


def connect(path: Path) -> socket.socket | None:
    """The standing connection, or None where there is none."""
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


def start(path: Path, *agent: str) -> None:
    """In the background, detached; nobody waits for it."""
    with open(os.devnull, "r+b") as null:
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), stream) for stream in (0, 1, 2)]
        # -P: nothing is imported from the folder that the user happens to stand in.
        words = [sys.executable, "-P", "-m", "dray.transport.standing", str(path), *agent]
        os.posix_spawn(words[0], words, os.environ, file_actions=actions, setsid=True)


def serve(path: Path, open_session: Callable[[], subprocess.Popen[bytes]]) -> None:
    lock = files.open_lock(f"{path}.lock")
    if not files.try_lock(lock):
        return  # another one is there already
    path.unlink(missing_ok=True)
    process = open_session()
    try:
        with socket.socket(socket.AF_UNIX) as listener, suppress(Broken, OSError):
            listener.bind(str(path))
            listener.listen(8)
            while someone_asks(listener, process):
                client, _ = listener.accept()
                stream: Any = client.makefile("rwb")
                with client, stream:
                    if has_spoken(client):
                        relay(stream, process)
    finally:
        path.unlink(missing_ok=True)
        process.terminate()
        process.wait()
        os.close(lock)


def someone_asks(listener: socket.socket, process: subprocess.Popen[bytes]) -> bool:
    """False once the session has ended, or nobody has asked for a long while."""
    assert process.stdout is not None
    watched: list[Any] = [listener, process.stdout]
    while ready := select.select(watched, [], [], IDLE_SECONDS)[0]:
        if ready == [listener]:
            return True
        if not process.stdout.read1(PIECE):  # type: ignore[attr-defined]
            return False  # anything else is a login shell's banner
    return False


def has_spoken(client: socket.socket) -> bool:
    """Who only looked whether we are here, or was stopped right then, must not block the others."""
    spoken = select.select([client], [], [], FIRST_WORD_SECONDS)[0]
    return bool(spoken and client.recv(1, socket.MSG_PEEK))


def relay(client: Any, process: subprocess.Popen[bytes]) -> None:
    """One request there, one answer back. A client that breaks off in between leaves the session
    in the middle of a message, so the session ends with it."""
    assert process.stdin is not None
    assert process.stdout is not None
    pass_on(client, process.stdin, client.readline())
    skip_to_mark(process.stdout)
    client.write(MARK)
    pass_on(process.stdout, client, process.stdout.readline())


def pass_on(source: IO[bytes], sink: IO[bytes], head: bytes) -> None:
    """A message: a line with two lengths, and so many bytes."""
    try:
        left = sum(map(int, head.split()))
    except ValueError:
        raise Broken from None
    sink.write(head)
    while left:
        piece = source.read(min(left, PIECE))
        if not piece:
            raise Broken
        left -= len(piece)
        sink.write(piece)
    sink.flush()


def skip_to_mark(stream: IO[bytes]) -> None:
    seen = b""
    while not seen.endswith(MARK):
        line = stream.readline()
        if not line:
            raise Broken
        seen = (seen + line)[-len(MARK) :]


def main(path: str, *agent: str) -> None:
    from dray.transport.ssh import AgentLink

    os.chdir("/")  # not to hold on to the user's folder
    serve(Path(path), AgentLink(*agent).open_session)


if __name__ == "__main__":
    main(*sys.argv[1:])
