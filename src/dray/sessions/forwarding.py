"""Forwards ports between this machine and a job's node, over one connection that is made anew when
it is lost. Here as there, only the machine's own processes can connect: all listen on the loopback.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from dray.errors import DrayError, Refused, UsageError
from dray.node.sessions import ends
from dray.node.sessions.frames import BadFrame
from dray.node.sessions.link import MOST_CHANNELS, Channel, End, Link
from dray.node.sessions.ready import READ, Interests
from dray.records import NamedTuple
from dray.transport.ways import Connection, Way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dray.sessions.syncing import Syncing

HERE = "127.0.0.1"
BACKLOG = 128
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
LONGEST = 300  # characters of what the other side says
MOST_SOURCES = 64  # of datagrams


class Forward(NamedTuple):
    """A port, or the path of a socket, on either side. ``reverse``: what connects to the node's
    side comes out here. ``address`` is where a port of this machine is: one of its loopback.
    ``own``: a port of the node that another account listens on is not connected to."""

    here: int | str
    there: int | str
    reverse: bool = False
    udp: bool = False
    address: str = HERE
    own: bool = False

    def asked(self) -> dict[str, Any]:
        if self.reverse:
            return {"what": "listen", "port": self.there}
        if isinstance(self.there, str):
            return {"what": "unix", "path": self.there}
        own = {"own": True} if self.own else {}
        return {"what": "udp" if self.udp else "tcp", "port": self.there, **own}


def parse(text: str, *, reverse: bool = False, udp: bool = False) -> Forward:
    """Parse PORT, LOCAL:REMOTE, /path/of/a/socket or LOCAL:/path/of/a/socket. Only a port is
    there twice: a socket's path gets a free port here."""
    first, colon, second = text.partition(":")
    here, there = (first, second) if colon else (first, first)
    if not colon and first.startswith("/"):
        here = "0"
    sides = [_side(one, text) for one in (here, there)]
    if udp and not all(isinstance(one, int) for one in sides):
        raise UsageError(f"{text}: datagrams go to ports")
    if reverse and not isinstance(sides[1], int):
        raise UsageError(f"{text}: in reverse, the job's side is a port")
    if not sides[1] and not reverse:
        raise UsageError(f"{text}: which port of the job?")
    return Forward(sides[0], sides[1], reverse, udp)


def _side(text: str, whole: str) -> int | str:
    if text.startswith("/"):
        return text
    if text.isascii() and text.isdigit() and int(text) < 65536:
        return int(text)
    raise UsageError(f"'{whole}' is not a port", hint="Write 8888, 9000:8888, or /path/of/a/socket")


class NotListening(Refused):
    """No port of the job leads here, and nothing else is forwarded."""


class Forwarding:
    """Listens here as long as it lives."""

    def __init__(
        self,
        forwards: Sequence[Forward],
        say: Callable[[str], None],
        syncing: Syncing | None = None,
    ) -> None:
        self.say = say
        self.syncing = syncing  # sends edits meanwhile
        self.connection: Connection | None = None
        self.reversed = [one for one in forwards if one.reverse]
        self._targets: dict[int, Forward] = {}  # by the number of the channel that listens there
        self._complaints: set[str] = set()
        self._refusal = ""  # of the last port of the job, where nothing else is forwarded
        self.doors: list[Listener | Mailbox] = []
        for one in forwards:
            if not one.reverse:
                self.doors.append(Mailbox(one, self) if one.udp else Listener(one, self))

    def close(self) -> None:
        for one in self.doors:
            one.sock.close()
            if isinstance(one.forward.here, str):
                with suppress(FileNotFoundError):  # somebody has removed it
                    os.unlink(one.forward.here)

    def run(self, way: Callable[[], Way]) -> None:
        """Forward until the job ends. A link that is lost is made again."""
        tries, was_connected = 0, False
        while True:
            try:
                with Connection(way(), self._is_asked) as self.connection:
                    self._serve(self.connection, was_connected)
            except NotListening:
                raise
            except DrayError as error:
                is_lost = self.connection is not None and self.connection.link.hello is not None
                was_connected = was_connected or is_lost
                if not was_connected:
                    raise
                if isinstance(error, Refused):
                    self.say(f"no more is forwarded: {error.message}")
                    return
                if not error.transient:
                    raise
                tries = 0 if is_lost else tries + 1
                if tries == 0:
                    self.say(f"{error.message}; connecting again")
                time.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            finally:
                self.connection = None

    def _serve(self, connection: Connection, is_again: bool) -> None:
        link = connection.link
        self._targets = {}
        if self.syncing is not None:
            self.syncing.join(link)
        for one in self.reversed:
            channel = link.open(one.asked(), partial(Awaited, forward=one, owner=self))
            self._targets[channel.number] = one
        is_told = False
        while link.is_alive:
            wanted = Interests()
            if link.hello is not None and not is_told:
                is_told = True
                self._tell(is_again)
            for door in self.doors:
                door.interests(wanted)
            connection.turn(wanted)
            if self._refusal and not is_again:
                raise NotListening(self._refusal, hint="Choose another port there: LOCAL:REMOTE")
        raise connection.why_lost()

    def _tell(self, is_again: bool) -> None:
        if is_again:
            self.say("connected again")
            return
        for door in self.doors:
            self.say(f"{door.name()} leads to {there(door.forward)}")

    @property
    def link(self) -> Link | None:
        return self.connection.link if self.connection is not None else None

    def complain(self, text: str) -> None:
        """Say what goes wrong, once."""
        if text not in self._complaints:
            self._complaints.add(text)
            self.say(text)

    def is_refused(self, channel: Channel, text: str) -> None:
        """Do without a port of the job."""
        self._targets.pop(channel.number, None)
        if self._targets or self.doors or self.syncing is not None:
            self.complain(text)
        else:
            self._refusal = text

    def _is_asked(self, channel: Channel, record: Mapping[str, Any]) -> None:
        """Connect to what was named here, for a connection that came in over there; and to nothing
        else, whatever the node says."""
        number = record.get("on")
        target = self._targets.get(number) if isinstance(number, int) else None
        if target is None or record.get("what") != "incoming":
            channel.refuse("nothing of this machine is offered")
            return
        family, address = place(target)
        channel.end = ends.connect(channel, family, address) or channel.end


