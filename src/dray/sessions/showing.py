"""Shows a terminal that is on a job's node, in the terminal of this process.

The terminal there stays when the link is lost, and is opened again as soon as there is a link.
"""

from __future__ import annotations

import os
import signal
import termios
import time
import tty
from collections.abc import Callable, Sequence
from typing import Any

from dray.errors import DrayError, UsageError
from dray.node.sessions.ends import Outlet
from dray.node.sessions.link import Channel, End
from dray.node.sessions.ready import READ, Interests
from dray.sessions.executing import code_of
from dray.sessions.signals import Signals
from dray.transport.ways import Connection, Way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dray.sessions.syncing import Syncing

WATCHED = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
GIVE_UP_SECONDS = 600.0  # a shell is kept for so long without anybody
ESCAPE = b"~"
HELP = "~. leaves, and the shell stays for a while; ~~ types a ~"


class Left(Exception):
    """The user has left by the escape."""


def show(
    way: Callable[[], Way],
    argv: Sequence[str] | None,
    say: Callable[[str], None],
    *,
    host: bool = False,
    again: bool = True,
    syncing: Syncing | None = None,
) -> int:
    """Run a program, or a shell, in a terminal; return its exit code. ``again``: a shell that was
    left is returned to. ``syncing`` sends edits meanwhile."""
    asked: dict[str, Any] = {
        "what": "terminal",
        "argv": None if argv is None else list(argv),
        "host": host,
        "again": again,
        "term": os.environ.get("TERM") or "xterm",
    }
    with RawTerminal() as terminal:
        screen = Screen(asked, lambda text: terminal.tell(say, text), syncing)
        return screen.run(way)


class Screen:
    """This process's terminal, over as many connections as it takes."""

    def __init__(
        self,
        asked: dict[str, Any],
        tell: Callable[[str], None],
        syncing: Syncing | None = None,
    ) -> None:
        self.asked = asked
        self.tell = tell
        self.syncing = syncing
        if syncing is not None:
            syncing.tell_by = tell
        self.keys = Keys()
        self.signals = Signals(self._heed, *WATCHED)
        self.end: OnScreen | None = None
        self.name: str | None = None
        self.kept = "within ten minutes"
        self.seen = 0

    def run(self, way: Callable[[], Way]) -> int:
        lost_at = 0.0
        tries = 0
        with self.signals:
            while True:
                try:
                    return self._show(way())
                except Left:
                    self.tell(f"left; dray shell comes back to it {self.kept}")
                    return 0
                except DrayError as error:
                    if self.name is None or not error.transient:
                        raise
                    now = time.monotonic()
                    if self.end is not None and self.end.is_opened:  # it was there meanwhile
                        lost_at, tries = now, 0
                        self.tell(f"{error.message}; connecting again, ~. leaves")
                    if now - lost_at > GIVE_UP_SECONDS:
                        raise
                self.end = None
                self._pause(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
                tries += 1

    def _show(self, way: Way) -> int:
        rows, columns = size()
        asked = {**self.asked, "rows": rows, "columns": columns}
        if self.name is not None:
            asked.update(name=self.name, seen=self.seen)
        with Connection(way) as connection:
            connection.link.open(asked, self._make_end)
            if self.syncing is not None:
                self.syncing.join(connection.link)
            end = self.end
            assert end is not None
            while not end.is_done:
                if not connection.link.is_alive and end.outcome is None:
                    raise connection.why_lost()
                wanted = Interests()
                self.signals.interests(wanted)
                end.interests(wanted)
                if end.channel.room():
                    wanted.add(0, READ, self._type)
                connection.turn(wanted)
            return code_of(end.outcome)

    def _make_end(self, channel: Channel) -> End:
        self.end = OnScreen(channel, self)
        return self.end

    def _type(self) -> None:
        typed = self.keys.read()
        if self.keys.wants_help:
            self.keys.wants_help = False
            self.tell(HELP)
        if self.end is not None and typed:
            self.end.channel.send(typed)

    def _heed(self, number: int) -> None:
        if number != signal.SIGWINCH:
            raise Left
        if self.end is not None:
            self.end.channel.resize(*size())

    def _pause(self, seconds: float) -> None:
        """Wait, and heed only who wants to leave: what is typed now is for nobody."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            wanted = Interests()
            self.signals.interests(wanted)
            wanted.add(0, READ, self.keys.read_in_vain)
            for then in wanted.wait(left):
                then()


class OnScreen(End):
    """The terminal's channel, over one connection."""

    def __init__(self, channel: Channel, screen: Screen) -> None:
        self.channel = channel
        self.screen = screen
        self.is_opened = False
        self.outcome: dict[str, Any] | None = None
        self._outlet = Outlet(channel, 1, 4096)

    @property
    def is_done(self) -> bool:
        return self.outcome is not None and (self._outlet.is_empty or self._outlet.fd < 0)

    def opened(self, record: dict[str, Any]) -> None:
        self.is_opened = True
        name, at = record.get("terminal"), record.get("at")
        if isinstance(name, str) and isinstance(at, int):
            if self.screen.name is None and record.get("resumed") is True:
                self.screen.tell("back in the shell that was left")
            self.screen.name, self.screen.seen = name, at
            if record.get("is_session") is True:
                self.screen.kept = "until the session has been idle for long, or its time is over"

    def refused(self, record: dict[str, Any]) -> None:
        self.outcome = {**record, "error": record.get("error", "")}

    def data(self, piece: bytes) -> None:
        self.screen.seen += len(piece)
        self._outlet.take(piece)

    def exited(self, record: dict[str, Any]) -> None:
        self.outcome = record

    def interests(self, wanted: Interests) -> None:
        self._outlet.interests(wanted)


class Keys:
    """What is typed, and the escape in it: at the beginning of a line, ~. leaves."""

    def __init__(self) -> None:
        self._at_beginning = True
        self._escaped = False
        self.wants_help = False

    def read(self) -> bytes:
        typed = os.read(0, 4096)
        if not typed:
            raise Left
        return self.take(typed)

    def read_in_vain(self) -> None:
        self.read()

    def take(self, typed: bytes) -> bytes:
        """Return what is to be sent. Raises Left."""
        sent = b""
        for number in typed:
            sent += self._take_one(bytes([number]))
        return sent

    def _take_one(self, key: bytes) -> bytes:
        if self._escaped:
            self._escaped = False
            if key == b".":
                raise Left
            if key == b"?":
                self.wants_help = True
                return b""
            self._at_beginning = key in b"\r\n"
            return ESCAPE if key == ESCAPE else ESCAPE + key
        if self._at_beginning and key == ESCAPE:
            self._escaped = True
            return b""
        self._at_beginning = key in b"\r\n"
        return key


def size() -> tuple[int, int]:
    for fd in (1, 0, 2):
        try:
            found = os.get_terminal_size(fd)
        except OSError:
            continue
        return found.lines, found.columns
    return 24, 80


def require_terminal() -> None:
    if not (os.isatty(0) and os.isatty(1)):
        hint = "Run a program without one: dray exec JOB -- PROGRAM"
        raise UsageError("this needs a terminal", hint=hint)


class RawTerminal:
    """Passes every key on as it is; puts the terminal back as it was, whatever happens."""

    def __init__(self) -> None:
        require_terminal()
        self._before = termios.tcgetattr(0)

    def __enter__(self) -> RawTerminal:
        tty.setraw(0, termios.TCSADRAIN)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def tell(self, say: Callable[[str], None], text: str) -> None:
        """Say something on a line of its own, as on any other terminal."""
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)
        say("")
        say(f"dray: {text}")
        tty.setraw(0, termios.TCSADRAIN)
