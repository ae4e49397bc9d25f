"""Ways into a running job: each leads to the session server beside its command.

What is said there is the same on all of them (dray.node.sessions). A way can be opened again, after
a link was lost.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from dray import tracing
from dray.errors import ClusterError, DrayError
from dray.node.formats.bootstrap import MISSING
from dray.node.formats.wire import MARK as ANSWER
from dray.node.formats.wire import read_head
from dray.node.sessions import frames
from dray.node.sessions.link import Channel as SessionChannel
from dray.node.sessions.link import Link
from dray.node.sessions.ready import Interests
from dray.node.sessions.relay import peer_of
from dray.transport.channel import Channel, LinkLost, last_lines
from dray.transport.frames import AgentRefusal, NotAMessage, parse
from dray.transport.lending import Borrowed, borrow

ENDING_SECONDS = 2.0
COMPLAINTS = 1 << 16  # bytes of what a program said on stderr, from its end


class Carrier(Protocol):
    """An open way: what is read from the one file, and written to the other."""

    source: int
    target: int
    greeting: bytes  # what is said before all else, to be led on

    def explain(self, banner: bytes) -> DrayError:
        """Return why nobody answered; ``banner`` is what came instead."""

    def close(self) -> None: ...


class Way(Protocol):
    place: str  # as messages call it

    def open(self) -> Carrier: ...


class SocketWay:
    """To a job on this machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.place = "the job"

    def open(self) -> Carrier:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self.path)
        except OSError as error:
            connection.close()
            raise LinkLost(f"the job lets nobody in: {error.strerror}") from error
        if peer_of(connection) != os.getuid():
            connection.close()
            raise ClusterError(f"{self.path} belongs to somebody else")
        return SocketCarrier(connection)


class SocketCarrier:
    greeting = b""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.source = self.target = connection.fileno()

    def explain(self, banner: bytes) -> DrayError:
        del banner
        return LinkLost("the job let nobody in: it is just ending, or has lost its supervisor")

    def close(self) -> None:
        self.connection.close()


class ProgramWay:
    """Through a program of this machine, such as ssh or kubectl."""

    def __init__(
        self,
        argv: list[str],
        channel: Channel,
        refusal: Callable[[AgentRefusal], DrayError],
    ) -> None:
        self.argv = argv
        self.channel = channel
        self.refusal = refusal
        self.place = channel.place

    def open(self) -> Carrier:
        tracing.trace_program(self.argv)
        return ProgramCarrier(self)


class ProgramCarrier:
    greeting = b""

    def __init__(self, way: ProgramWay) -> None:
        self.way = way
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE
        # In a session of its own: Ctrl-C is for what runs in the job, and not for this program.
        self.process = subprocess.Popen(
            way.argv,
            bufsize=0,
            stdin=pipe,
            stdout=pipe,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.source, self.target = self.process.stdout.fileno(), self.process.stdin.fileno()

    def explain(self, banner: bytes) -> DrayError:
        code = self._end()
        return explain(self.way, banner, code, self._complaints())

    def _end(self) -> int | None:
        try:
            return self.process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None

    def _complaints(self) -> bytes:
        size = os.fstat(self._errors.fileno()).st_size
        self._errors.seek(max(size - COMPLAINTS, 0))
        return self._errors.read(COMPLAINTS)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        self.process.terminate()
        self._end()
        self.process.wait()
        self._errors.close()


class AgentWay:
    """Through an agent that the standing connection lends, which is there already; through a
    program where that has none to spare. ``request`` makes an agent the way."""

    def __init__(self, path: Path, request: bytes, program: ProgramWay) -> None:
        self.path = path
        self.request = request
        self.program = program
        self.place = program.place

    def open(self) -> Carrier:
        borrowed = borrow(self.path) if self.program.channel.is_remote else None
        if borrowed is None:
            return self.program.open()
        tracing.trace(f"go into the job on {self.place} by the standing connection")
        return AgentCarrier(self, borrowed)


class AgentCarrier:
    def __init__(self, way: AgentWay, borrowed: Borrowed) -> None:
        self.way = way
        self.borrowed = borrowed
        self.greeting = way.request
        self.source, self.target = borrowed.source, borrowed.target

    def explain(self, banner: bytes) -> DrayError:
        code = self.borrowed.code()
        if code is None and refusal_in(banner) is None:  # who would know has gone with the link
            return LinkLost(f"no connection to {self.way.place}: the standing one has ended")
        return explain(self.way.program, banner, code, self.borrowed.complaints())

    def close(self) -> None:
        self.borrowed.close()


def explain(way: ProgramWay, banner: bytes, code: int | None, complaints: bytes) -> DrayError:
    """Return why nobody answered, from how the program on the way ended."""
    refused = refusal_in(banner)
    if refused is not None:
        return way.refusal(refused)
    if MISSING in banner:
        return LinkLost(f"{way.place}: dray's file is missing there: try again")
    said = (banner + complaints).decode("utf-8", "replace").strip()
    return way.channel.explain(code, said) or ClusterError(
        f"nobody answered in the job on {way.place} (exit code {code}): {last_lines(said)}"
    )


def refusal_in(banner: bytes) -> AgentRefusal | None:
    """Return why there is no way in, where it was said in the manner of the agent."""
    _, mark, answer = bytes(banner).partition(ANSWER)
    head, newline, text = answer.partition(b"\n")
    lengths = read_head(head + newline) if mark else None
    if lengths is None or len(text) < lengths[0]:
        return None
    try:
        record = parse(bytearray(text[: lengths[0]]))
    except NotAMessage:
        return None
    return AgentRefusal(record) if "error" in record else None


Asked = Callable[[SessionChannel, dict[str, Any]], None]


def refuse_all(channel: SessionChannel, _: Mapping[str, Any]) -> None:
    channel.refuse("nothing of this machine is offered")


class Connection:
    """An open way, and our end of what is said on it. ``is_asked`` is told what the job's side
    wants to open here: nothing, by default. ``patience``: for how many seconds the job's side bears
    that we are stopped, where that is longer than usual."""

    def __init__(self, way: Way, is_asked: Asked = refuse_all, patience: int = 0) -> None:
        self.way = way
        self._carrier = way.open()
        source, target = self._carrier.source, self._carrier.target
        self.link = Link(source, target, 1, is_asked, frames.MARK)
        hello = {"patience": patience} if patience else {}
        self.link.start(hello, self._carrier.greeting)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.fail("it is closed")
        self._carrier.close()

    def turn(self, wanted: Interests, most: float = 60.0) -> None:
        """Wait for what comes first, of the link's own and of what is wanted besides."""
        seconds = min(self.link.tick(), most)
        if not self.link.is_alive:
            return
        self.link.interests(wanted)
        for then in wanted.wait(seconds):
            then()
        self.link.write()  # at once: what was typed should not wait for another turn

    def why_lost(self) -> DrayError:
        """Return why the link is not alive."""
        if self.link.is_foreign:
            return ClusterError(f"{self.way.place}: {self.link.why}")
        if self.link.hello is not None:
            return LinkLost(f"the connection to {self.way.place} was lost: {self.link.why}")
        return self._carrier.explain(bytes(self.link.banner))
