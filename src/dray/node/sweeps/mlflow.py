"""Requests to an MLflow server's REST interface, and what the run of a trial holds there.

The laptop exports sweeps with it, and a trial that runs tells of itself. The server's answers are
data: bounded, and checked by who uses them. No redirect is followed, since credentials go along;
those come from the variables that MLflow itself reads, never from the address."""

import base64
import json
import math
import re
from urllib.parse import urlsplit

from .filling import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union
    from urllib.error import HTTPError

PATH = "/api/2.0/mlflow/"
LONGEST_ANSWER, LONGEST_REFUSAL = 64 << 20, 1 << 16
WHOLE = 3  # times the patience: for an answer of which something comes again and again
MOST_ENTRIES, MOST_OF_A_KIND = 1000, 100  # of a batch in all; of its parameters, of its tags
LONGEST_BATCH = 900000  # bytes: the server takes 1 MB
LONGEST_PARAMETER, LONGEST_TAG = 6000, 5000
TOKEN = "MLFLOW_TRACKING_TOKEN"  # noqa: S105 (the name of a variable)
USER, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"  # noqa: S105
HEADER = re.compile(r"[!-~]+\Z")  # what a token can be; an error about any other would show it
LONGEST_TOLD = 500  # characters of a server's text that are shown
# MLflow's words for what went wrong. Others may be anything, a password too.
KINDS = (
    "BAD_REQUEST",
    "CUSTOMER_UNAUTHORIZED",
    "DATA_LOSS",
    "ENDPOINT_NOT_FOUND",
    "FEATURE_DISABLED",
    "INTERNAL_ERROR",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "IO_ERROR",
    "MALFORMED_REQUEST",
    "NOT_FOUND",
    "NOT_IMPLEMENTED",
    "PERMISSION_DENIED",
    "QUOTA_EXCEEDED",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_CONFLICT",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_EXHAUSTED",
    "TEMPORARILY_UNAVAILABLE",
    "UNAUTHENTICATED",
    "UNPARSEABLE_HTTP_ERROR",
)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NOT_A_NAME = re.compile(r"[^\w\-. :/]")  # characters that MLflow has in no name

SWEEP, JOB = "dray.sweep", "dray.job"  # tags, by which a trial's run is found again
STATUS = {"done": "FINISHED", "failed": "FAILED", "running": "RUNNING"}
KILLED = "KILLED"  # of all other states
ANY_METRIC = "metric"  # what the main metric is called where the sweep names none


class NoAnswer(Exception):
    """The server has refused a request, or did not answer as it should. ``code`` is HTTP's number,
    ``kind`` MLflow's word for it, one of KINDS or ''."""

    def __init__(self, message: str, code: int = 0, kind: str = "") -> None:
        Exception.__init__(self, message)
        self.code = code
        self.kind = kind


class Connection:
    """``environment`` has the credentials, if any are needed."""

    def __init__(self, address: str, environment: "Mapping[str, str]", patience: float) -> None:
        self.address = address.rstrip("/")
        self.patience = patience  # seconds in which the server has to say something
        self.whole = WHOLE * patience  # seconds for all of an answer
        self.headers = dict({"Content-Type": "application/json"}, **credentials(environment))

    def is_exposed(self) -> bool:
        """Return whether credentials would go over a network in the clear."""
        parts = urlsplit(self.address)
        is_open = parts.scheme != "https" and parts.hostname not in LOOPBACK
        return is_open and self.has_credentials()

    def has_credentials(self) -> bool:
        """Return whether credentials go along. A server can repeat them in what it says, in any
        form, so that none of its text is shown then."""
        return "Authorization" in self.headers

    def ask(
        self,
        path: str,
        body: "Optional[Dict[str, Any]]" = None,
        seconds: "Optional[float]" = None,
    ) -> "Dict[str, Any]":
        """Return the answer to a request, of which all has to come in so many seconds; raise
        NoAnswer."""
        from http.client import HTTPException  # only where somebody asks
        from urllib.error import HTTPError
        from urllib.request import Request

        from ..formats.web import opener, read_whole

        whole = self.whole if seconds is None else min(seconds, self.whole)
        data = None if body is None else json.dumps(body).encode("utf-8")
        request = Request(self.address + PATH + path, data, self.headers)
        try:
            with opener(whole).open(request, timeout=min(whole, self.patience)) as answer:
                found = json.loads(read_whole(answer, LONGEST_ANSWER).decode("utf-8"))
                require_unicode(found)
        except HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            reason = told_in(str(getattr(error, "reason", error)))
            if self.has_credentials() and not isinstance(error, OSError):
                reason = type(error).__name__  # its text may hold a line of the answer
            message = "the MLflow server at {} did not answer as it should: {}"
            raise NoAnswer(message.format(self.address, reason)) from None
        if not isinstance(found, dict):
            message = "the MLflow server at {} did not answer as it should: no table"
            raise NoAnswer(message.format(self.address))
        return found

    def _refusal(self, error: "HTTPError") -> NoAnswer:
        from http.client import HTTPException

        from ..formats.web import read_whole

        with error:
            try:
                told = json.loads(read_whole(error, LONGEST_REFUSAL).decode("utf-8"))
            except (ValueError, RecursionError, OSError, HTTPException):
                told = {}
        told = told if isinstance(told, dict) else {}
        kind = told.get("error_code")
        kind = kind if isinstance(kind, str) and kind in KINDS else ""
        message = kind
        if error.code in (401, 403):
            message = "it wants credentials: set {}, or {} and {}".format(TOKEN, USER, PASSWORD)
        elif self.has_credentials():
            hidden = "what else it says is not shown, as credentials were sent: see its own log"
            message = "{}; {}".format(kind, hidden) if kind else hidden
        elif told.get("message"):
            message = told_in(str(told["message"]))
        text = "the MLflow server at {} answered {}: {}"
        message = message or "it does not say why"
        return NoAnswer(text.format(self.address, error.code, message), error.code, kind)


