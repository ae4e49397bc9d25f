"""The last piece of the way to a door: it only passes on what is said.

Somebody waits for it, so it starts as quickly as a Python can: this text is handed to the node's
Python as it is (``words``), without dray's file, and it imports next to nothing.
"""

import _socket
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PIECE = 1 << 18


def relay(path: str, mark: bytes) -> int:
    """Pass on what is said between our own input and output and a socket, until either ends.
    ``mark`` comes before an answer like the agent's, which says why there is none."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
        if peer_of(connection) != os.getuid():
            return refuse(mark, "its door belongs to somebody else", "StorageError")
    except OSError:
        why = "its door is closed: it is just ending, or its node has lost it"
        return refuse(mark, why, "Refused")
    return pass_on(connection.fileno())


def pass_on(there: int) -> int:
    """Pass on what is said between our own input and output and this file."""
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


def peer_of(connection: "_socket.socket") -> int:
    """Return the user at the other end of a UNIX socket."""
    pid_user_group = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(pid_user_group[4:8], sys.byteorder)


def refuse(mark: bytes, text: str, family: str = "ClusterError") -> int:
    """Answer as the agent does."""
    import json  # seldom

    record = json.dumps({"error": text, "family": family}).encode("ascii")
    sys.stdout.buffer.write(mark + "{} 0\n".format(len(record)).encode() + record)
    sys.stdout.buffer.flush()
    return 1


def words(python: "List[str]", path: str, mark: bytes) -> "List[str]":
    """Return the words that start this program with the Python of another node. ``python`` starts
    dray's file with it, which is the last of these words."""
    try:
        text = __loader__.get_source(__name__)  # type: ignore[name-defined]
    except ImportError:  # a Python that cannot unpack it
        text = None
    return python[:-1] + ["-c", text, path, mark.hex()] if text else python + ["relay", path]


if __name__ == "__main__":
    sys.exit(relay(sys.argv[1], bytes.fromhex(sys.argv[2])))
