"""How the pods of a job on several nodes meet: they have no names that others could look up, and
need none.

The pod that holds the job's lock leads. It writes its address, and a token, into a private file of
the job's directory. The others connect, and both sides show that they know the token without
sending it: a stranger who connects learns nothing but a random number, and one who listens where a
dead leader did learns nothing either.

    from the leader                     from a follower
    nonce                               host, nonce, proof
    proof
    node    which part of it it is, once all are there
"""

import hmac
import json
import os
import re
import select
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union  # noqa: F401

    from ..formats.records import Part, Record

LONGEST = 4096  # bytes of a message before the attempt
PATIENCE = 10.0  # seconds for a stranger to show what it knows
MOST_STRANGERS = 64
CONNECTING = 3.0
LOOK = 1.0
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
LEADER, FOLLOWER = "leader", "follower"
# A node that is switched off says nothing: it is given up after half a minute.
ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30000}


def prove(token: str, role: str, *nonces: str) -> str:
    """Return what only somebody can say who knows the token, to this question and in this role."""
    said = "\n".join(("dray", role) + nonces)
    return hmac.new(token.encode("ascii"), said.encode("ascii"), "sha256").hexdigest()


def is_proof(given: "Any", token: str, role: str, *nonces: str) -> bool:
    if not isinstance(given, str):
        return False
    expected = prove(token, role, *nonces)
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("ascii"))


def is_nonce(value: "Any") -> bool:
    return isinstance(value, str) and re.match("[0-9a-f]{32}$", value) is not None


def decode(line: bytes) -> "Record":
    """Read a message; an empty one for what is none."""
    try:
        message = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def encode(message: "Union[Record, Part]") -> bytes:
    return json.dumps(message).encode("ascii") + b"\n"


def keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# -- the leader -----------------------------------------------------------------------------------


class Guest:
    """A connection to the leader: a stranger's, until it has a host."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.nonce = os.urandom(16).hex()
        self.received = b""
        self.until = time.monotonic() + PATIENCE
        self.host = ""


class Meeting:
    """Waits for followers. It acts only while it is asked to: connections that come meanwhile wait
    in the kernel's own queue."""

    def __init__(self, address: str, wanted: int) -> None:
        self.address = address
        self.wanted = wanted
        self.token = os.urandom(32).hex()
        self.guests = {}  # type: Dict[int, Guest]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.door = socket.socket(family, socket.SOCK_STREAM)
        self.door.bind((address, 0))
        self.door.listen(128)
        self.door.setblocking(False)

    def describe(self) -> "Record":
        """Return what followers have to know."""
        port = self.door.getsockname()[1]
        return {"address": self.address, "port": port, "token": self.token}

    def followers(self) -> "List[Guest]":
        """Return those who are there, in the same order whenever they came."""
        proved = [one for one in self.guests.values() if one.host]
        return sorted(proved, key=lambda one: (len(one.host), one.host))[: self.wanted]

    def is_complete(self) -> bool:
        return len(self.followers()) == self.wanted

    def wait(self, seconds: float) -> None:
        """Listen to whoever comes, until something happens or the time is over."""
        poll = select.poll()
        for fd in [self.door.fileno()] + list(self.guests):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(max(seconds, 0.0) * 1000):
            if fd == self.door.fileno():
                self._admit()
            elif fd in self.guests:
                self._hear(self.guests[fd])
        now = time.monotonic()
        for guest in list(self.guests.values()):
            if not guest.host and now > guest.until:
                self._dismiss(guest)

    def _admit(self) -> None:
        for _ in range(MOST_STRANGERS):  # then the leader looks up: others may come without end
            try:
                connection = self.door.accept()[0]
            except OSError:  # none is left, or one has gone again
                return
            connection.setblocking(False)
            guest = Guest(connection)
            self.guests[connection.fileno()] = guest
            try:
                keep_alive(connection)
                connection.send(encode({"nonce": guest.nonce}))
            except OSError:
                self._dismiss(guest)
            strangers = [one for one in self.guests.values() if not one.host]
            if len(strangers) > MOST_STRANGERS:
                self._dismiss(strangers[0])

    def _hear(self, guest: Guest) -> None:
        try:
            piece = guest.connection.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        guest.received += piece
        line, end, more = guest.received.partition(b"\n")
        is_mute = not piece or guest.host or more or len(line) > LONGEST
        if is_mute or (end and not self._welcome(guest, decode(line))):
            self._dismiss(guest)

    def _welcome(self, guest: Guest, said: "Record") -> bool:
        host, nonce = said.get("host"), said.get("nonce")
        if not is_nonce(nonce) or not isinstance(host, str) or not HOST.match(host):
            return False
        asked = (guest.nonce, str(nonce), host)
        if not is_proof(said.get("proof"), self.token, FOLLOWER, *asked):
            return False
        for other in list(self.guests.values()):
            if other.host == host:  # it has come again: the old connection is dead
                self._dismiss(other)
        guest.host, guest.received = host, b""
        try:
            guest.connection.send(encode({"proof": prove(self.token, LEADER, *asked)}))
        except OSError:
            return False
        return True

    def assign(self, parts: "List[Part]") -> "List[Tuple[int, str, List[int]]]":
        """Tell each follower its part. Return, of each, the connection, which a program that is
        started next inherits, its host and its ranks."""
        assigned = []
        for number, guest in enumerate(self.followers()):
            try:
                guest.connection.send(encode(parts[number]))
            except OSError:
                pass  # whoever uses the connection next finds its end
            guest.connection.set_inheritable(True)
            ranks = parts[number]["ranks"]
            assigned.append((guest.connection.fileno(), guest.host, ranks))
        return assigned

    def dismiss_followers(self) -> None:
        for guest in self.followers():
            self._dismiss(guest)

    def _dismiss(self, guest: Guest) -> None:
        self.guests.pop(guest.connection.fileno(), None)
        guest.connection.close()

    def close(self) -> None:
        for guest in list(self.guests.values()):
            self._dismiss(guest)
        self.door.close()


