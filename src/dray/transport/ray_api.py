"""Speaks to a Ray cluster's HTTP API (the port of its dashboard) with the standard library.

No Ray is needed here. Redirects are not followed: a token goes where the user said, and nowhere
else.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dray.errors import ClusterError, ConfigError, DrayError, LoginNeeded
from dray.node.formats.web import Answer, bound, read_whole
from dray.records import NamedTuple
from dray.transport.channel import LinkLost

PATIENCE = 60.0  # seconds in which something has to come; all of an answer: web.WHOLE
LARGEST = 64 << 20  # bytes of an answer
PIECE = 1 << 16
MOST_WORDS = 500  # characters of a complaint

# Where Ray's own programs look for the token.
VARIABLE, VARIABLE_OF_FILE, FILE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token"
# One in front of the API, as Kubernetes' API server, may keep the usual header for itself.
HEADER, HEADER_BEHIND = "Authorization", "X-Ray-Authorization"
TOKEN = re.compile(r"[!-~]+")  # what a header can hold; an error about any other would show it


class Reply(NamedTuple):
    code: int
    content: bytes
    token: str = ""  # which no message shows, should the answer repeat it

    @property
    def ok(self) -> bool:
        return self.code < 300

    def record(self) -> Any:
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise LinkLost(f"Ray's answer is none: {self.text[:100]!r}") from None

    @property
    def text(self) -> str:
        """Return what a refusal says; Ray sends the whole traceback, whose last line tells."""
        lines = self.content[-4000:].decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else f"status code {self.code}"
        return (last.replace(self.token, "…") if self.token else last)[:MOST_WORDS]


def find_token(source: str) -> str:
    """Return the token from where the setting says: ``env:NAME``, ``file:PATH`` or
    ``command:WORDS``; by default, where Ray's own programs look for it, or '' where it is not."""
    how, _, rest = source.partition(":")
    if how == "command":
        return _printed(shlex.split(rest))
    if how == "env":
        if not os.environ.get(rest):
            raise ConfigError(f"the variable {rest}, which has Ray's token, is not set")
        return os.environ[rest].strip()
    if how == "file":
        return _read(rest)
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE].strip()
    path = os.environ.get(VARIABLE_OF_FILE) or FILE
    return _read(path) if Path(path).expanduser().is_file() else ""


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"Ray's token cannot be read: {error}") from None


def _printed(words: list[str]) -> str:
    try:
        ended = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"the command for Ray's token failed: {error}") from None
    if ended.returncode != 0:
        last = ended.stderr.strip()[-MOST_WORDS:]
        raise ConfigError(f"the command for Ray's token failed ({words[0]}): {last}")
    return ended.stdout.strip()


class RayApi:
    """One connection to the API, which is made when it is first needed."""

    headers_of_token: tuple[str, ...] = (HEADER, HEADER_BEHIND)

    def __init__(self, address: str, token: str = "") -> None:
        if token and not TOKEN.fullmatch(token):
            raise ConfigError(
                "what was found in the place of Ray's token is none: there are spaces, line ends "
                "or other signs in it",
                hint="'ray get-auth-token' on the head prints it; see the setting token.",
            )
        self.address = address.rstrip("/")
        parts = urlsplit(self.address)
        self._prefix = parts.path
        self._secure = parts.scheme == "https"
        self._where = (parts.hostname or "", parts.port or (443 if self._secure else 80))
        self._token = token
        self._headers = {name: f"Bearer {token}" for name in self.headers_of_token if token}
        self._connection: http.client.HTTPConnection | None = None
        self.patience = PATIENCE

    def ask(self, method: str, path: str, thing: Any = None, *, raw: bytes | None = None) -> Reply:
        """Send a request and return its answer, also where that is a refusal. Raises LinkLost where
        there is none, and LoginNeeded where the token is missing or wrong."""
        headers = dict(self._headers)
        if raw is not None:
            headers["Content-Type"] = "application/octet-stream"
        elif thing is not None:
            headers["Content-Type"], raw = "application/json", json.dumps(thing).encode()
        kept = self._connection is not None
        try:
            answer = self._request(method, path, raw, headers)
            content = read_whole(answer, LARGEST)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if kept and isinstance(error, (ConnectionError, http.client.BadStatusLine)):
                return self.ask(method, path, thing, raw=raw)  # it was closed while it was idle
            raise self.lost(error) from None
        if answer.will_close:
            self.close()
        return self._checked(Reply(answer.status, content, self._token))

    def follow(self, path: str) -> Iterator[bytes]:
        """Yield what comes of an answer that has no end, on a connection of its own."""
        connection = bound(self._connect())
        try:
            connection.request("GET", self._prefix + path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                content = read_whole(answer, LARGEST)
                reply = self._checked(Reply(answer.status, content, self._token))
                raise ClusterError(f"{self.address}: {reply.text}")
            assert isinstance(answer, Answer)
            answer.timed.wait_for_ever()  # it may be silent for long
            while piece := answer.read1(PIECE):
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise self.lost(error) from None
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = bound(self._connect())
        self._connection.request(method, self._prefix + path, body, headers)
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(*self._where, timeout=self.patience)

    def _checked(self, reply: Reply) -> Reply:
        if reply.code in (401, 403):
            raise LoginNeeded(
                f"{self.address} refuses the token: {reply.text}"
                if self._headers
                else f"{self.address} asks for a token",
                hint="'ray get-auth-token' on the head prints it; see the setting token.",
            )
        if 300 <= reply.code < 400:
            raise ClusterError(
                f"{self.address} leads elsewhere", hint="Set address to what it leads to."
            )
        return reply

    def lost(self, error: Exception) -> DrayError:
        hint = "Is the address right, and are you in the right network (VPN)?"
        return LinkLost(f"Ray's API at {self.address} does not answer: {error}", hint=hint)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()
