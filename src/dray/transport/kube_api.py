"""Speaks to a Kubernetes API server through the user's own kubectl.

The standing connection keeps a ``kubectl proxy`` on a socket that only the user can open: a request
is one round trip on an open connection. Without it, each request is a kubectl of its own.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dray import tracing
from dray.errors import ClusterError, DrayError
from dray.records import NamedTuple
from dray.transport import kubectl as kubectls
from dray.transport.channel import LinkLost
from dray.transport.kubectl import Kubectl

PATIENCE = 60.0  # seconds for an answer of the API server
LARGEST = 256 << 20  # bytes of an answer
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1, application/json"
JSON = "application/json"
PATCH = "application/merge-patch+json"

# The codes that kubectl tells by name only.
CODES = {
    "AlreadyExists": 409,
    "BadRequest": 400,
    "Conflict": 409,
    "Forbidden": 403,
    "Invalid": 422,
    "NotFound": 404,
    "Unauthorized": 401,
}
VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PUT": "replace"}


class Reply(NamedTuple):
    """An answer of the API server: its status code, and the object or the complaint."""

    code: int
    record: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return self.code < 300

    @property
    def message(self) -> str:
        text = self.record.get("message")
        return text[: kubectls.LONGEST] if isinstance(text, str) else f"status code {self.code}"


class Api:
    """``proxy``: where a kubectl proxy may be listening."""

    def __init__(self, kubectl: Kubectl, proxy: Path | None = None) -> None:
        self.kubectl = kubectl
        self.proxy = proxy

    def get(self, path: str, *, table: bool = False) -> Reply:
        return self.ask("GET", path, accept=TABLE if table else JSON)

    def create(self, path: str, thing: Mapping[str, Any]) -> Reply:
        return self.ask("POST", path, thing)

    def patch(self, path: str, change: Mapping[str, Any]) -> Reply:
        return self.ask("PATCH", path, change)

    def delete(self, path: str) -> Reply:
        return self.ask("DELETE", path)

    def ask(
        self,
        method: str,
        path: str,
        thing: Mapping[str, Any] | None = None,
        *,
        accept: str = JSON,
    ) -> Reply:
        """Send one request, and return its answer, also where that is a refusal. Raises LinkLost
        where there is none, and ClusterError where nobody is logged in."""
        started = time.monotonic()
        reply = self._by_proxy(method, path, thing, accept)
        way = "by the proxy" if reply is not None else "by a kubectl of its own"
        if reply is None:
            reply = self._by_kubectl(method, path, thing)
        seconds = time.monotonic() - started
        tracing.trace(f"{method} {path} {way}: {reply.code} in {seconds:.3f} s")
        if reply.code == 401:
            raise kubectls.explain("(Unauthorized) " + reply.message)
        if reply.code >= 500 or reply.code == 429:
            raise LinkLost(f"the API server cannot answer now: {reply.message}")
        return reply

    def _by_proxy(
        self, method: str, path: str, thing: Mapping[str, Any] | None, accept: str
    ) -> Reply | None:
        """Return None where there is no proxy, or it broke before it took the request."""
        if self.proxy is None or not self.proxy.exists():
            return None
        from http.client import HTTPException  # only where there is a proxy

        headers = {"Accept": accept, "Host": "localhost"}
        body = None
        if thing is not None:
            headers["Content-Type"] = PATCH if method == "PATCH" else JSON
            body = json.dumps(thing)
        connection = proxy_connection(self.proxy)
        try:
            connection.connect()
        except OSError:
            return None
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Reply(answer.status, parse(answer.read(LARGEST)))
        except (OSError, HTTPException) as error:
            # What was sent may have been carried out: whoever creates finds its own again.
            raise LinkLost(f"the API server did not answer: {error}") from None
        finally:
            connection.close()

    def _by_kubectl(self, method: str, path: str, thing: Mapping[str, Any] | None) -> Reply:
        if method == "PATCH":
            words: Sequence[str] = patch_words(path, json.dumps(thing))
        else:
            words = (VERBS[method], "--raw", path, *(("-f", "-") if thing is not None else ()))
        text = json.dumps(thing) if thing is not None and method != "PATCH" else ""
        code, out, complaint = run(self.kubectl.argv(*words), text)
        if code == 0:
            return Reply(200, parse(out))
        reason = re.search(r"Error from server \((\w+)\)", complaint)
        if reason is None or reason[1] not in CODES:
            raise kubectls.explain(complaint)
        return Reply(CODES[reason[1]], {"message": complaint.strip(), "reason": reason[1]})


def proxy_connection(path: Path) -> Any:
    from http.client import HTTPConnection  # only where there is a proxy

    class Connection(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(PATIENCE)
            self.sock.connect(str(path))

    return Connection("localhost")


def run(argv: Sequence[str], text: str = "") -> tuple[int, bytes, str]:
    """Run a kubectl to its end: its exit code, what it printed and what it complained of."""
    tracing.trace_program(argv)
    try:
        ended = subprocess.run(
            argv, input=text.encode(), capture_output=True, timeout=PATIENCE, check=False
        )
    except FileNotFoundError:
        raise kubectls.missing() from None
    except subprocess.TimeoutExpired:
        raise LinkLost(f"kubectl gave no answer in {PATIENCE:g} s") from None
    return ended.returncode, ended.stdout, ended.stderr.decode("utf-8", "replace")


def patch_words(path: str, change: str) -> tuple[str, ...]:
    """Return the words of ``kubectl patch`` for an object: it cannot be given a path."""
    kind, name = path.split("?")[0].rsplit("/", 2)[1:]
    return ("patch", kind, name, "--type=merge", f"--patch={change}", "--output=json")


def parse(text: bytes) -> Mapping[str, Any]:
    """Read an answer. Not all are JSON: a proxy in between may write prose."""
    try:
        record = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {"message": text[:500].decode("utf-8", "replace")}
    return record if isinstance(record, dict) else {"message": str(record)[:500]}


def refusal(what: str, reply: Reply) -> DrayError:
    """Return the error for a request that the API server has refused."""
    hint = ""
    if reply.code == 403 and "exceeded quota" not in reply.message:
        hint = "'dray doctor' lists the rights that are missing."
    return ClusterError(f"{what}: {reply.message}", hint=hint)
