"""One end of a connection: its channels, what each of them may still send, and a sign of life.

Nothing here waits: whoever runs the end asks for its interests, waits for what comes first, and
tells it. A slow reader holds up its own channel alone, as each has a window of its own: what is
read is always taken from the connection.
"""

import os
import time

from . import frames
from .frames import BadFrame, frame, record_frame
from .ready import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional  # noqa: F401

    from .ready import Interests

PIECE = 1 << 18
ROOM = 1 << 18  # bytes that wait to be written: more would delay what is typed
FLOOD = 16 << 20  # the other end does not read what it asks for
LONGEST_BANNER = 1 << 20
MOST_CHANNELS = 256
PING_SECONDS = 3.0
SILENCE = 12.0  # seconds, after which the other end is taken for gone
MOST_PATIENCE = 600  # the same, for who says in its hello that it may be stopped (Ctrl-Z)
BEGINNING = 90.0  # the same before it has said anything: a scheduler may be slow to lead there
# Seconds for which an announcement waits for what follows it. On its way through a scheduler, the
# second of two small writes can wait 40 ms until the first one is acknowledged.
COMPANY = 0.02


class End:
    """What a channel ends in here. Each method is told what the other end says."""

    def opened(self, record: "Dict[str, Any]") -> None:
        pass

    def refused(self, record: "Dict[str, Any]") -> None:
        pass

    def data(self, piece: bytes) -> None:
        """Take what comes. Whoever has no more use for it says so: see ``Channel.consumed``."""

    def errors(self, piece: bytes) -> None:
        """Take what a process wrote to stderr."""

    def ended(self) -> None:
        """Know that no more data comes."""

    def resize(self, rows: int, columns: int) -> None:
        pass

    def signal(self, number: int) -> None:
        pass

    def exited(self, record: "Dict[str, Any]") -> None:
        pass

    def closed(self) -> None:
        """Clear away: the channel is over, or its connection."""

    def interests(self, wanted: "Interests") -> None:
        pass


class Channel:
    def __init__(self, link: "Link", number: int) -> None:
        self.link = link
        self.number = number
        self.end = End()
        self.credit = frames.WINDOW  # bytes that we may send
        self.allowed = frames.WINDOW  # bytes that may come
        self._eaten = 0
        self.has_ended = False  # on our side
        self.got_end = False
        self.is_open = True

    def room(self) -> int:
        """Return how many bytes can be sent now."""
        if not self.is_open or self.has_ended:
            return 0
        return max(min(self.credit, self.link.room(), frames.LARGEST), 0)

    def send(self, piece: bytes, kind: int = frames.DATA) -> None:
        """Send no more than there is room for."""
        self.credit -= len(piece)
        self.link.send(frame(self.number, kind, piece))

    def consumed(self, count: int) -> None:
        """Let the other end send so many bytes more."""
        self._eaten += count
        if self._eaten >= frames.WINDOW // 8 and self.is_open:
            self.allowed += self._eaten
            self._tell(frames.CREDIT, frames.NUMBER.pack(self._eaten))
            self._eaten = 0

    def _tell(self, kind: int, content: bytes = b"") -> None:
        if self.is_open:
            self.link.send(frame(self.number, kind, content))

    def tell(self, kind: int, record: "Dict[str, Any]") -> None:
        if self.is_open:
            self.link.send(record_frame(self.number, kind, record))

    def announce(self, kind: int, record: "Dict[str, Any]") -> None:
        """Tell it together with what follows soon."""
        if self.is_open:
            self.link.announce(record_frame(self.number, kind, record))

    def finish(self) -> None:
        """Say that we send no more."""
        if not self.has_ended:
            self.has_ended = True
            self._tell(frames.END)

    def resize(self, rows: int, columns: int) -> None:
        self._tell(frames.RESIZE, frames.SIZE.pack(min(rows, 0xFFFF), min(columns, 0xFFFF)))

    def signal(self, number: int) -> None:
        self._tell(frames.SIGNAL, frames.NUMBER.pack(number))

    def refuse(self, why: str, **more: "Any") -> None:
        self.tell(frames.REFUSED, dict(more, error=why))
        self.close()

    def close(self) -> None:
        if self.is_open:
            self._tell(frames.CLOSE)
            self.drop()

    def drop(self) -> None:
        """Forget the channel, without a word."""
        if self.is_open:
            self.is_open = False
            self.link.channels.pop(self.number, None)
            self.end.closed()

    # -- what the other end says ------------------------------------------------------------------

    def take(self, kind: int, content: bytes) -> None:
        if kind == frames.DATA:
            self._allow(content)
            self.end.data(content)
        elif kind == frames.ERRORS:
            self._allow(content)
            self.end.errors(content)
        elif kind == frames.CREDIT:
            self.credit += frames.NUMBER.unpack(content)[0]
            if self.credit > frames.WINDOW:
                raise BadFrame("more credit than there is")
        elif kind == frames.END:
            if not self.got_end:
                self.got_end = True
                self.end.ended()
        elif kind == frames.RESIZE:
            self.end.resize(*frames.SIZE.unpack(content))
        elif kind == frames.SIGNAL:
            self.end.signal(frames.NUMBER.unpack(content)[0])
        elif kind == frames.CLOSE:
            self.close()
        else:
            self._take_record(kind, frames.read_record(content))

    def _allow(self, content: bytes) -> None:
        self.allowed -= len(content)
        if self.allowed < 0 or self.got_end:
            raise BadFrame("more data than was allowed")

    def _take_record(self, kind: int, record: "Dict[str, Any]") -> None:
        if kind == frames.OPENED:
            self.end.opened(record)
        elif kind == frames.REFUSED:
            self.end.refused(record)
        elif kind == frames.EXIT:
            self.end.exited(record)
        else:
            raise BadFrame("a frame of kind {} for a channel".format(kind))


