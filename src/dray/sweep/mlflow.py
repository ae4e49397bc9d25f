"""Talks to an MLflow server by its REST interface, with the standard library alone.

The server's answers are data: bounded, and checked. No redirect is followed, since credentials go
along; those come from the variables that MLflow itself reads, never from the address."""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence

from dray import checks
from dray.checks import Malformed
from dray.errors import ClusterError, NotFound, Refused, UsageError
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATH = "/api/2.0/mlflow/"
PATIENCE = 60.0  # seconds for an answer
LONGEST_ANSWER = 64 << 20
MOST_ENTRIES, MOST_OF_A_KIND = 1000, 100  # of a batch in all; of its parameters, of its tags
LONGEST_BATCH = 900_000  # bytes: the server takes 1 MB
PAGE, LONGEST_HISTORY = 1000, 25_000
MOST_PAGES = 10_000
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
TOKEN, USER, PASSWORD = (f"MLFLOW_TRACKING_{one}" for one in ("TOKEN", "USERNAME", "PASSWORD"))
HEADER = re.compile(r"[!-~]+")  # what a token can be; an error about any other would show it
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Run(NamedTuple):
    """A run as the server tells of it."""

    id: str
    status: str
    start: int  # ms
    end: int
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: tuple[str, ...]  # names

    @property
    def is_over(self) -> bool:
        return self.status in ("FINISHED", "FAILED", "KILLED")


class Point(NamedTuple):
    step: int
    value: float
    time: int  # ms


class Server:
    """``environment`` has the credentials, if any are needed."""

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"'{address}' is not the address of a server: write http://HOST:5000")
        if parts.username or parts.password:
            raise UsageError(
                "a password does not belong into an address, where others can see it",
                hint=f"Set {USER} and {PASSWORD} instead.",
            )
        self.address = address.rstrip("/")
        self.headers = {"Content-Type": "application/json", **credentials(environment)}
        is_open = parts.scheme == "http" and parts.hostname not in LOOPBACK
        if is_open and "Authorization" in self.headers:
            raise Refused(
                f"{address} is not encrypted, and your credentials would go to it in the clear",
                hint="Use https://, or reach it through a tunnel as http://localhost:PORT.",
            )
        self._opener = urllib.request.build_opener(NoRedirect())

    # -- requests -------------------------------------------------------------------------------

    def get(self, path: str, **query: str | int) -> Mapping[str, Any]:
        return self._ask(f"{path}?{urllib.parse.urlencode(query)}", None)

    def post(self, path: str, **body: Any) -> Mapping[str, Any]:
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None) -> Mapping[str, Any]:
        request = urllib.request.Request(f"{self.address}{PATH}{path}", body, self.headers)
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return checks.record(json.loads(answer.read(LONGEST_ANSWER)))
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ClusterError(
                f"the MLflow server at {self.address} did not answer as it should: {reason}"
            ) from None

    def _refusal(self, error: urllib.error.HTTPError) -> ClusterError:
        with error:
            try:
                told = checks.record(json.loads(error.read(1 << 16)))
            except (ValueError, RecursionError, OSError, http.client.HTTPException):
                told = {}
        code, message = str(told.get("error_code", "")), checks.note(str(told.get("message", "")))
        if error.code in (401, 403):
            message = f"it wants credentials: set {TOKEN}, or {USER} and {PASSWORD}"
        return Answered(
            f"the MLflow server at {self.address} answered {error.code}: {message or code}",
            error.code,
            code,
        )

    # -- experiments and runs -------------------------------------------------------------------

    def experiment(self, name: str) -> str:
        """Return the id of an experiment. Raises NotFound."""
        try:
            found = self.get("experiments/get-by-name", experiment_name=name)
        except Answered as error:
            if error.code == 404:
                raise NotFound(f"there is no experiment '{name}' at {self.address}") from None
            raise
        return text_in(found.get("experiment"), "experiment_id")

    def ensure_experiment(self, name: str) -> str:
        """Return the id of an experiment, which is made where it is not there yet."""
        try:
            return self.experiment(name)
        except NotFound:
            try:
                return text_in(self.post("experiments/create", name=name), "experiment_id")
            except Answered as error:  # somebody was quicker
                if error.kind != "RESOURCE_ALREADY_EXISTS":
                    raise
                return self.experiment(name)

    def runs(self, experiment: str, wanted: str = "") -> Iterator[Run]:
        """Yield the runs of an experiment that a filter lets through."""
        token = ""
        for _ in range(MOST_PAGES):
            more = {"page_token": token} if token else {}
            answer = self.post(
                "runs/search",
                experiment_ids=[experiment],
                filter=wanted,
                max_results=PAGE,
                order_by=["attributes.start_time ASC"],
                **more,
            )
            for one in rows_in(answer, "runs"):
                yield read_run(one)
            token = str(answer.get("next_page_token") or "")
            if not token:
                return

    def create(self, experiment: str, name: str, start: int, tags: Mapping[str, str]) -> str:
        answer = self.post(
            "runs/create",
            experiment_id=experiment,
            run_name=name,
            start_time=start,
            tags=pairs(tags),
        )
        return read_run(answer.get("run")).id

    def update(self, run: str, status: str) -> None:
        self.post("runs/update", run_id=run, status=status)

    def log(self, run: str, batch: Mapping[str, Any]) -> None:
        self.post("runs/log-batch", run_id=run, **batch)

    def history(self, run: str, metric: str) -> Iterator[Point]:
        """Yield the curve of a metric."""
        token = ""
        for _ in range(MOST_PAGES):
            more = {"page_token": token} if token else {}
            answer = self.get(
                "metrics/get-history",
                run_id=run,
                metric_key=metric,
                max_results=LONGEST_HISTORY,
                **more,
            )
            for one in rows_in(answer, "metrics"):
                yield read_point(one)
            token = str(answer.get("next_page_token") or "")
            if not token:
                return


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Answered(ClusterError):
    """The server has refused a request: HTTP's number, and MLflow's word for it."""

    def __init__(self, message: str, code: int, kind: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind


def credentials(environment: Mapping[str, str]) -> dict[str, str]:
    if token := environment.get(TOKEN):
        if not HEADER.fullmatch(token):
            raise UsageError(f"{TOKEN} is no token: it has spaces, line ends or other signs in it")
        return {"Authorization": f"Bearer {token}"}
    user, password = environment.get(USER), environment.get(PASSWORD)
    if not user or not password:
        return {}
    both = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"Authorization": f"Basic {both}"}


