"""The system's OpenSSH, multiplexed through a socket of dray's own, and the agent behind it.

Whatever ``ssh HOST`` can do works here too: the user's config, ProxyJump, agents, prompts.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from dray import background
from dray.errors import (
    ClusterError,
    DrayError,
    ImageMissing,
    NotFound,
    Refused,
    StorageError,
    from_os_error,
)
from dray.node.wire import MARK
from dray.transport import sockets, standing, zipapp

CONNECT_SECONDS = 15
ALIVE_SECONDS = 3  # a link that is silent for three times this long is taken for dead
PERSIST_SECONDS = 600
PIPE_BUFFER = 1 << 18
PRESENT, MISSING = b"\n\x01dray-present\x01\n", b"\n\x01dray-missing\x01\n"
# In a shell there, before the agent $f of the root $r is started; on one line, for any login shell.
SAY_PRESENT, SAY_MISSING = (rf"printf '\n\001dray-{word}\001\n'" for word in ("present", "missing"))
EXPECT = f'[ -f "$f" ] || {{ {SAY_MISSING}; exit; }}'
RECEIVE = 'mkdir -p "$r/node" && read n && head -c "$n" > "$f.$$" && mv "$f.$$" "$f"'
INSTALL = (
    f'if [ -f "$f" ]; then {SAY_PRESENT}; else {SAY_MISSING}; (umask 077; {RECEIVE}) || exit 1; fi'
)
LOST = 255  # ssh's own exit code: the remote command's is never this
TRIES = 3
BULKY = 4 << 20
HANGING = 6.0  # seconds

# What ssh says, and what to do about it.
ADVICE = (
    ("Permission denied", "Check that 'ssh {host}' logs you in: user, key, agent, password."),
    ("Host key verification failed", "Log in once with 'ssh {host}' and check the host's key."),
    ("REMOTE HOST IDENTIFICATION", "The host's key has changed: ask its admins before you go on."),
    ("Could not resolve", "Is the name right, and are you in the right network (VPN)?"),
    ("Connection refused", "Is this the login node, and is its port right in ~/.ssh/config?"),
    ("timed out", "Are you in the right network (VPN)? Is the login node up?"),
)


class LinkLost(ClusterError):
    """The connection could not be made or broke."""

    transient = True


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


class Payload(Protocol):
    """What is sent behind a request. Its pieces may be asked for again, after a lost link."""

    size: int

    def pieces(self) -> Iterator[bytes]: ...


class Answer:
    """The agent's answer: a record, and a stream where more follows."""

    def __init__(self, record: Mapping[str, Any], stream: IO[bytes]) -> None:
        self.record = record
        self.stream = stream