class Link:
    """``source`` and ``target`` are read and written without blocking; they may be the same.
    ``is_asked`` makes the end of a channel that the other side opens. With a ``mark``, what comes
    before it is not for us."""

    def __init__(
        self,
        source: int,
        target: int,
        first: int,
        is_asked: "Callable[[Channel, Dict[str, Any]], None]",
        mark: bytes = b"",
    ) -> None:
        self.source = source
        self.target = target
        os.set_blocking(source, False)
        os.set_blocking(target, False)
        self.channels = {}  # type: Dict[int, Channel]
        self.hello = None  # type: Optional[Dict[str, Any]]  # the other end's
        self.is_alive = True
        self.why = ""  # it is not alive
        self.is_foreign = False  # the other end does not speak as it should
        self.banner = bytearray()  # what came before the mark
        self._mark = mark
        self._is_asked = is_asked
        self._next = first
        self._theirs = 3 - first  # the least number of a channel that they may open
        self._reader = frames.Reader()
        self._out = bytearray()
        self._held = 0.0  # until when what is to be written waits for more
        self._heard = self._sent = self._ticked = time.monotonic()

    def start(self, record: "Dict[str, Any]", mark: bytes = b"") -> None:
        """Say hello."""
        hello = record_frame(0, frames.HELLO, dict(record, version=frames.VERSION))
        self.announce(mark + hello)

    def open(self, record: "Dict[str, Any]", make_end: "Callable[[Channel], End]") -> Channel:
        """Open a channel; data may follow at once."""
        channel = Channel(self, self._next)
        self._next += 2
        self.channels[channel.number] = channel
        channel.tell(frames.OPEN, record)
        channel.end = make_end(channel)
        return channel

    def room(self) -> int:
        return ROOM - len(self._out)

    def is_flushed(self) -> bool:
        return not self._out

    def send(self, piece: bytes) -> None:
        if not self.is_alive:
            return
        self._held = 0.0
        self._out += piece
        if len(self._out) > FLOOD:
            self.fail("the other end does not read")

    def announce(self, piece: bytes) -> None:
        """Send this together with what follows soon."""
        held = time.monotonic() + COMPANY if not self._out else self._held
        self.send(piece)
        self._held = held

    def fail(self, why: str) -> None:
        """Give the connection up, with all that depends on it."""
        if self.is_alive:
            self.is_alive = False
            self.why = why
            for channel in list(self.channels.values()):
                channel.drop()

    # -- running it -------------------------------------------------------------------------------

    def interests(self, wanted: "Interests") -> None:
        wanted.add(self.source, READ, self.read)
        for channel in list(self.channels.values()):
            channel.end.interests(wanted)
        if self._out and not self._wait_left():  # last: who is asked may have something to say
            wanted.add(self.target, WRITE, self.write)

    def tick(self) -> float:
        """Send a sign of life if one is due; return the seconds until the next."""
        now = time.monotonic()
        if now - self._ticked > SILENCE:  # we were stopped, and the other end may wait to be read
            self._heard = now
        self._ticked = now
        if now - self._heard > (BEGINNING if self.hello is None else patience_of(self.hello)):
            self.fail("nothing was heard for {:.0f} s".format(now - self._heard))
        if now - self._sent >= PING_SECONDS:
            self._sent = now
            self.send(frame(0, frames.PING))
        left = PING_SECONDS - (now - self._sent)
        return min(left, self._wait_left() or left)

    def _wait_left(self) -> float:
        """Return for how many seconds an announcement still waits for company."""
        return max(self._held - time.monotonic(), 0.0) if self._out and self._held else 0.0

    def write(self) -> None:
        if not self._out or not self.is_alive or self._wait_left():
            return
        try:
            with memoryview(self._out) as whole, whole[:PIECE] as part:
                count = os.write(self.target, part)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(error.strerror or "it cannot be written to")
            return
        del self._out[:count]

    def read(self) -> None:
        try:
            piece = os.read(self.source, PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(error.strerror or "it cannot be read")
            return
        if not piece:
            self.fail("the other end has left")
            return
        self.take(piece)

    def take(self, piece: bytes) -> None:
        """Take what was read."""
        self._heard = time.monotonic()
        if self._mark:
            piece = self._skip_banner(piece)
        try:
            for number, kind, content in self._reader.feed(piece):
                if not self.is_alive:
                    return
                self._take_frame(number, kind, content)
        except BadFrame as error:
            self.is_foreign = True
            self.fail("the other end does not speak as it should: {}".format(error))

    def _skip_banner(self, piece: bytes) -> bytes:
        """Return what comes after the mark."""
        self.banner += piece
        at = self.banner.find(self._mark)
        if at < 0:
            if len(self.banner) > LONGEST_BANNER:
                self.fail("it prints without end before it answers")
            return b""
        rest = bytes(self.banner[at + len(self._mark) :])
        del self.banner[at:]
        self._mark = b""
        return rest

    def _take_frame(self, number: int, kind: int, content: bytes) -> None:
        if self.hello is None:
            self._take_hello(number, kind, content)
        elif number == 0:
            self._take_own(kind)
        elif kind == frames.OPEN:
            self._take_open(number, frames.read_record(content))
        elif number in self.channels:
            self.channels[number].take(kind, content)
        # Else it is of a channel that was closed here meanwhile.

    def _take_hello(self, number: int, kind: int, content: bytes) -> None:
        if number or kind != frames.HELLO:
            raise BadFrame("it says no hello")
        hello = frames.read_record(content)
        if hello.get("version") != frames.VERSION:
            raise BadFrame("it speaks version {!r}".format(hello.get("version")))
        self.hello = hello

    def _take_own(self, kind: int) -> None:
        if kind == frames.PING:
            self.send(frame(0, frames.PONG))
        elif kind != frames.PONG:
            raise BadFrame("a frame of kind {} for the connection".format(kind))

    def _take_open(self, number: int, record: "Dict[str, Any]") -> None:
        if number < self._theirs or (number - self._theirs) % 2:
            raise BadFrame("channel {} is not theirs to open".format(number))
        self._theirs = number + 2
        channel = Channel(self, number)
        self.channels[number] = channel
        if len(self.channels) > MOST_CHANNELS:
            channel.refuse("there are {} channels already".format(MOST_CHANNELS))
        else:
            self._is_asked(channel, record)


def patience_of(hello: "Dict[str, Any]") -> float:
    """Return the seconds of silence after which the end that said this hello is taken for gone."""
    asked = hello.get("patience")
    return min(max(asked, SILENCE), MOST_PATIENCE) if isinstance(asked, int) else SILENCE
