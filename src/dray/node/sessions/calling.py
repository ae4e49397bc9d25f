"""The login node's side of a call: it listens for the job, and nobody else is let in.

The port is open only while the job is waited for. Others on the network may connect to it, too:
each of them has a few seconds to prove that it knows the secret, is told nothing before, and holds
up nobody else.
"""

import os
import select
import socket
import time

from . import calls, proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional  # noqa: F401

PATIENCE = 15.0  # seconds for the job to be there: it looks for calls every second
AGAIN = 5.0  # seconds after which it is called once more
GUEST_SECONDS = 5.0  # for the proof
MOST_GUESTS = 256
BACKLOG = 128
# An address of nobody: the way there is the one that leads out.
ELSEWHERE = ("192.0.2.1", "2001:db8::1")


class Guest:
    """Somebody who has connected, and proves who it is."""

    def __init__(self, sock: "socket.socket", secret: bytes) -> None:
        self.sock = sock
        self.side = proof.Listener(secret)
        self.until = time.monotonic() + GUEST_SECONDS

    def hear(self) -> bool:
        """Read what was said. Returns False for who is to leave."""
        try:
            piece = self.sock.recv(self.side.missing)
            if not piece:
                return False
            answer = self.side.take(piece)
            return not answer or self.sock.send(answer) == len(answer)
        except BlockingIOError:
            return True
        except (OSError, proof.Wrong):
            return False


class Reception:
    """A port, and all who have connected to it."""

    def __init__(self) -> None:
        self.secret = os.urandom(proof.SECRET)
        self.listening = listen()
        self.port = self.listening.getsockname()[1]
        self.guests = {}  # type: Dict[int, Guest]

    def close(self) -> None:
        self.listening.close()
        for guest in self.guests.values():
            guest.sock.close()

    def wait(self, seconds: float) -> "Optional[socket.socket]":
        """Return the connection of who has the secret, if it comes within this time."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return None
            for fd in self._ready(left):
                if fd == self.listening.fileno():
                    self._accept()
                elif fd in self.guests and self._hear(fd):
                    return self.guests.pop(fd).sock
            self._send_away([fd for fd, one in self.guests.items() if one.until < time.monotonic()])

    def _ready(self, seconds: float) -> "List[int]":
        poll = select.poll()
        for fd in [self.listening.fileno()] + list(self.guests):
            poll.register(fd, select.POLLIN)
        return [fd for fd, _ in poll.poll(int(min(seconds, 1.0) * 1000) + 1)]

    def _accept(self) -> None:
        try:
            sock, _ = self.listening.accept()
        except OSError:  # it has left already
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The job needs no more than a moment: where there are too many, it is not the oldest.
        self._send_away(sorted(self.guests, key=self._age)[MOST_GUESTS - 1 :])
        self.guests[sock.fileno()] = Guest(sock, self.secret)

    def _age(self, fd: int) -> float:
        return -self.guests[fd].until

    def _hear(self, fd: int) -> bool:
        guest = self.guests[fd]
        if guest.hear():
            return guest.side.is_done
        self._send_away([fd])
        return False

    def _send_away(self, fds: "List[int]") -> None:
        for fd in fds:
            self.guests.pop(fd).sock.close()


def listen() -> "socket.socket":
    """Listen on a free port, for both sorts of addresses where there are both."""
    if socket.has_ipv6:
        try:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            return listening(sock, "::")
        except OSError:
            pass
    return listening(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0")  # noqa: S104


def listening(sock: "socket.socket", address: str) -> "socket.socket":
    try:
        sock.bind((address, 0))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def own_addresses(host: str) -> "List[str]":
    """Return the addresses of this machine: first the one that faces the job's node, then the one
    that its name stands for, then the one that faces the world."""
    found = list(facing(host)) + named(socket.gethostname())
    for address in ELSEWHERE:
        found += facing(address)
    return [one for at, one in enumerate(found) if one not in found[:at]]


def facing(host: str) -> "Iterator[str]":
    """Yield the own addresses on the way to a machine. Nothing is sent there."""
    try:
        targets = socket.getaddrinfo(host, 9, 0, socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return
    for family, kind, protocol, _, target in targets:
        try:
            with socket.socket(family, kind, protocol) as sock:
                sock.connect(target)
                yield str(sock.getsockname()[0])
        except OSError:  # no way
            continue


def named(name: str) -> "List[str]":
    try:
        return [str(one[4][0]) for one in socket.getaddrinfo(name, 9, 0, socket.SOCK_DGRAM)]
    except (OSError, UnicodeError):
        return []


def call(path: str, host: str) -> "Optional[socket.socket]":
    """Call the job with this file for calls, on this host; return the connection to it. None where
    it does not come, which may be for a wall between the two."""
    reception = Reception()
    try:
        wanted = calls.Call(own_addresses(host), reception.port, reception.secret)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            calls.append(path, wanted)
            found = reception.wait(min(AGAIN, until - time.monotonic()))
            if found is not None:
                found.setblocking(True)
                return found
    except OSError:  # there is no such file, or no port is left
        pass
    finally:
        reception.close()
    return None