class Awaited(End):
    """A port of the node that leads here."""

    def __init__(self, channel: Channel, forward: Forward, owner: Forwarding) -> None:
        self.channel = channel
        self.forward = forward
        self.owner = owner
        self._is_opened = False

    def opened(self, record: dict[str, Any]) -> None:
        """Say which port it is: the one that was asked for, or any where none was."""
        port, asked = record.get("port"), self.forward.there
        is_possible = type(port) is int and 0 < port < 65536 and asked in (0, port)
        if self._is_opened or not is_possible:
            raise BadFrame("a port is opened that was not asked for")
        self._is_opened = True
        self.owner.say(f"port {port} of the job leads to {name_of(self.forward.here)} here")

    def refused(self, record: dict[str, Any]) -> None:
        why = str(record.get("error", ""))[:LONGEST]
        text = f"port {self.forward.there} of the job cannot be listened on: {why}"
        self.owner.is_refused(self.channel, text)


class Listener:
    """A port, or a socket, of this machine. Whoever connects while there is no link waits."""

    def __init__(self, forward: Forward, owner: Forwarding) -> None:
        self.forward = forward
        self.owner = owner
        family, address = place(forward)
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        bind(self.sock, address, forward)
        self.sock.listen(BACKLOG)
        self.sock.setblocking(False)
        if isinstance(forward.here, str):
            os.chmod(forward.here, 0o600)

    def name(self) -> str:
        if isinstance(self.forward.here, str):
            return self.forward.here
        return f"{self.forward.address}:{self.sock.getsockname()[1]}"

    def interests(self, wanted: Interests) -> None:
        link = self.owner.link
        if link is not None and link.hello and len(link.channels) < MOST_CHANNELS:
            wanted.add(self.sock.fileno(), READ, self._accept)

    def _accept(self) -> None:
        link = self.owner.link
        try:
            connection, _ = self.sock.accept()
        except OSError:
            return
        assert link is not None
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.open(
            self.forward.asked(),
            lambda channel: Passing(channel, connection, self.forward, self.owner),
        )


class Passing(ends.Stream):
    """A connection that was made here. It is passed on before it is known whether somebody is at
    the other end: that saves a round trip."""

    def __init__(
        self, channel: Channel, sock: socket.socket, forward: Forward, owner: Forwarding
    ) -> None:
        super().__init__(channel, sock)
        self.forward = forward
        self.owner = owner

    def refused(self, record: dict[str, Any]) -> None:
        why = str(record.get("error", ""))[:LONGEST]
        self.owner.complain(f"{there(self.forward)}: {why}")
        super().refused(record)


class Mailbox:
    """A port of this machine for datagrams; each sender has a channel of its own."""

    def __init__(self, forward: Forward, owner: Forwarding) -> None:
        self.forward = forward
        self.owner = owner
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bind(self.sock, place(forward)[1], forward)
        self.sock.setblocking(False)
        self._senders: dict[Any, ends.Datagrams] = {}

    def name(self) -> str:
        return f"{self.forward.address}:{self.sock.getsockname()[1]} (UDP)"

    def interests(self, wanted: Interests) -> None:
        if self.owner.link is not None:
            wanted.add(self.sock.fileno(), READ, self._receive)

    def _receive(self) -> None:
        link = self.owner.link
        try:
            piece, sender = self.sock.recvfrom(ends.LARGEST_DATAGRAM)
        except OSError:
            return
        assert link is not None
        known = self._senders.get(sender)
        if known is None or not known.channel.is_open or known.channel.link is not link:
            self._forget()
            known = self._open(link, sender)
        known.pass_on(piece)

    def _open(self, link: Link, sender: Any) -> ends.Datagrams:
        made: list[ends.Datagrams] = []

        def make(channel: Channel) -> End:
            made.append(ends.Datagrams(channel, self.sock, sender))
            return made[0]

        link.open(self.forward.asked(), make)
        self._senders[sender] = made[0]
        return made[0]

    def _forget(self) -> None:
        """Close the oldest channel, where there are many."""
        if len(self._senders) >= MOST_SOURCES:
            self._senders.pop(next(iter(self._senders))).channel.close()


def bind(sock: socket.socket, address: Any, forward: Forward) -> None:
    try:
        if sock.type == socket.SOCK_STREAM and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_UNIX:
            remove_abandoned(address)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"{name_of(forward.here)} cannot be listened on here: {error.strerror}",
            hint=f"Choose another port, or any free one: 0:{forward.there}",
        ) from error


def remove_abandoned(path: str) -> None:
    """Remove a socket of ours that nobody listens on any more: its dray was killed."""
    try:
        about = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(about.st_mode) or about.st_uid != os.getuid():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)


def place(forward: Forward) -> tuple[int, Any]:
    """Return where the side of a forward is that is here."""
    if isinstance(forward.here, str):
        return socket.AF_UNIX, forward.here
    return socket.AF_INET, (forward.address, forward.here)


def name_of(side: int | str) -> str:
    return side if isinstance(side, str) else f"port {side}"


def there(forward: Forward) -> str:
    return f"{name_of(forward.there)} of the job"
