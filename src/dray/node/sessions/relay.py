"""The last piece of the way to a door: it only passes on what is said. Quick to start."""

import os
import select
import socket
import struct
import sys

from ..formats.wire import MARK

PIECE = 1 << 18


def relay(path: str) -> int:
    """Pass on what is said between our own input and output and a socket, until either ends."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        if peer_of(connection) != os.getuid():
            return refuse("its door belongs to somebody else", "StorageError")
    except OSError:
        return refuse("its door is closed: it is just ending, or its node has lost it", "Refused")
    there = connection.fileno()
    targets = {0: there, there: 1}
    poll = select.poll()
    for fd in targets:
        poll.register(fd, select.POLLIN)
    try:
        while True:
            for fd, _ in poll.poll():
                piece = os.read(fd, PIECE)
                if not piece:
                    return 0
                write_all(targets[fd], piece)
    except OSError:  # one of the two has left
        return 0


def write_all(fd: int, piece: bytes) -> None:
    """Write it all. Both ends always read, so this does not wait for long."""
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(fd, rest) :]


def peer_of(connection: "socket.socket") -> int:
    """Return the user at the other end of a UNIX socket."""
    size = struct.calcsize("3i")
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", told)[1])


def refuse(text: str, family: str = "ClusterError") -> int:
    """Answer as the agent does."""
    import json  # seldom

    record = json.dumps({"error": text, "family": family}).encode("ascii")
    sys.stdout.buffer.write(MARK + "{} 0\n".format(len(record)).encode() + record)
    sys.stdout.buffer.flush()
    return 1
