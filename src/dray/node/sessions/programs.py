"""Processes that are started beside the command, with a terminal or without."""

import fcntl
import os
import signal
import struct
import termios
import time

from . import frames
from .ends import Outlet
from .link import End
from .ready import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401

    from .link import Channel
    from .ready import Interests
    from .surroundings import Surroundings

KEPT = 1 << 18  # bytes of a terminal's output that are kept for who comes back
SHOWN = 1 << 14  # of them, those that are shown to who has not seen any
KEEP_SECONDS = 600.0  # for which a terminal is kept without anybody
SIGNALS = tuple(int(one) for one in signal.Signals)


def end_record(status: int) -> "Dict[str, Any]":
    """Describe how a process ended: its exit code, as a shell tells it."""
    if os.WIFSIGNALED(status):
        return {"code": 128 + os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status)}


def send_to_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except OSError:
        pass


class Inlet:
    """Reads what a process writes, as far as its channel has room."""

    def __init__(self, channel: "Channel", fd: int, kind: int) -> None:
        self.channel = channel
        self.fd = fd  # -1 after its end
        self.kind = kind
        self.is_dry = False  # whether there was nothing to read the last time
        os.set_blocking(fd, False)

    def interests(self, wanted: "Interests") -> None:
        if self.fd >= 0 and self.channel.room():
            wanted.add(self.fd, READ, self.read)

    def read(self) -> None:
        room = self.channel.room()
        if self.fd < 0 or not room:
            return
        try:
            piece = os.read(self.fd, room)
        except BlockingIOError:
            self.is_dry = True
            return
        except OSError:
            piece = b""
        self.is_dry = False
        if piece:
            self.channel.send(piece, self.kind)
        else:
            self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Program(End):
    """A process without a terminal. It ends with its channel."""

    def __init__(self, channel: "Channel", around: "Surroundings", argv: "List[str]") -> None:
        self.channel = channel
        self.status = None  # type: Optional[int]
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        from_stderr, stderr = os.pipe()
        try:
            self.pid = around.start(argv, stdin, stdout, stderr)
        except BaseException:
            for fd in (to_stdin, from_stdout, from_stderr):
                os.close(fd)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        os.set_blocking(to_stdin, False)
        self._to_stdin = to_stdin
        self._outlet = Outlet(channel, to_stdin)
        self._inlets = [
            Inlet(channel, from_stdout, frames.DATA),
            Inlet(channel, from_stderr, frames.ERRORS),
        ]
        channel.announce(frames.OPENED, {})

    def data(self, piece: bytes) -> None:
        self._outlet.take(piece)

    def ended(self) -> None:
        self._outlet.is_last = True

    def signal(self, number: int) -> None:
        if number in SIGNALS:
            send_to_group(self.pid, number)

    def interests(self, wanted: "Interests") -> None:
        if self._to_stdin >= 0 and self._outlet.is_done:
            self._close_stdin()
        self._outlet.interests(wanted)
        if self.status is not None:
            self._drain()
        for inlet in self._inlets:
            inlet.interests(wanted)

    def _drain(self) -> None:
        """Send what the process wrote before it ended. What it left running may keep its pipes
        open, and is not waited for."""
        for inlet in self._inlets:
            inlet.is_dry = False
            while inlet.fd >= 0 and not inlet.is_dry and self.channel.room():
                inlet.read()
        if all(inlet.fd < 0 or inlet.is_dry for inlet in self._inlets):
            assert self.status is not None
            self.channel.tell(frames.EXIT, end_record(self.status))
            self.channel.close()

    def _close_stdin(self) -> None:
        os.close(self._to_stdin)
        self._to_stdin = self._outlet.fd = -1

    def closed(self) -> None:
        for inlet in self._inlets:
            inlet.close()
        if self._to_stdin >= 0:
            self._close_stdin()


