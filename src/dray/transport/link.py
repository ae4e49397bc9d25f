"""Speaks to the agent of a cluster over any channel: one request, one answer, one round trip."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dray import background, tracing
from dray.errors import (
    ClusterError,
    DrayError,
    ImageMissing,
    LoginNeeded,
    NotFound,
    Refused,
    StorageError,
    from_os_error,
)
from dray.node.formats.bootstrap import MISSING, PRESENT
from dray.node.formats.wire import MARK, VERSION
from dray.programs import shipping
from dray.transport import frames, standing
from dray.transport.channel import Channel, ChannelGone, LinkLost, last_lines
from dray.transport.session import Feeding, Opening, Payload, Session
from dray.transport.sockets import socket_folder

if TYPE_CHECKING:
    from typing import Unpack

    from dray.node.formats.records import Asked
    from dray.transport.ways import AgentWay

BOOTSTRAP = "dray_node/formats/bootstrap.py"
TRIES = 3
BULKY = 4 << 20
LONGEST_PAYLOAD = 256 << 20  # that is taken into memory; files are written piece by piece
HANGING = 6.0  # seconds
SUBMITTING = ("submit", "resume")
ANSWER_SECONDS = 180.0  # longer than a scheduler is given to answer
SLOWEST = 10_000.0  # bytes per second: a link that is slower than that is of no use


class CutShort(LinkLost):
    """The connection broke inside an answer."""


class BaseMissing(ClusterError):
    """The cluster no longer has the snapshot that a manifest was sent as a change of."""


class PartDamaged(ClusterError):
    """A part of an image came with another digest than it was sent with."""

    transient = True


FAMILIES: dict[str, type[DrayError]] = {
    "BaseMissing": BaseMissing,
    "Damaged": PartDamaged,
    "ImageMissing": ImageMissing,
    "NoAnswer": LinkLost,
    "ClusterError": ClusterError,
    "NotFound": NotFound,
    "Refused": Refused,
    "StorageError": StorageError,
}


class Answer:
    """The agent's answer: a record, and a stream if ``length`` bytes follow."""

    def __init__(self, record: Mapping[str, Any], stream: IO[bytes], length: int) -> None:
        self.record = record
        self.stream = stream
        self.length = length

    def payload(self) -> bytes:
        """Read what follows, or as much of it as has come if the link broke."""
        return bytes(frames.read_most(self.stream, min(self.length, LONGEST_PAYLOAD)))


