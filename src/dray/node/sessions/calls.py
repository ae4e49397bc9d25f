"""Calls: how a job is asked to come out to the login node, where nothing leads to its node.

PBS starts no program beside a running job. So whoever wants in listens on a port of the login node,
and appends a line to a file beside the job's door: where it listens, and a secret for this one
connection. The job's supervisor looks at that file every second, and the server that it starts
dials. It is what ``qsub -I`` does, so it works wherever that works.

The file is there from the beginning, and is only ever appended to: on NFS, a new file may not be
seen for half a minute, but whoever opens one that he knows sees all that is in it.
"""

import json
import os

from ..formats import files, shapes
from . import proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple  # noqa: F401

MOST_ADDRESSES = 8
MOST_READ = 1 << 16  # bytes that are looked at in one turn


class Call:
    """Where somebody listens: addresses, in numbers, and the port."""

    def __init__(self, addresses: "List[str]", port: int, secret: bytes) -> None:
        self.addresses = addresses[:MOST_ADDRESSES]
        self.port = port
        self.secret = secret

    def line(self) -> bytes:
        told = {"addresses": self.addresses, "port": self.port, "secret": self.secret.hex()}
        return json.dumps(told).encode("ascii") + b"\n"


def path_beside(door: str) -> str:
    """Return the file for the calls to a door, whose own file is ``door``."""
    return os.path.splitext(door)[0] + ".calls"


def parse(line: bytes) -> "List[Call]":
    """Parse a line; none where it makes no sense."""
    told = files.decode(line)  # type: Any
    if not isinstance(told, dict):
        return []
    addresses, port, text = told.get("addresses"), told.get("port"), told.get("secret")
    if not (isinstance(addresses, list) and shapes.is_texts(addresses) and isinstance(text, str)):
        return []
    if type(port) is not int or not 0 < port < 65536:
        return []
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        return []
    return [Call(addresses, port, secret)] if len(secret) == proof.SECRET else []


class Calls:
    """The file, and how much of it was heard."""

    def __init__(self, path: str, heard: int = 0) -> None:
        self.path = path
        self.heard = heard

    def make(self) -> None:
        """Make the file. One that is there already is of a supervisor that was killed."""
        files.write_bytes(self.path, b"", durable=False)

    def remove(self) -> None:
        files.discard(self.path)

    def is_waiting(self) -> bool:
        """Return whether somebody has called."""
        return self._size() > self.heard

    def skip(self) -> None:
        """Leave what was called so far: whoever is in earnest calls again."""
        self.heard = self._size()

    def _size(self) -> int:
        try:
            return self._read(0)[0]
        except OSError:  # a disk that does not answer: the next look is soon
            return self.heard

    def _read(self, most: int) -> "Tuple[int, bytes]":
        """Read on. The file is opened anew each time: see above."""
        return files.read_piece(self.path, self.heard, most)

    def take(self) -> "List[Call]":
        """Return the calls that have come since."""
        try:
            _, text = self._read(MOST_READ)
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1] or (text if len(text) == MOST_READ else b"")
        self.heard += len(whole)
        return [call for line in whole.splitlines() for call in parse(line)]


def append(path: str, call: Call) -> None:
    """Call the job whose file this is. Raises OSError where there is none."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.write(fd, call.line())
    finally:
        os.close(fd)