class Terminal:
    """A process with a terminal. It stays when its connection is lost, and shows the next one what
    was missed."""

    def __init__(
        self,
        around: "Surroundings",
        argv: "Optional[List[str]]",
        size: "Tuple[int, int]",
        term: str,
        keep: "Optional[float]" = KEEP_SECONDS,
    ) -> None:
        self.name = os.urandom(8).hex()
        self.keep = keep  # seconds without anybody; None: as long as the session
        self.typed_at = 0.0
        self.around = around
        self.is_kept = argv is None  # a shell; a single program ends with its connection
        self.status = None  # type: Optional[int]
        self.channel = None  # type: Optional[Channel]
        self.left_at = time.monotonic()
        self.is_over = False  # its end was told
        self._outlet = None  # type: Optional[Outlet]
        self._recent = bytearray()
        self._written = 0  # bytes since its beginning
        self._sent = 0
        self.master, slave = os.openpty()
        try:
            self.resize(*size)
            self.pid = around.start(argv, slave, slave, slave, term)
        except BaseException:
            os.close(self.master)
            raise
        finally:
            os.close(slave)
        os.set_blocking(self.master, False)

    def attach(self, channel: "Channel", seen: "Optional[int]", size: "Tuple[int, int]") -> None:
        """Show it on this channel from now on. ``seen`` is how much of its output was seen
        before."""
        if self.channel is not None:
            self.channel.tell(frames.EXIT, {"error": "it was opened elsewhere"})
            self.channel.close()
        first = self._written - len(self._recent)
        self._sent = max(self._written - SHOWN, first) if seen is None else max(seen, first)
        self._sent = min(self._sent, self._written)
        self.channel = channel
        self._outlet = Outlet(channel, self.master, 1 << 12)
        channel.end = Attached(self)
        is_new = not self._written and seen is None
        record = {"terminal": self.name, "resumed": not is_new, "at": self._sent}
        record["is_session"] = self.keep is None
        channel.tell(frames.OPENED, record)
        if not is_new and self.master >= 0:  # another size makes programs draw their screen anew
            self.resize(size[0], max(size[1] - 1, 1))
        self.resize(*size)

    def detach(self) -> None:
        self.channel = None
        if self._outlet is not None:
            self._outlet.give_up()
            self._outlet = None
        self.left_at = time.monotonic()
        if not self.is_kept:
            self.is_over = True

    def resize(self, rows: int, columns: int) -> None:
        if self.master >= 0:
            packed = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, packed)

    def type(self, piece: bytes) -> None:
        self.typed_at = time.monotonic()
        if self._outlet is not None:
            self._outlet.take(piece)

    def announce(self, text: str) -> None:
        """Show a line to who looks at it, between those of the programs in it."""
        self._take("\r\ndray: {}\r\n".format(text).encode("utf-8"))

    def interests(self, wanted: "Interests") -> None:
        self._catch_up()
        if self._outlet is not None:
            self._outlet.interests(wanted)
        behind = self._written - self._sent if self.channel is not None else 0
        if self.master >= 0 and behind < KEPT // 2:  # else programs wait for who looks at them
            wanted.add(self.master, READ, self._read)

    def _read(self) -> None:
        """Keep what comes; it is sent when it is next asked what is waited for."""
        if self.master < 0:  # since this turn
            return
        try:
            piece = os.read(self.master, 1 << 16)
        except BlockingIOError:
            return
        except OSError:  # nobody has it open any more
            piece = b""
        if not piece:
            self._end_output()
            return
        self._take(piece)

    def _take(self, piece: bytes) -> None:
        self._recent += piece
        self._written += len(piece)
        del self._recent[: max(len(self._recent) - KEPT, 0)]

    def _end_output(self) -> None:
        if self._outlet is not None:
            self._outlet.give_up()
        os.close(self.master)
        self.master = -1

    def _catch_up(self) -> None:
        channel = self.channel
        if channel is None:
            return
        while self._sent < self._written and channel.room():
            at = len(self._recent) - (self._written - self._sent)
            piece = bytes(self._recent[at : at + channel.room()])
            channel.send(piece)
            self._sent += len(piece)
        if self.status is not None and self._sent == self._written and self._is_drained():
            channel.tell(frames.EXIT, end_record(self.status))
            self.is_over = True
            channel.close()

    def _is_drained(self) -> bool:
        """Return whether all that the process itself wrote has been read: others may still have
        the terminal open."""
        if self.master < 0:
            return True
        before = self._written
        self._read()
        return before == self._written

    def hang_up(self) -> None:
        """End it, as when a terminal's window is closed."""
        if self.master >= 0:
            self._end_output()
        if self.status is None:
            send_to_group(self.pid, signal.SIGHUP)

    def is_expired(self) -> bool:
        away = time.monotonic() - self.left_at if self.channel is None else 0.0
        keep = self.keep if self.status is None else KEEP_SECONDS  # for its last words
        return self.is_over or (keep is not None and away > keep)


class Attached(End):
    """A channel on which a terminal is shown."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def data(self, piece: bytes) -> None:
        self.terminal.type(piece)

    def ended(self) -> None:
        assert self.terminal.channel is not None
        self.terminal.channel.close()

    def resize(self, rows: int, columns: int) -> None:
        self.terminal.resize(rows, columns)

    def signal(self, number: int) -> None:
        if number in SIGNALS:
            send_to_group(self.terminal.pid, number)

    def closed(self) -> None:
        self.terminal.detach()


def last_of(terminals: "List[Terminal]", outside: bool) -> "Optional[Terminal]":
    """Return the shell that was left last, of those that nobody looks at."""
    left = [
        one
        for one in terminals
        if one.is_kept and one.channel is None and one.status is None
        if one.around.outside == outside
    ]
    return max(left, key=lambda one: one.left_at) if left else None
