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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from dray import background
from dray.errors import ClusterError, DrayError, NotFound, Refused, StorageError, from_os_error
from dray.node.wire import MARK
from dray.transport import standing, zipapp

CONNECT_SECONDS = 15
ALIVE_SECONDS = 3  # a link that is silent for three times this long is taken for dead
PERSIST_SECONDS = 600
MISSING = b"\x01dray-missing\x01"
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


class BaseMissing(ClusterError):
    """The cluster no longer has the snapshot that a manifest was sent as a change of."""


FAMILIES: dict[str, type[DrayError]] = {
    "BaseMissing": BaseMissing,
    "NoAnswer": LinkLost,
    "ClusterError": ClusterError,
    "NotFound": NotFound,
    "Refused": Refused,
    "StorageError": StorageError,
}


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

    def prepare(self) -> None:
        """A first connection may ask for a password, which nobody can type in the background."""
        if self.host:
            background.wanted = True
            if not standing.is_open(self._socket()):
                background.require_foreground()

    @contextmanager
    def call(
        self, verb: str, request: Mapping[str, Any], payload: Path | None = None
    ) -> Iterator[Answer]:
        """One request in one round trip. The agent is sent first where it is missing."""
        self.prepare()
        message = _message(verb, request, payload)
        for attempt in range(TRIES):
            started = time.monotonic()
            try:
                # What may take long would keep others waiting: it gets a session of its own.
                bulky = verb == "pull" or (payload is not None and payload.stat().st_size > BULKY)
                with self._over_standing(None if bulky else message, payload) as answer:
                    if answer is not None:
                        yield answer
                        return
                with self._over_ssh(message, payload) as answer:
                    if answer is not None:
                        self._keep_open()
                        yield answer
                        return
                self._send_agent()
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
    def _over_standing(
        self, message: bytes | None, payload: Path | None
    ) -> Iterator[Answer | None]:
        """By the connection that an earlier command has left open, if it has; else None."""
        link = standing.connect(self._socket()) if self.host and message else None
        if link is None or message is None:
            yield None
            return
        stream: Any = link.makefile("rwb")
        with link, stream:
            try:
                _feed(stream, message, payload)
                standing.skip_to_mark(stream)
                answer = self._parse(stream)
            except (standing.Broken, OSError, ValueError):
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
        words = [*ssh_words(), "-o", "BatchMode=yes", self.host, self._agent_command()]
        null = subprocess.DEVNULL
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=null)

    @contextmanager
    def _over_ssh(self, message: bytes, payload: Path | None) -> Iterator[Answer | None]:
        """By an SSH session of its own; None where the agent is missing there."""
        with self._start(self._agent_command()) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            writer = threading.Thread(
                target=_feed_and_close, args=(process.stdin, message, payload)
            )
            writer.start()
            try:
                yield self._read_answer(process)
            finally:
                process.stdout.close()
                writer.join()

    def _agent_command(self) -> str:
        """For any login shell: a plain sh does the rest."""
        script = (
            f'r="{self._shell_root}"; f="$r/node/{self.app}"; '
            f'if [ -f "$f" ]; then exec {shlex.quote(self.python)} -I -S "$f" '
            f'agent "$r" {self.scheduler}; fi; '
            f"printf '\\n\\001dray-missing\\001\\n'"
        )
        return f"exec /bin/sh -c {shlex.quote(script)}"

    @contextmanager
    def _start(self, remote: str) -> Iterator[subprocess.Popen[bytes]]:
        words = ["/bin/sh", "-c", remote] if not self.host else [*ssh_words(), self.host, remote]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
            process.errors = errors  # type: ignore[attr-defined]
            try:
                yield process
            finally:
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        with suppress(OSError):
                            pipe.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _read_answer(self, process: subprocess.Popen[bytes]) -> Answer | None:
        stream = process.stdout
        assert stream is not None
        seen = b""
        while True:
            line = stream.readline()
            if not line:
                raise self._silence(process, seen)
            seen = (seen + line)[-4000:]
            if seen.endswith(MARK):
                break
            if MISSING in line:
                return None
        return self._parse(stream)

    def _parse(self, stream: IO[bytes]) -> Answer:
        lengths = stream.readline().split()
        record = json.loads(stream.read(int(lengths[0])))
        if "error" in record:
            raise self._refusal(record)
        return Answer(record, stream)

    def _refusal(self, record: Mapping[str, Any]) -> DrayError:
        message = f"{self.host or 'here'}: {record['error']}"
        if record["family"] == "OSError":
            return from_os_error(OSError(record["errno"], message))
        return FAMILIES.get(record["family"], ClusterError)(message)

    def _silence(self, process: subprocess.Popen[bytes], seen: bytes) -> DrayError:
        """No answer: what ssh or the remote shell said instead."""
        code = process.wait()
        errors = process.errors  # type: ignore[attr-defined]
        errors.seek(0)
        said = (seen + errors.read()).decode("utf-8", "replace").strip()
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

    def _send_agent(self) -> None:
        script = (
            f'umask 077; r="{self._shell_root}"; f="$r/node/{self.app}"; mkdir -p "$r/node" && '
            f'cat > "$f.$$" && mv "$f.$$" "$f"'
        )
        with self._start(f"exec /bin/sh -c {shlex.quote(script)}") as process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(zipapp.build(zipapp.sources()))
            with suppress(BrokenPipeError):
                process.stdin.close()
            if process.wait() != 0:
                raise self._silence(process, b"")


def _message(verb: str, request: Mapping[str, Any], payload: Path | None) -> bytes:
    text = json.dumps({**request, "verb": verb}).encode("ascii")
    return b"%d %d\n" % (len(text), payload.stat().st_size if payload else 0) + text


def _feed(pipe: IO[bytes], message: bytes, payload: Path | None) -> None:
    pipe.write(message)
    if payload is not None:
        with payload.open("rb") as file:
            while piece := file.read(1 << 20):
                pipe.write(piece)
    pipe.flush()


def _feed_and_close(pipe: IO[bytes], message: bytes, payload: Path | None) -> None:
    # A remote side that does not want it all has its reasons, and says them in its answer.
    with suppress(BrokenPipeError, ValueError):
        _feed(pipe, message, payload)
        pipe.close()


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
    """Short, because a socket's path may have no more than about a hundred characters."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"dray-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ClusterError(
            f"{folder} is not private to you", hint=f"Remove it, or chmod 700 {folder}"
        )
    return folder


def last_lines(text: str, count: int = 5) -> str:
    return "\n".join(text.splitlines()[-count:]) or "nothing was said"