# -- a follower -----------------------------------------------------------------------------------


def join(
    leader: "Record", host: str, is_over: "Callable[[], bool]"
) -> "Optional[Tuple[socket.socket, Part]]":
    """Offer this pod to the leader, and wait for its part. Return the connection, and the part;
    None where the leader is gone, is not the one who wrote the file, or ``is_over``."""
    address, port, token = (leader.get(key) for key in ("address", "port", "token"))
    if not isinstance(address, str) or not isinstance(port, int) or not isinstance(token, str):
        return None
    try:
        connection = socket.create_connection((address, port), CONNECTING)
    except (OSError, OverflowError):
        return None
    try:
        keep_alive(connection)
        part = _introduce(connection, token, host, is_over)
    except OSError:
        part = None
    if part is None:
        connection.close()
        return None
    connection.settimeout(None)
    return connection, part


def _introduce(
    connection: socket.socket, token: str, host: str, is_over: "Callable[[], bool]"
) -> "Optional[Part]":
    theirs = read_line(connection, is_over).get("nonce")
    if not is_nonce(theirs):
        return None
    nonce = os.urandom(16).hex()
    asked = (str(theirs), nonce, host)
    mine = {"host": host, "nonce": nonce, "proof": prove(token, FOLLOWER, *asked)}
    connection.sendall(encode(mine))
    answer = read_line(connection, is_over)
    if not is_proof(answer.get("proof"), token, LEADER, *asked):
        return None
    return as_part(read_line(connection, is_over))


def as_part(said: "Record") -> "Optional[Part]":
    node, ranks, address = (said.get(key) for key in ("node", "ranks", "address"))
    if not isinstance(node, int) or not isinstance(ranks, list) or not isinstance(address, str):
        return None
    return {"node": node, "ranks": [int(one) for one in ranks], "address": address}


def read_line(connection: socket.socket, is_over: "Callable[[], bool]") -> "Record":
    """Read one message and nothing beyond it: what follows is for another process. An empty one
    where there is none. Whoever sends it byte by byte does not keep this side from looking up."""
    line, look = b"", time.monotonic() + LOOK
    while len(line) < LONGEST:
        has_more = select.select([connection], [], [], LOOK)[0]
        if time.monotonic() >= look:
            if is_over():
                return {}
            look = time.monotonic() + LOOK
        if not has_more:
            continue
        piece = connection.recv(1)
        if piece == b"\n":
            return decode(line)
        if not piece:
            return {}
        line += piece
    return {}