# -- what is sent -------------------------------------------------------------------------------


def pairs(table: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in table.items()]


def batches(
    params: Mapping[str, str], tags: Mapping[str, str], metrics: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Divide what is to be logged into batches that the server takes."""
    given = [("params", one) for one in pairs(params)] + [("tags", one) for one in pairs(tags)]
    given += [("metrics", dict(one)) for one in metrics]
    batch: dict[str, list[Any]] = {}
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


# -- what comes back ----------------------------------------------------------------------------


def read_run(value: Any) -> Run:
    try:
        run = checks.record(value)
        info, data = checks.record(run.get("info")), checks.record(run.get("data") or {})
        return Run(
            id=run_id(info.get("run_id")),
            status=checks.note(str(info.get("status", ""))),
            start=checks.integer(int(info.get("start_time") or 0)),
            end=checks.integer(int(info.get("end_time") or 0)),
            params=table_in(data, "params"),
            tags=table_in(data, "tags"),
            metrics=tuple(text_in(one, "key") for one in rows_in(data, "metrics")),
        )
    except (Malformed, TypeError, ValueError, OverflowError) as error:
        raise ClusterError(
            f"the MLflow server tells of a run that cannot be read: {error}"
        ) from None


def read_point(value: Any) -> Point:
    try:
        point = checks.record(value)
        step, time = int(point.get("step") or 0), int(point.get("timestamp") or 0)
        value = float(point.get("value", "nan"))
        return Point(checks.integer(step), value, checks.integer(time))
    except (Malformed, TypeError, ValueError, OverflowError) as error:
        raise ClusterError(
            f"the MLflow server tells of a value that cannot be read: {error}"
        ) from None


def run_id(value: Any) -> str:
    if not RUN_ID.fullmatch(checks.text(value)):
        raise Malformed(f"{checks.brief(value)} is not the id of a run")
    return str(value)


def text_in(record: Any, key: str) -> str:
    try:
        return checks.text(checks.record(record).get(key))
    except Malformed as error:
        raise ClusterError(f"the MLflow server's answer cannot be read: {key}: {error}") from None


def rows_in(record: Mapping[str, Any], key: str) -> list[Any]:
    found = record.get(key) or []
    if not isinstance(found, list):
        raise ClusterError(f"the MLflow server's answer cannot be read: {key} is no list")
    return found


def table_in(data: Mapping[str, Any], kind: str) -> dict[str, str]:
    found = rows_in(data, kind)
    return {text_in(one, "key"): checks.note(str(one.get("value", ""))) for one in found}
