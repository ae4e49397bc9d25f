"""A session: a running channel, such as ssh, with its pipes and the threads that serve them.

Whatever the other side does, or leaves undone, ends with ``kill``: no thread outlives its session.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Protocol

from dray import tracing
from dray.errors import DrayError
from dray.node.formats.wire import GOODBYE

PIPE_BUFFER = 1 << 18
ENDING_SECONDS = 5.0
FLOOD = 64 << 20  # bytes on stderr that nobody needs
COMPLAINTS = 1 << 16  # bytes of what was said on stderr, from its end


class Payload(Protocol):
    """What is sent after a request. Its pieces may be asked for again, after a lost link."""

    size: int

    def pieces(self) -> Iterator[bytes]: ...


class Session:
    def __init__(self, argv: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE
        tracing.trace_program(argv)
        self.process = subprocess.Popen(
            argv, bufsize=PIPE_BUFFER, stdin=pipe, stdout=pipe, stderr=self._errors
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin: IO[bytes] = self.process.stdin
        self.stdout: IO[bytes] = self.process.stdout
        self.watch = Watch(self)
        self.watch.start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.process.kill()
        self.close()

    def send_agent(self, app: bytes) -> None:
        with suppress(BrokenPipeError):  # the answer says what was wrong
            self.stdin.write(app)
            self.stdin.flush()

    def end(self) -> int | None:
        """Return the exit code of a process that has finished its output; None if it had to be
        killed."""
        try:
            return self.process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None

    def hang_up(self) -> None:
        """End a session whose answer has come whole: nobody waits for the other side's end."""
        with suppress(OSError):
            self.stdin.write(GOODBYE)
            self.stdin.close()
        self.process.terminate()

    def is_flooded(self) -> bool:
        try:
            return os.fstat(self._errors.fileno()).st_size > FLOOD
        except (ValueError, OSError):  # closed, before or at this moment
            return False

    def complaints(self) -> bytes:
        size = os.fstat(self._errors.fileno()).st_size
        self._errors.seek(max(size - COMPLAINTS, 0))
        return self._errors.read(COMPLAINTS)

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout):
            with suppress(OSError):
                pipe.close()
        self.end()
        self.process.wait()
        self.watch.over.set()
        self._errors.close()


class Watch(threading.Thread):
    """Kills a session that writes errors without end, or that is silent when it should answer."""

    def __init__(self, session: Session) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.until = math.inf  # when it has to have answered
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(1.0):
            if time.monotonic() > self.until or self.session.is_flooded():
                self.session.process.kill()
                return

    @contextmanager
    def expecting(self, seconds: float) -> Iterator[None]:
        """Give the session this many seconds to answer. What follows may take any time."""
        self.until = time.monotonic() + seconds
        try:
            yield
        finally:
            self.until = math.inf


class Worker(threading.Thread):
    """Speaks with a session in the background. Whoever waits for it can be interrupted: the session
    is then killed, so that the worker ends and its pipes can be closed."""

    def __init__(self, session: Session) -> None:
        super().__init__(daemon=True)
        self.session = session

    def finish(self) -> None:
        try:
            self.join()
        except BaseException:
            self.break_off()
            raise

    def break_off(self) -> None:
        self.session.process.kill()
        self.join(ENDING_SECONDS)


class Opening(Worker):
    """Makes a session ready in the background."""

    def __init__(self, session: Session, make_ready: Callable[[Session], None]) -> None:
        super().__init__(session)
        self._make_ready = make_ready
        self.error: Exception | None = None
        self.since = time.monotonic()

    def run(self) -> None:
        try:
            self._make_ready(self.session)
        except (DrayError, OSError, ValueError) as error:
            self.error = error


class Feeding(Worker):
    """Sends a request while its answer may already arrive. ``ends``: whether the other side may end
    as soon as it has answered."""

    def __init__(
        self, session: Session, message: bytes, payload: Payload | None, *, ends: bool = True
    ) -> None:
        super().__init__(session)
        self.message, self.payload = message, payload
        self.ends = ends
        self.error: DrayError | None = None

    def run(self) -> None:
        pipe = self.session.stdin
        # A remote side that does not read it all says why in its answer.
        with suppress(BrokenPipeError, ValueError):
            try:
                pipe.write(self.message)
                pipe.writelines(self.payload.pieces() if self.payload else ())
                pipe.write(GOODBYE if self.ends else b"")
                pipe.flush()
            except DrayError as error:
                self.error = error
            if self.ends or self.error is not None:
                pipe.close()

    def __enter__(self) -> Feeding:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.break_off()
