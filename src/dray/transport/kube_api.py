"""Speaks to a Kubernetes API server through the user's own kubectl.

The standing connection keeps a ``kubectl proxy`` on a socket that only the user can open: a request
is one round trip on an open connection. Without it, each request is a kubectl of its own.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any

from dray import tracing
from dray.errors import ClusterError, DrayError
from dray.records import NamedTuple
from dray.transport import frames
from dray.transport import kubectl as kubectls
from dray.transport.channel import LinkLost
from dray.transport.kubectl import Kubectl
from dray.transport.session import Session

PATIENCE = 60.0  # seconds in which the API server has to say something, and kubectl all
LARGEST = 64 << 20  # bytes of an answer
PATH = re.compile(r"/[!-~]*")
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1, application/json"
JSON = "application/json"
PATCH = "application/merge-patch+json"

# The codes that kubectl tells by name only.
CODES = {
    "AlreadyExists": 409,
    "BadRequest": 400,
    "Conflict": 409,
    "Expired": 410,
    "Forbidden": 403,
    "Gone": 410,
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
        return 200 <= self.code < 300

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
        where there is none, and ClusterError where nobody is logged in. Parts of the path may be
        the API server's own words."""
        if not PATH.fullmatch(path):
            raise ClusterError(f"the API server names what no name can be: {path[:200]!r}")
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
        """Return None where there is no proxy, or it broke before it took the request, or it ended
        without a word to somebody who only looks: it ends with the standing connection."""
        if self.proxy is None or not self.proxy.exists():
            return None
        from http.client import HTTPException  # only where there is a proxy

        from dray.node.formats.web import bound, read_whole

        headers = {"Accept": accept, "Host": "localhost"}
        body = None
        if thing is not None:
            headers["Content-Type"] = PATCH if method == "PATCH" else JSON
            body = json.dumps(thing)
        connection = bound(proxy_connection(self.proxy))
        try:
            connection.connect()
        except OSError:
            return None
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return reply_of(answer.status, read_whole(answer, LARGEST))
        except (OSError, HTTPException) as error:
            if method == "GET" and isinstance(error, ConnectionError):
                return None
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
            return reply_of(200, out)
        reason = re.search(r"Error from server \((\w+)\)", complaint)
        if reason is None or reason[1] not in CODES:
            raise kubectls.explain(complaint)
        return Reply(CODES[reason[1]], {"message": complaint.strip(), "reason": reason[1]})


def proxy_connection(path: Path, patience: float = PATIENCE) -> Any:
    from http.client import HTTPConnection  # only where there is a proxy

    class Connection(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(patience)
            self.sock.connect(str(path))

    return Connection("localhost")


def namespace_of(kubectl: Kubectl) -> str:
    """Return the namespace that is meant: the one that is named, or that of the context."""
    if kubectl.namespace:
        return kubectl.namespace
    view = ("config", "view", "--minify", "--output=jsonpath={..namespace}")
    code, said, complaint = run(kubectl.argv(*view))
    if code:
        raise ClusterError(f"kubectl: {complaint.strip()}", hint="See 'kubectl config view'.")
    return said.decode("utf-8", "replace").strip() or "default"


def run(argv: Sequence[str], text: str = "") -> tuple[int, bytes, str]:
    """Run a kubectl to its end: its exit code, what it printed and what it complained of."""
    until = time.monotonic() + PATIENCE
    try:
        session = Session(list(argv))
    except FileNotFoundError:
        raise kubectls.missing() from None
    with session, session.watch.expecting(PATIENCE):
        feeding = Thread(target=feed, args=(session.stdin, text.encode()), daemon=True)
        feeding.start()
        out = frames.read_most(session.stdout, LARGEST + 1)
        if len(out) > LARGEST:
            raise ClusterError(f"kubectl prints more than {LARGEST >> 20} MB")
        code = session.process.wait()
        feeding.join()
        complaint = session.complaints().decode("utf-8", "replace")
    if code and time.monotonic() > until:
        raise LinkLost(f"kubectl gave no answer in {PATIENCE:g} s")
    return code, bytes(out), complaint


def feed(pipe: IO[bytes], text: bytes) -> None:
    with suppress(OSError, ValueError), pipe:  # one that does not read it all says why
        pipe.write(text)


def patch_words(path: str, change: str) -> tuple[str, ...]:
    """Return the words of ``kubectl patch`` for an object: it cannot be given a path."""
    kind, name = path.split("?")[0].rsplit("/", 2)[1:]
    # Behind "--", a name that begins with one is none of kubectl's own options.
    return ("patch", "--type=merge", f"--patch={change}", "--output=json", "--", kind, name)


def reply_of(code: int, text: bytes) -> Reply:
    """Read an answer. Not all complaints are JSON: a proxy in between may write prose. But half an
    answer must not look as if there were nothing, and neither must one that ends before its first
    byte."""
    prose = text[:500].decode("utf-8", "replace")
    try:
        record = frames.decode(text) if len(text) <= LARGEST else None
    except (ValueError, RecursionError, MemoryError):
        record = None
    if isinstance(record, dict):
        return Reply(code, record)
    if code < 300:
        raise LinkLost(f"the API server's answer is cut short, or is none: {prose[:100]!r}")
    return Reply(code, {"message": prose})


def refusal(what: str, reply: Reply) -> DrayError:
    """Return the error for a request that the API server has refused."""
    hint = ""
    if reply.code == 403 and "exceeded quota" not in reply.message:
        hint = "'dray doctor' lists the rights that are missing."
    return ClusterError(f"{what}: {reply.message}", hint=hint)
