"""Asks servers by HTTP: whom to trust, and how much of an answer is waited for, and taken.

A timeout of a socket is one for each piece that comes. A server that sends a byte now and then
would never meet it, so that an answer has a time for all of it, its headers too."""

import http.client
import io
import socket
import time
from functools import partial

from .interpreters import certificates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, TypeVar  # noqa: F401

    Kind = TypeVar("Kind", bound=http.client.HTTPConnection)

WHOLE = 180.0  # seconds for an answer, however much of it trickles in
SHORTEST = 0.01  # seconds: 0 would not wait, and mean something else to a socket
PIECE = 1 << 16


class TooLong(OSError):
    """An answer is larger than anybody asks for."""


class Timed(io.RawIOBase):
    """Reads from a socket, each time within its timeout, and all in all within ``seconds``."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        io.RawIOBase.__init__(self)
        self.sock = sock
        self.pieces = sock.makefile("rb", 0)  # it keeps the socket open, as HTTPResponse wants it
        self.patience = sock.gettimeout()
        self.seconds = seconds  # type: Optional[float]
        self.until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, into: "Any") -> "Optional[int]":
        if self.seconds is not None:
            left = max(self.until - time.monotonic(), SHORTEST)
            self.sock.settimeout(left if self.patience is None else min(left, self.patience))
        try:
            number = self.pieces.readinto(into)
        except socket.timeout:
            self._check()
            raise
        self._check()
        return number

    def _check(self) -> None:
        if self.seconds is not None and time.monotonic() >= self.until:
            raise socket.timeout("no whole answer in {:g} s".format(self.seconds))

    def wait_for_ever(self) -> None:
        """Read on without any limit of time: an answer without end may be silent for long."""
        self.seconds = None
        self.sock.settimeout(None)

    def close(self) -> None:
        if not self.closed:
            if self.seconds is not None and self.sock.fileno() >= 0:
                self.sock.settimeout(self.patience)  # the next request has its own
            self.pieces.close()
        io.RawIOBase.close(self)


class Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: "Any", seconds: float, **kwargs: "Any") -> None:
        http.client.HTTPResponse.__init__(self, sock, *args, **kwargs)
        self.fp.close()
        self.timed = Timed(sock, seconds)
        self.fp = io.BufferedReader(self.timed)


def bound(connection: "Kind", seconds: "Optional[float]" = None) -> "Kind":
    """Give each answer on a connection so many seconds for all of it; by default WHOLE."""
    whole = WHOLE if seconds is None else seconds
    connection.response_class = partial(Answer, seconds=whole)  # type: ignore[assignment]
    return connection


def read_whole(answer: "Any", largest: int) -> bytes:
    """Read an answer to its end; raise TooLong where it has more bytes than that."""
    found = bytearray()
    while True:
        try:
            piece = answer.read(PIECE)
        except ValueError as error:  # a length that is none
            raise http.client.HTTPException("its answer cannot be read: {}".format(error))
        if not piece:
            return bytes(found)
        found += piece
        if len(found) > largest:
            raise TooLong("its answer has more than {} MB".format(largest >> 20))


def opener(seconds: float) -> "Any":
    """Return what opens addresses, with so many seconds for an answer. Certificates are verified
    and the environment's proxies are used; no redirect is followed, as it could lead anywhere."""
    import urllib.request  # only where somebody asks

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: "Any", **__: "Any") -> None:
            return None

    class Plain(urllib.request.HTTPHandler):
        def http_open(self, asked: "Any") -> "Any":
            return self.do_open(plain, asked)

    def plain(host: str, **more: "Any") -> http.client.HTTPConnection:
        return bound(http.client.HTTPConnection(host, **more), seconds)

    def secure(host: str, **more: "Any") -> http.client.HTTPConnection:
        return bound(http.client.HTTPSConnection(host, context=trust(), **more), seconds)

    handlers = [NoRedirect(), Plain()]  # type: List[Any]
    if hasattr(urllib.request, "HTTPSHandler"):  # not every Python has it

        class Secure(urllib.request.HTTPSHandler):
            def https_open(self, asked: "Any") -> "Any":
                return self.do_open(secure, asked)

        handlers.append(Secure())
    return urllib.request.build_opener(*handlers)


def trust() -> "Any":
    """Return whom a connection trusts: this machine's authorities, and those that came along with a
    copied Python, as there may be none where it runs."""
    import ssl

    context = ssl.create_default_context()
    authorities = certificates()
    if authorities is not None:
        context.load_verify_locations(authorities)
    return context