class AgentLink:
    """Calls the agent of the root at the other end of a channel."""

    def __init__(
        self,
        channel: Channel,
        root: str,
        python: str,
        scheduler: str,
        *,
        on_answer: Callable[[], None] = lambda: None,
        revive: Callable[[], Channel | None] | None = None,
        stays: Callable[[], bool] = lambda: True,
    ) -> None:
        self.channel = channel
        # Starts who answers at the other end, where nobody is there, or finds another way to the
        # root. For other commands it is the same link: the standing one leads where this one does.
        self.revive = revive
        self.detour: Channel | None = None
        self.stays = stays  # whether a connection may be kept open between commands
        self.on_answer = on_answer  # called whenever the agent has answered
        self.root = root.replace("~/", "$HOME/", 1) if root.startswith("~/") else root
        # A variable that is not set there must not make the root something else altogether.
        self._shell_root = re.sub(r"\$\{?(\w+)\}?", r"${\1:?is not set there}", self.root)
        self.python = python
        self.scheduler = scheduler
        self.may_ask = True  # whether a login may ask the user for a password
        self._opening: Opening | None = None
        self._in_use: Session | None = None
        self._is_over = False  # somebody hung up
        self._verb = self._sent = ""  # the last request's; and if anything of it may have got there

    @property
    def may_have_submitted(self) -> bool:
        """Return whether the last request was to submit a job, and any of it may have arrived."""
        return self._sent in SUBMITTING

    @property
    def way(self) -> Channel:
        """The channel that leads to the root just now."""
        return self.detour or self.channel

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Open a session while the caller does something else, unless that would ask for a
        password. The next call uses it."""
        if not self.channel.is_remote or self._stands():
            yield
            return
        session = Session(self._argv(install=True, may_ask=False))
        self._opening = Opening(session, self._install)
        self._opening.start()
        try:
            yield
        finally:
            if self._opening is not None:
                self._opening.break_off()
                self._opening = None
                session.close()

    def hang_up(self) -> None:
        """End what another thread is asking at this moment."""
        self._is_over = True
        session = self._in_use
        if session is not None:
            session.process.kill()

    def _stands(self) -> bool:
        """Tell whether the standing connection is open; a first connection may ask for a password,
        which nobody can type in the background."""
        background.keep_warm = True
        if standing.is_open(self._socket()):
            return True
        background.require_foreground()
        return False

    def _take_early(self) -> Session | None:
        """Return the session that was opened early; None if there is none, or it has to be tried
        again where somebody can type a password."""
        opening, self._opening = self._opening, None
        if opening is None:
            return None
        with closed_on_error(opening.session):
            opening.finish()
            if opening.error is None:
                return opening.session
            if isinstance(opening.error, LinkLost):
                raise opening.error
        opening.session.close()
        return None

    @contextmanager
    def call(
        self,
        verb: str,
        request: Asked,
        payload: Payload | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Iterator[Answer]:
        """Send one request and read its answer in one round trip. The agent is installed first if
        it is missing. ``meanwhile`` is called while the answer is on its way on the standing
        connection, and raises nothing."""
        if self.channel.is_remote and self._opening is None:
            self._stands()
        message = _message(verb, request, payload)
        # What may take long would keep others waiting: it gets a session of its own.
        bulky = verb == "pull" or (payload is not None and payload.size > BULKY)
        # Nothing big is sent in vain, and what submits a job only once somebody is there.
        submits = verb in SUBMITTING and self.channel.is_remote
        install = submits or (bulky and payload is not None)
        self._verb, self._sent = verb, ""
        self._is_over = False
        for attempt in range(TRIES):
            started = self._opening.since if self._opening else time.monotonic()
            try:
                over = nullcontext() if bulky else self._over_standing(message, payload, meanwhile)
                with over as answer:
                    if answer is not None:
                        self._trace(verb, "on the standing connection", message, payload, started)
                        self.on_answer()
                        yield answer
                        return
                with self._over_session(message, payload, install) as answer:
                    if answer is not None:
                        self._trace(verb, "on its own session", message, payload, started)
                        self._keep_open()
                        self.on_answer()
                        yield answer
                        return
                install = True
            except ChannelGone:
                if self.revive is None or attempt == TRIES - 1:
                    raise
                self.detour = self.revive()
            except LinkLost:
                if self.revive is not None and self.detour is not None and attempt < TRIES - 1:
                    self.detour = self.revive()
                    continue
                # A link that was cut is tried again at once; one that hangs would hang again.
                if attempt == TRIES - 1 or time.monotonic() - started > HANGING:
                    raise
                time.sleep(0.5)
        raise ClusterError(f"{self.way.place}: the agent could not be installed in {self.root}")

    def _trace(
        self, verb: str, way: str, message: bytes, payload: Payload | None, started: float
    ) -> None:
        size = len(message) + (payload.size if payload else 0)
        seconds = time.monotonic() - started
        tracing.trace(
            f"ask {self.way.place} to {verb} {way}: {size:,} bytes, answer in {seconds:.3f} s"
        )

    def ask(self, verb: str, **request: Unpack[Asked]) -> dict[str, Any]:
        with self.call(verb, request) as answer:
            return dict(answer.record)

    @contextmanager
    def _over_standing(
        self, message: bytes, payload: Payload | None, meanwhile: Callable[[], None]
    ) -> Iterator[Answer | None]:
        """Send the request over the standing connection that an earlier command has left open;
        yield None if there is none."""
        link = standing.connect(self._socket()) if self.channel.is_remote else None
        if link is None:
            yield None
            return
        stream: Any = link.makefile("rwb")
        with link, stream:
            whole = message + b"".join(payload.pieces() if payload else ())
            self._sent = self._verb
            try:
                stream.write(whole)
                stream.flush()
                meanwhile()
                answer = self._parse(stream) if self._finds(stream, MARK)[0] else None
            except (OSError, CutShort):
                answer = None  # it broke: connect again
            yield answer

    def _keep_open(self) -> None:
        if self.channel.is_remote and self.stays():
            standing.start(self._socket(), *self._spec(self.way))

    def _spec(self, channel: Channel) -> tuple[str, ...]:
        return (self.root, self.python, self.scheduler, *channel.spec())

    def _socket(self) -> Path:
        return standing.socket_of(socket_folder(), *self._spec(self.channel), shipping.name())

    def companion_socket(self) -> Path:
        """Return where the program listens that the standing connection keeps beside it."""
        return standing.companion_of(self._socket())

    def open_session(self) -> subprocess.Popen[bytes]:
        """Start an agent that answers many requests, on a connection that asks for no password."""
        pipe = subprocess.PIPE
        argv = self._argv(may_ask=False)
        return subprocess.Popen(argv, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe)

    @contextmanager
    def _over_session(
        self, message: bytes, payload: Payload | None, install: bool
    ) -> Iterator[Answer | None]:
        """Send the request over a session of its own; yield None if the agent is missing there."""
        session = self._take_early() or self._open(install)
        self._sent = self._verb
        fragile = self.way.is_fragile
        with session, Feeding(session, message, payload, ends=not fragile) as feeding:
            try:
                with session.watch.expecting(patience_for(payload)):
                    answer = self._read_answer(session)
            except DrayError:
                feeding.break_off()
                if feeding.error is not None:  # we ended the request ourselves
                    raise feeding.error from None
                raise
            yield answer
            if fragile:
                session.hang_up()

    def _open(self, install: bool) -> Session:
        session = Session(self._argv(install=install, may_ask=self.may_ask))
        self._in_use = session
        if self._is_over:
            session.process.kill()
        if install:
            with closed_on_error(session):
                self._install(session)
        return session

    def _install(self, session: Session) -> None:
        said = self._said(session, PRESENT, MISSING, MARK)
        if said == MARK:
            self._parse(session.stdout)  # why it is refused
        if said == MISSING:
            session.send_agent(shipping.app().content)

    def way_into(self, job_id: str, rank: int) -> AgentWay:
        """Return the way into a running job, which asks for no password: where the connection does
        not stand yet, it is made first, and the agent's file is installed."""
        from dray.transport.ways import AgentWay, ProgramWay  # only here

        if self.channel.is_remote and not self._stands():
            self.ask("ping")
        words = f'enter "$r"/jobs/{shlex.quote(job_id)} {self.scheduler} {rank}'
        program = ProgramWay(self._argv(words, may_ask=False), self.channel, self.refusal)
        request = _message("enter", {"id": job_id, "rank": rank}, None)
        return AgentWay(self._socket(), request, program)

    def _argv(self, words: str = "", *, install: bool = False, may_ask: bool = True) -> list[str]:
        """Return the channel's program with a command that any login shell accepts: a plain sh
        finds the root, and Python does the rest. Where Python is known, it needs no shell.
        ``words`` say what it does, if it is not the agent."""
        shipping.remember()
        size = len(shipping.app().content) if install else 0
        if self.way.python and not words:
            start = (*self.way.python, "-I", "-S", "-c", bootstrap_line(), self.root)
            agent = (shipping.name(), str(size), "agent", self.root, self.scheduler)
            return self.way.argv(*start, *agent, may_ask=may_ask)
        python = f"{shlex.quote(self.python)} -I -S -c {shlex.quote(bootstrap_line())}"
        words = words or f'agent "$r" {self.scheduler}'
        arguments = f'"$r" {shipping.name()} {size} {words}'
        script = f'r="{self._shell_root}"; exec {python} {arguments}'
        return self.way.argv(f"exec /bin/sh -c {shlex.quote(script)}", may_ask=may_ask)

    def _read_answer(self, session: Session) -> Answer | None:
        return (
            None if self._said(session, MARK, MISSING) == MISSING else self._parse(session.stdout)
        )

    def _said(self, session: Session, *signs: bytes) -> bytes:
        """Return which of the signs comes, ignoring what a login shell prints before it."""
        sign, seen = self._finds(session.stdout, *signs)
        if sign is None:
            raise self._explain_silence(session, seen)
        return sign

    def _finds(self, stream: IO[bytes], *signs: bytes) -> tuple[bytes | None, bytes]:
        with self._distrust():
            return frames.skip_to(stream, *signs)

    def _parse(self, stream: IO[bytes]) -> Answer:
        with self._distrust():
            record, length = frames.read_record(stream)
        if "error" in record:
            raise self.refusal(frames.AgentRefusal(record))
        return Answer(record, stream, length)

    @contextmanager
    def _distrust(self) -> Iterator[None]:
        try:
            yield
        except frames.Truncated:
            raise CutShort(
                f"the connection to the agent on {self.way.place} broke inside an answer"
            ) from None
        except frames.NotAMessage as error:
            raise ClusterError(
                f"{self.way.place} does not answer as dray's agent does: {error}",
                hint=f"Is '{self.python}' a Python there (setting python)?",
            ) from None

    def refusal(self, refused: frames.AgentRefusal) -> DrayError:
        message = f"{self.way.place}: {refused.text}"
        if refused.family == "OSError" and refused.errno is not None:
            return from_os_error(OSError(refused.errno, message))
        return FAMILIES.get(refused.family, ClusterError)(message)

    def _explain_silence(self, session: Session, seen: bytes) -> DrayError:
        """Return why there is no answer, from what the channel or the remote shell printed
        instead."""
        code = session.end()
        said = (seen + session.complaints()).decode("utf-8", "replace").strip()
        why = self.way.explain(code, said)
        if why is not None and not self.may_ask and not isinstance(why, LinkLost):
            return LoginNeeded(why.message, hint=why.hint)
        return why or ClusterError(
            f"the agent on {self.way.place} gave no answer (exit code {code}): {last_lines(said)}",
            hint=f"Does '{self.python}' exist there (setting python), and can {self.root} be used?",
        )


def patience_for(payload: Payload | None) -> float:
    """Return how many seconds to wait for an answer: a big payload has to arrive first, over a link
    that may be slow."""
    return ANSWER_SECONDS + (payload.size / SLOWEST if payload else 0.0)


def _message(verb: str, request: Mapping[str, Any], payload: Payload | None) -> bytes:
    text = json.dumps({**request, "verb": verb, "version": VERSION}).encode("ascii")
    return b"%d %d\n" % (len(text), payload.size if payload else 0) + text


@cache
def bootstrap_line() -> str:
    """Return the bootstrap program on one line: not every login shell takes more than that between
    quotes."""
    return f"exec({json.dumps(shipping.sources()[BOOTSTRAP].decode('ascii'))})"


@contextmanager
def closed_on_error(session: Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.process.kill()
        session.close()
        raise