def require_unicode(answer: "Any") -> None:
    """Raise ValueError for halves of characters, which JSON can spell, and no file or address can
    have."""
    json.dumps(answer, ensure_ascii=False).encode("utf-8")


def told_in(text: str) -> str:
    """Return what a server says, cut, on one line: what could act on a terminal is spelled."""
    cut = text if len(text) <= LONGEST_TOLD else text[: LONGEST_TOLD - 1] + "\u2026"
    spelled = [
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in cut
    ]
    return "".join(spelled)


def why_not_a_token(environment: "Mapping[str, str]") -> str:
    """Say what is wrong with the token, without showing it; '' where nothing is."""
    if HEADER.match(environment.get(TOKEN) or "none"):
        return ""
    return TOKEN + " is no token: it has spaces, line ends or other signs in it"


def credentials(environment: "Mapping[str, str]") -> "Dict[str, str]":
    token = environment.get(TOKEN)
    if token and not why_not_a_token(environment):
        return {"Authorization": "Bearer " + token}
    user, password = environment.get(USER), environment.get(PASSWORD)
    if not user or not password:
        return {}
    both = "{}:{}".format(user, password).encode("utf-8")
    return {"Authorization": "Basic " + base64.b64encode(both).decode("ascii")}


def why_not_an_address(address: str) -> str:
    """Say what is wrong with the address of a server; '' where nothing is."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return "'{}' is not the address of a server: write http://HOST:5000".format(address)
    if parts.username or parts.password:
        return "a password does not belong into an address, where others can see it"
    if parts.scheme not in ("http", "https") or not host:
        return "'{}' is not the address of a server: write http://HOST:5000".format(address)
    return ""


# -- what the run of a trial holds ----------------------------------------------------------------


def pairs(table: "Mapping[str, str]") -> "List[Dict[str, str]]":
    return [{"key": key, "value": value} for key, value in table.items()]


def name_of(name: str) -> str:
    return NOT_A_NAME.sub("_", name)[:250]


def params_of(values: "Mapping[str, Any]") -> "Dict[str, str]":
    return {name_of(one): text_of(values[one], False)[:LONGEST_PARAMETER] for one in values}


def metrics_of(
    name: str, created: float, points: "Sequence[Any]"
) -> "List[Dict[str, Any]]":  # points: pairs of step and value
    """Return the points of a curve. A point is stamped with the sweep's time and its own step, so
    the same point logged again is the same point."""
    key, start = name_of(name or ANY_METRIC), int(created * 1000)
    return [
        {"key": key, "value": as_json(value), "timestamp": start + step, "step": step}
        for step, value in points
    ]


def as_json(value: float) -> "Union[float, str]":
    """Return a number; what is none as MLflow's text for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def batches(
    params: "Mapping[str, str]", tags: "Mapping[str, str]", metrics: "Sequence[Mapping[str, Any]]"
) -> "Iterator[Dict[str, Any]]":
    """Divide what is to be logged into batches that the server takes."""
    given = [("params", one) for one in pairs(params)]  # type: List[Any]
    given += [("tags", one) for one in pairs(tags)]
    given += [("metrics", dict(one)) for one in metrics]
    batch = {}  # type: Dict[str, List[Any]]
    size = 0
    for kind, one in given:
        length = len(json.dumps(one)) + 2
        is_full = kind != "metrics" and len(batch.get(kind, ())) >= MOST_OF_A_KIND
        is_full = is_full or sum(map(len, batch.values())) >= MOST_ENTRIES
        if batch and (is_full or size + length > LONGEST_BATCH):
            yield batch
            batch, size = {}, 0
        batch.setdefault(kind, []).append(one)
        size += length
    if batch:
        yield batch
