"""A job's side of a call: it dials, and lets in whoever proves to be the one who called."""

import errno
import socket
import time

from . import proof
from .ready import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional  # noqa: F401

    from .calls import Call, Calls
    from .ready import Interests

PATIENCE = 10.0  # seconds to be let in
MOST = 32  # connections that are being made
LOOK = 0.2  # seconds between two looks at the calls


class Dialing:
    """All calls that are being answered. ``let_in`` gets the connections, as files."""

    def __init__(self, calls: "Calls", let_in: "Callable[[int], None]") -> None:
        self.calls = calls
        self.let_in = let_in
        self.lines = []  # type: List[Line]
        self._next_look = 0.0

    def interests(self, wanted: "Interests") -> float:
        """Look whether somebody has called; return the seconds until the next look."""
        now = time.monotonic()
        for line in self.lines:
            if now > line.until:
                line.close()
        self.lines = [line for line in self.lines if line.is_open]
        if now >= self._next_look:
            self._next_look = now + LOOK
            for call in self.calls.take():
                self._dial(call)
        for line in self.lines:
            line.interests(wanted)
        return max(self._next_look - now, 0.0)

    def _dial(self, call: "Call") -> None:
        for address in call.addresses:
            if len(self.lines) < MOST:
                line = Line.begin(address, call, self._is_through)
                self.lines += [line] if line is not None else []

    def _is_through(self, through: "Line") -> None:
        """Let somebody in, who needs no further connections."""
        for line in self.lines:
            if line.call is through.call and line is not through:
                line.close()
        self.let_in(through.sock.detach())

    def close(self) -> None:
        for line in self.lines:
            line.close()


class Line:
    """One connection, from dialing to the proof of both sides."""

    def __init__(
        self, sock: "socket.socket", call: "Call", is_through: "Callable[[Line], None]"
    ) -> None:
        self.sock = sock
        self.call = call
        self.until = time.monotonic() + PATIENCE
        self.is_open = True
        self._side = proof.Dialer(call.secret)
        self._is_connected = False
        self._is_through = is_through

    @classmethod
    def begin(
        cls, address: str, call: "Call", is_through: "Callable[[Line], None]"
    ) -> "Optional[Line]":
        """Begin to connect; None where that is not possible. Addresses are numbers: nobody is asked
        what a name means, which might take long."""
        try:
            found = socket.getaddrinfo(
                address, call.port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST
            )
            family, kind, protocol, _, target = found[0]
            sock = socket.socket(family, kind, protocol)
        except (OSError, ValueError):
            return None
        sock.setblocking(False)
        if sock.connect_ex(target) not in (0, errno.EINPROGRESS):
            sock.close()
            return None
        return cls(sock, call, is_through)

    def interests(self, wanted: "Interests") -> None:
        if self._is_connected:
            wanted.add(self.sock.fileno(), READ, self._hear)
        else:
            wanted.add(self.sock.fileno(), WRITE, self._greet)

    def _greet(self) -> None:
        if not self.is_open or self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()
            return
        self._is_connected = True
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._say(self._side.greeting)

    def _hear(self) -> None:
        if not self.is_open:  # since this turn
            return
        try:
            piece = self.sock.recv(self._side.missing)
            if not piece:
                raise proof.Wrong
            self._say(self._side.take(piece))
        except BlockingIOError:
            return
        except (OSError, proof.Wrong):
            self.close()
            return
        if self._side.is_done:
            self.is_open = False
            self._is_through(self)

    def _say(self, text: bytes) -> None:
        """Say so few bytes that a new connection takes them at once."""
        try:
            self.sock.sendall(text)
        except OSError:
            self.close()

    def close(self) -> None:
        self.is_open = False
        self.sock.close()