class AgentLink:
    """Calls the agent on a cluster's login node (or on this machine, without a host)."""

    def __init__(self, host: str, root: str, python: str, scheduler: str) -> None:
        self.host = host
        self.root = root.replace("~/", "$HOME/", 1) if root.startswith("~/") else root
        # A variable that is not set there must not make the root something else altogether.
        self._shell_root = re.sub(r"\$\{?(\w+)\}?", r"${\1:?is not set there}", self.root)
        self.python = python
        self.scheduler = scheduler
        self.app = zipapp.name()
        self._opening: Opening | None = None

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Open a session while the caller is busy with something else, if nobody has to be asked
        for a password. The next call uses it."""
        if not self.host or self._stands():
            yield
            return
        session = Session(self._words("-o", "BatchMode=yes", install=True))
        self._opening = Opening(session, self._install)
        self._opening.start()
        try:
            yield
        finally:
            if self._opening is not None:
                session.process.kill()
                with suppress(LinkLost):
                    self._take_early()
                session.close()

    def _stands(self) -> bool:
        """A first connection may ask for a password, which nobody can type in the background."""
        background.wanted = True
        if standing.is_open(self._socket()):
            return True
        background.require_foreground()
        return False

    def _take_early(self) -> Session | None:
        opening, self._opening = self._opening, None
        return opening.result() if opening is not None else None

    @contextmanager
    def call(
        self, verb: str, request: Mapping[str, Any], payload: Payload | None = None
    ) -> Iterator[Answer]:
        """One request in one round trip. The agent is sent first where it is missing."""
        if self.host and self._opening is None:
            self._stands()
        message = _message(verb, request, payload)
        # What may take long would keep others waiting: it gets a session of its own.
        bulky = verb == "pull" or (payload is not None and payload.size > BULKY)
        whole = None if bulky else message + b"".join(payload.pieces() if payload else ())
        install = bulky and payload is not None  # nothing big is sent in vain
        for attempt in range(TRIES):
            started = self._opening.since if self._opening else time.monotonic()
            try:
                with self._over_standing(whole) as answer:
                    if answer is not None:
                        yield answer
                        return
                with self._over_ssh(message, payload, install) as answer:
                    if answer is not None:
                        self._keep_open()
                        yield answer
                        return
                install = True
            except LinkLost:
                # A link that was cut is tried again at once; one that hangs would hang again.
                if attempt == TRIES - 1 or time.monotonic() - started > HANGING:
                    raise
                time.sleep(0.5)
        raise ClusterError(f"{self.host}: the agent could not be installed in {self.root}")

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        with self.call(verb, request) as answer:
            return dict(answer.record)

    @contextmanager
    def _over_standing(self, message: bytes | None) -> Iterator[Answer | None]:
        """By the connection that an earlier command has left open, if it has; else None."""
        link = standing.connect(self._socket()) if self.host and message else None
        if link is None or message is None:
            yield None
            return
        stream: Any = link.makefile("rwb")
        with link, stream:
            try:
                stream.write(message)
                stream.flush()
                standing.skip_to_mark(stream)
                answer = self._parse(stream)
            except (standing.Broken, OSError, CutShort):
                yield None  # it broke: connect anew
                return
            yield answer

    def _keep_open(self) -> None:
        if self.host:
            standing.start(self._socket(), self.host, self.root, self.python, self.scheduler)

    def _socket(self) -> Path:
        identity = (self.host, self.root, self.python, self.scheduler, self.app)
        return standing.socket_of(socket_folder(), *identity)

    def open_session(self) -> subprocess.Popen[bytes]:
        """An agent that answers many requests, on a connection that asks for no password."""
        words = self._words("-o", "BatchMode=yes")
        null = subprocess.DEVNULL
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=null)

    @contextmanager
    def _over_ssh(
        self, message: bytes, payload: Payload | None, install: bool
    ) -> Iterator[Answer | None]:
        """By an SSH session of its own; None where the agent is missing there."""
        session = self._take_early() or self._open(install)
        with session, Feeding(session.stdin, message, payload) as feeding:
            try:
                answer = self._read_answer(session)
            except DrayError:
                feeding.check()  # it may have been us who broke off
                raise
            yield answer

    def _open(self, install: bool) -> Session:
        session = Session(self._words(install=install))
        try:
            if install:
                self._install(session)
        except BaseException:
            session.close()
            raise
        return session

    def _install(self, session: Session) -> None:
        if self._said(session, PRESENT, MISSING) == MISSING:
            session.send_agent()

    def _words(self, *options: str, install: bool = False) -> list[str]:
        """For any login shell: a plain sh does the rest."""
        script = f'r="{self._shell_root}"; f="$r/node/{self.app}"; ' + (
            INSTALL if install else EXPECT
        )
        script += f'; exec {shlex.quote(self.python)} -I -S "$f" agent "$r" {self.scheduler}'
        remote = f"exec /bin/sh -c {shlex.quote(script)}"
        if not self.host:
            return ["/bin/sh", "-c", remote]
        return [*ssh_words(), *options, self.host, remote]

    def _read_answer(self, session: Session) -> Answer | None:
        return (
            None if self._said(session, MARK, MISSING) == MISSING else self._parse(session.stdout)
        )

    def _said(self, session: Session, *signs: bytes) -> bytes:
        """Which of the signs comes; what a login shell says before does not matter."""
        seen = b""
        while True:
            line = session.stdout.readline()
            if not line:
                raise self._silence(session, seen)
            seen = (seen + line)[-4000:]
            for sign in signs:
                if seen.endswith(sign):
                    return sign

    def _parse(self, stream: IO[bytes]) -> Answer:
        head = stream.readline()
        length = int(head.split()[0]) if head.endswith(b"\n") else 0
        text = stream.read(length)
        if not length or len(text) < length:
            raise CutShort(f"the connection to {self.host or 'the agent'} broke inside an answer")
        record = json.loads(text)
        if "error" in record:
            raise self._refusal(record)
        return Answer(record, stream)

    def _refusal(self, record: Mapping[str, Any]) -> DrayError:
        message = f"{self.host or 'here'}: {record['error']}"
        if record["family"] == "OSError":
            return from_os_error(OSError(record["errno"], message))
        return FAMILIES.get(record["family"], ClusterError)(message)

    def _silence(self, session: Session, seen: bytes) -> DrayError:
        """No answer: what ssh or the remote shell said instead."""
        code = session.process.wait()
        said = (seen + session.complaints()).decode("utf-8", "replace").strip()
        advice = next((hint for sign, hint in ADVICE if sign in said), "")
        hint = advice.format(host=self.host)
        if code == LOST:
            firm = "Permission denied" in said or "dentif" in said or "verification" in said
            kind = ClusterError if firm else LinkLost
            return kind(f"no connection to {self.host}: {last_lines(said)}", hint=hint)
        return ClusterError(
            f"the agent on {self.host or 'this machine'} gave no answer (exit code {code}): "
            f"{last_lines(said)}",
            hint=f"Does '{self.python}' exist there (setting python), and can {self.root} be used?",
        )


class Session:
    """A running ssh (or a shell, on this machine), spoken to by pipes."""

    def __init__(self, words: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            words, bufsize=PIPE_BUFFER, stdin=pipe, stdout=pipe, stderr=self._errors
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_agent(self) -> None:
        app = zipapp.build(zipapp.sources())
        with suppress(BrokenPipeError):  # what was wrong is told instead of an answer
            self.stdin.write(b"%d\n" % len(app) + app)
            self.stdin.flush()

    def complaints(self) -> bytes:
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout):
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors.close()


class Opening(threading.Thread):
    """A session that is made ready while something else is done."""

    def __init__(self, session: Session, make_ready: Callable[[Session], None]) -> None:
        super().__init__()
        self._session, self._make_ready = session, make_ready
        self._error: Exception | None = None
        self.since = time.monotonic()

    def run(self) -> None:
        try:
            self._make_ready(self._session)
        except (DrayError, OSError, ValueError) as error:
            self._error = error

    def result(self) -> Session | None:
        """None where it has to be tried again, by somebody who can be asked for a password."""
        self.join()
        if self._error is None:
            return self._session
        self._session.close()
        if isinstance(self._error, LinkLost):
            raise self._error
        return None


class Feeding(threading.Thread):
    """Sends a request, while its answer may come already."""

    def __init__(self, pipe: IO[bytes], message: bytes, payload: Payload | None) -> None:
        super().__init__()
        self.pipe, self.message, self.payload = pipe, message, payload
        self.error: DrayError | None = None

    def run(self) -> None:
        # A remote side that does not want it all has its reasons, and says them in its answer.
        with suppress(BrokenPipeError, ValueError):
            try:
                self.pipe.write(self.message)
                self.pipe.writelines(self.payload.pieces() if self.payload else ())
                self.pipe.flush()
            except DrayError as error:
                self.error = error
            self.pipe.close()

    def check(self) -> None:
        self.join()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Feeding:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()


def _message(verb: str, request: Mapping[str, Any], payload: Payload | None) -> bytes:
    text = json.dumps({**request, "verb": verb}).encode("ascii")
    return b"%d %d\n" % (len(text), payload.size if payload else 0) + text


def ssh_words() -> list[str]:
    return [
        "ssh",
        "-T",
        *("-o", "ControlMaster=auto"),
        *("-o", f"ControlPath={socket_folder()}/%C"),
        *("-o", f"ControlPersist={PERSIST_SECONDS}"),
        *("-o", f"ConnectTimeout={CONNECT_SECONDS}"),
        *("-o", f"ServerAliveInterval={ALIVE_SECONDS}"),
        *("-o", "ServerAliveCountMax=3"),
    ]


def socket_folder() -> Path:
    folder = sockets.folder()
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if not sockets.is_private(folder):
        raise ClusterError(
            f"{folder} is not private to you", hint=f"Remove it, or chmod 700 {folder}"
        )
    return Path(folder)


def last_lines(text: str, count: int = 5) -> str:
    return "\n".join(text.splitlines()[-count:]) or "nothing was said"
