"""What a channel ends in: files, sockets, datagrams."""

import contextlib
import errno
import os
import socket

from . import frames
from .link import End
from .ready import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Optional  # noqa: F401

    from .link import Channel
    from .ready import Interests

LARGEST_DATAGRAM = 65507
LONGEST_PATH = 100  # bytes of a socket's path; the kernel takes a few more


class Outlet:
    """Writes what comes on a channel to a file, as fast as that takes it. ``piece`` is how much may
    be written at once: to a file that blocks, no more than it certainly takes."""

    def __init__(self, channel: "Channel", fd: int, piece: int = 1 << 16) -> None:
        self.channel = channel
        self.fd = fd  # -1 once nobody takes anything any more
        self.piece = piece
        self._pending = bytearray()
        self.is_last = False  # nothing follows what is pending

    @property
    def is_empty(self) -> bool:
        return not self._pending

    @property
    def is_done(self) -> bool:
        return self.fd < 0 or (self.is_last and not self._pending)

    def take(self, piece: bytes) -> None:
        if self.fd < 0:
            self.channel.consumed(len(piece))
            return
        self._pending += piece

    def interests(self, wanted: "Interests") -> None:
        if self._pending and self.fd >= 0:
            wanted.add(self.fd, WRITE, self.write)

    def write(self) -> None:
        try:
            with memoryview(self._pending) as whole, whole[: self.piece] as part:
                count = os.write(self.fd, part)
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self.give_up()
            return
        del self._pending[:count]
        self.channel.consumed(count)

    def give_up(self) -> None:
        self.fd = -1
        self.channel.consumed(len(self._pending))
        self._pending = bytearray()


class Stream(End):
    """A connected socket, or one that is being connected."""

    def __init__(self, channel: "Channel", sock: "socket.socket", connecting: bool = False) -> None:
        self.channel = channel
        self.sock = sock
        sock.setblocking(False)
        self._connecting = connecting
        self._outlet = Outlet(channel, sock.fileno(), 1 << 18)
        self._is_shut = False

    def refused(self, record: "Dict[str, Any]") -> None:
        del record
        self.channel.close()

    def data(self, piece: bytes) -> None:
        self._outlet.take(piece)
        if not self._connecting:
            self._write()

    def ended(self) -> None:
        self._outlet.is_last = True
        self._shut_if_done()

    def closed(self) -> None:
        self.sock.close()

    def interests(self, wanted: "Interests") -> None:
        if self._connecting:
            wanted.add(self.sock.fileno(), WRITE, self._connected)
            return
        if self.channel.room():
            wanted.add(self.sock.fileno(), READ, self._read)
        if not self._outlet.is_empty:
            wanted.add(self.sock.fileno(), WRITE, self._write)

    def _connected(self) -> None:
        if not self.channel.is_open:  # since this turn
            return
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self.channel.refuse(os.strerror(number))
            return
        self._connecting = False
        self.channel.tell(frames.OPENED, {})
        self._write()

    def _read(self) -> None:
        room = self.channel.room()
        if not room:
            return
        try:
            piece = os.read(self.sock.fileno(), room)
        except BlockingIOError:
            return
        except OSError:
            self.channel.close()
            return
        if piece:
            self.channel.send(piece)
        else:
            self.channel.finish()
            self._close_if_done()

    def _write(self) -> None:
        if not self._outlet.is_empty and self.channel.is_open:
            self._outlet.write()
        if self._outlet.fd < 0:  # the other side of the socket is gone
            self.channel.close()
        else:
            self._shut_if_done()

    def _shut_if_done(self) -> None:
        if self._outlet.is_done and not self._is_shut and not self._connecting:
            self._is_shut = True
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self._close_if_done()

    def _close_if_done(self) -> None:
        if self._is_shut and self.channel.has_ended:
            self.channel.close()


class Datagrams(End):
    """A socket for datagrams, each of which is a frame. Where there is no room for one it is lost,
    as on any other way. ``peer`` is who they go to, where the socket itself does not know."""

    def __init__(self, channel: "Channel", sock: "socket.socket", peer: "Any" = None) -> None:
        self.channel = channel
        self.sock = sock
        self.peer = peer
        sock.setblocking(False)

    def refused(self, record: "Dict[str, Any]") -> None:
        del record
        self.channel.close()

    def data(self, piece: bytes) -> None:
        self.channel.consumed(len(piece))
        try:
            if self.peer is None:
                self.sock.send(piece)
            else:
                self.sock.sendto(piece, self.peer)
        except OSError:  # nobody is there, or not yet
            pass

    def pass_on(self, piece: bytes) -> None:
        if self.channel.room() >= len(piece):
            self.channel.send(piece)

    def ended(self) -> None:
        self.channel.close()

    def closed(self) -> None:
        if self.peer is None:
            self.sock.close()

    def interests(self, wanted: "Interests") -> None:
        if self.peer is None:
            wanted.add(self.sock.fileno(), READ, self._read)

    def _read(self) -> None:
        try:
            self.pass_on(self.sock.recv(LARGEST_DATAGRAM))
        except OSError:
            pass


@contextlib.contextmanager
def short(address: "Any") -> "Iterator[Any]":
    """Name a socket so that the kernel takes it, however long the path of its folder is."""
    if not isinstance(address, str) or len(os.fsencode(address)) < LONGEST_PATH:
        yield address
        return
    folder = os.open(os.path.dirname(address), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield "/proc/self/fd/{}/{}".format(folder, os.path.basename(address))
    finally:
        os.close(folder)


def connect(channel: "Channel", family: int, address: "Any") -> "Optional[End]":
    """Begin to connect a socket; refuse the channel where that fails at once."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        with short(address) as near:
            number = sock.connect_ex(near)
    except OSError as error:
        number = error.errno or errno.EIO
    if number not in (0, errno.EINPROGRESS):
        sock.close()
        channel.refuse(os.strerror(number))
        return None
    if family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Stream(channel, sock, connecting=True)
