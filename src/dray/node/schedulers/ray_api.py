"""Ray's HTTP API, as it is asked on the head itself."""

import http.client
import json
import os
import re
import socket
from urllib.parse import quote, urlsplit

from ..formats.web import bound, read_whole
from .scheduler import NoAnswer, SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional  # noqa: F401

DASHBOARD = "DRAY_RAY_DASHBOARD"  # where it is, by the word of ray.bridge
DEFAULT = "http://127.0.0.1:8265"
PATIENCE, WHOLE = 30.0, 90.0  # seconds in which something has to come, and all of it
LARGEST = 64 << 20  # bytes of an answer
LONGEST = 500  # characters of a complaint
TOKEN_FILE = "~/.ray/auth_token"
TOKEN = re.compile(r"[!-~]*$")  # what a header can hold; an error about any other would show it


class Refused(SchedulerError):
    """Ray's API has answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        last = (text.strip().splitlines() or ["status code {}".format(code)])[-1]
        SchedulerError.__init__(self, "Ray says: {}".format(last[:LONGEST]))
        self.code = code
        self.text = text


def find_token() -> str:
    """Return the token of this cluster, where Ray's own programs look for it; '' for none."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE
    token = os.environ.get("RAY_AUTH_TOKEN") or ""
    try:
        if not token:
            with open(os.path.expanduser(path), encoding="ascii", errors="replace") as file:
                token = file.read()
    except OSError:
        return ""
    if not TOKEN.match(token.strip()):
        raise SchedulerError("what is in the place of Ray's token is none")
    return token.strip()


class Api:
    def __init__(self, address: str = "") -> None:
        self.address = address or os.environ.get(DASHBOARD) or DEFAULT

    def ask(self, method: str, path: str, thing: "Any" = None) -> "Any":
        """Return the answer. Raises Refused for one that is an error, SchedulerError where nobody
        is there, and NoAnswer where the request may have been carried out."""
        parts = urlsplit(self.address)
        is_secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        connection = bound(kind(parts.hostname or "", parts.port, timeout=PATIENCE), WHOLE)
        try:
            try:
                connection.connect()
            except (OSError, http.client.HTTPException) as error:
                raise SchedulerError(
                    "Ray's API at {} does not answer: {}".format(self.address, error)
                )
            return self._answer(connection, method, parts.path.rstrip("/") + path, thing)
        finally:
            connection.close()

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, thing: "Any"
    ) -> "Any":
        headers = {}  # type: Dict[str, str]
        token = find_token()
        if token:
            headers["Authorization"] = "Bearer " + token
        body = None  # type: Optional[bytes]
        if thing is not None:
            headers["Content-Type"], body = "application/json", json.dumps(thing).encode()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = read_whole(answer, LARGEST)
        except (OSError, socket.timeout, http.client.HTTPException) as error:
            raise NoAnswer("Ray's API at {} broke off: {}".format(self.address, error))
        if answer.status >= 300:
            raise Refused(answer.status, content.decode("utf-8", "replace"))
        try:
            return json.loads(content.decode("utf-8")) if content.strip() else None
        except (ValueError, RecursionError):
            raise NoAnswer("Ray's API at {} gives no JSON".format(self.address))

    def job(self, submission: str) -> "Dict[str, Any]":
        found = self.ask("GET", "/api/jobs/" + quote(submission))
        return found if isinstance(found, dict) else {}
