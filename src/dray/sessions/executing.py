"""Runs a program beside a job's command, with the files of this process as its own."""

from __future__ import annotations

import os
import select
import signal
import stat
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dray.errors import Refused
from dray.node.sessions.ends import Outlet
from dray.node.sessions.link import MOST_PATIENCE, Channel, End
from dray.node.sessions.ready import READ, Interests
from dray.sessions.signals import Signals
from dray.transport.ways import Connection, Way

PIECE = 1 << 16
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LONGEST = 1000  # characters of what the other side says


def execute(way: Way, argv: Sequence[str], *, host: bool = False) -> int:
    """Run the program, and return its exit code."""
    asked = {"what": "program", "argv": list(argv), "host": host}
    return code_of(run_with(way, asked, StandardFiles, MOST_PATIENCE).outcome)


def run_with(way: Way, asked: dict[str, Any], kind: type[Files], patience: int = 0) -> Files:
    """Run what is asked for, with the files of this process, until it has ended."""
    with Connection(way, patience=patience) as connection:
        ends: list[Files] = []

        def make(channel: Channel) -> End:
            ends.append(kind(channel))
            return ends[0]

        connection.link.open(asked, make)
        files = ends[0]
        with Signals(files.pass_on, *PASSED_ON) as signals:
            while not files.is_done:
                if not connection.link.is_alive and files.outcome is None:
                    raise connection.why_lost()
                wanted = Interests()
                signals.interests(wanted)
                files.interests(wanted)
                connection.turn(wanted)
        return files


def read_output(way: Way, argv: Sequence[str], most: int, *, host: bool = False) -> bytes:
    """Run the program without input, and return what it writes. Raises Refused where it fails."""
    asked = {"what": "program", "argv": list(argv), "host": host}
    with Connection(way) as connection:
        ends: list[Output] = []

        def make(channel: Channel) -> End:
            ends.append(Output(channel, most))
            return ends[0]

        connection.link.open(asked, make).finish()
        output = ends[0]
        while output.outcome is None:
            if not connection.link.is_alive:
                raise connection.why_lost()
            connection.turn(Interests())
    code = code_of(output.outcome)
    if code:
        said = output.said.decode("utf-8", "replace").strip()[-LONGEST:]
        raise Refused(f"{argv[0]} ended with exit code {code} there: {said}")
    return bytes(output.written)


class Output(End):
    """What a program writes, up to a limit."""

    def __init__(self, channel: Channel, most: int) -> None:
        self.channel = channel
        self.outcome: Mapping[str, Any] | None = None
        self.written = bytearray()
        self.said = bytearray()
        self._most = most

    def data(self, piece: bytes) -> None:
        self._keep(self.written, piece)

    def errors(self, piece: bytes) -> None:
        self._keep(self.said, piece)

    def _keep(self, where: bytearray, piece: bytes) -> None:
        where += piece[: max(self._most - len(where), 0)]
        self.channel.consumed(len(piece))

    def refused(self, record: dict[str, Any]) -> None:
        self.outcome = {**record, "error": record.get("error", "")}

    def exited(self, record: dict[str, Any]) -> None:
        self.outcome = record


class StandardFiles(End):
    """The files of this process, as those of the program. They are its parent's, too, and stay as
    they are: no more is written than they take without blocking."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.outcome: Mapping[str, Any] | None = None
        self._has_input = is_open(0)
        self.outlets = [Outlet(channel, fd if is_open(fd) else -1, piece_for(fd)) for fd in (1, 2)]
        self._has_reader = self.outlets[0].fd >= 0
        self._interrupts = 0

    @property
    def is_done(self) -> bool:
        return self.outcome is not None and all(one.is_empty for one in self.outlets)

    def pass_on(self, number: int) -> None:
        """Pass a signal on to the program. Who presses Ctrl-C again and again means us."""
        if number == signal.SIGINT:
            self._interrupts += 1
        if self._interrupts > 2:
            raise KeyboardInterrupt
        self.channel.signal(number)

    def refused(self, record: dict[str, Any]) -> None:
        self.outcome = {**record, "error": record.get("error", "")}

    def data(self, piece: bytes) -> None:
        self.outlets[0].take(piece)

    def errors(self, piece: bytes) -> None:
        self.outlets[1].take(piece)

    def exited(self, record: dict[str, Any]) -> None:
        self.outcome = record

    def closed(self) -> None:
        self._has_input = False

    def interests(self, wanted: Interests) -> None:
        if self._has_input and self.channel.room():
            wanted.add(0, READ, self._read)
        for outlet in self.outlets:
            outlet.interests(wanted)
        if self._has_reader and self.outlets[0].fd < 0:  # nobody reads what it writes any more
            raise BrokenPipeError

    def _read(self) -> None:
        try:
            piece = os.read(0, min(self.channel.room(), PIECE))
        except OSError:  # a terminal that is gone, or not ours
            piece = b""
        if piece:
            self.channel.send(piece)
        else:
            self._has_input = False
            self.channel.finish()


Files = TypeVar("Files", bound=StandardFiles)


class CommandMissing(Refused):
    """The program could not be started in the job."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def code_of(outcome: Mapping[str, Any] | None) -> int:
    """Return the exit code of a program, from what was said of its end. Raises why it did not run,
    or not to its end."""
    found = outcome or {}
    code = found.get("code")
    if "error" in found:
        message = str(found["error"])[:LONGEST]
        if code in (126, 127):  # as a shell says it
            raise CommandMissing(message, code)
        raise Refused(message)
    return code if type(code) is int and 0 <= code < 256 else 1


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def piece_for(fd: int) -> int:
    """Return how much a file takes at once, when it can be written to at all."""
    try:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return PIECE
    return PIECE if is_file else select.PIPE_BUF
