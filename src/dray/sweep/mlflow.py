"""Talks to an MLflow server: its experiments and runs, as far as sweeps need them. The requests
themselves are those of dray.node.sweeps.mlflow; what is answered is checked here."""

from __future__ import annotations

import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

from dray import checks
from dray.checks import Malformed
from dray.errors import ClusterError, NotFound, Refused, UsageError
from dray.node.sweeps.mlflow import (
    PASSWORD,
    USER,
    Connection,
    NoAnswer,
    pairs,
    why_not_a_token,
    why_not_an_address,
)
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATIENCE = 60.0  # seconds in which the server has to say something
LISTING = 900.0  # seconds for all pages of a list
PAGE, LONGEST_HISTORY = 1000, 25_000
MOST_PAGES = 100  # of a list
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
        if reason := why_not_an_address(address):
            raise UsageError(reason, hint=f"Credentials are taken from {USER} and {PASSWORD}.")
        if reason := why_not_a_token(environment):
            raise UsageError(reason)
        self._connection = Connection(address, environment, PATIENCE)
        self.address = self._connection.address
        if self._connection.is_exposed():
            raise Refused(
                f"{address} is not encrypted, and your credentials would go to it in the clear",
                hint="Use https://, or reach it through a tunnel as http://localhost:PORT.",
            )

    @property
    def headers(self) -> Mapping[str, str]:
        return self._connection.headers

    # -- requests -------------------------------------------------------------------------------

    def get(self, path: str, **query: str | int) -> Mapping[str, Any]:
        return self._ask(f"{path}?{urllib.parse.urlencode(query)}", None)

    def post(self, path: str, **body: Any) -> Mapping[str, Any]:
        return self._ask(path, body)

    def _ask(self, path: str, body: dict[str, Any] | None) -> Mapping[str, Any]:
        try:
            return self._connection.ask(path, body)
        except NoAnswer as error:
            message = checks.note(str(error))
            if not error.code:
                raise ClusterError(message) from None
            raise Answered(message, error.code, error.kind) from None

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

        def ask(more: Mapping[str, str]) -> Mapping[str, Any]:
            return self.post(
                "runs/search",
                experiment_ids=[experiment],
                filter=wanted,
                max_results=PAGE,
                order_by=["attributes.start_time ASC"],
                **more,
            )

        return map(read_run, self._listed("runs", ask, MOST_PAGES * PAGE))

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

        def ask(more: Mapping[str, str]) -> Mapping[str, Any]:
            return self.get(
                "metrics/get-history",
                run_id=run,
                metric_key=metric,
                max_results=LONGEST_HISTORY,
                **more,
            )

        return map(read_point, self._listed("metrics", ask, MOST_PAGES * LONGEST_HISTORY))

    def _listed(
        self, key: str, ask: Callable[[Mapping[str, str]], Mapping[str, Any]], most: int
    ) -> Iterator[Any]:
        """Yield what all pages of a list hold. Half of one would look like all of it, so that a
        list without end is an error."""
        token, until = "", time.monotonic() + LISTING
        for _ in range(MOST_PAGES):
            answer = ask({"page_token": token} if token else {})
            yield from rows_in(answer, key)
            token = str(answer.get("next_page_token") or "")
            if not token:
                return
            if time.monotonic() > until:
                raise ClusterError(f"{self.address} gave no whole list of {key} in {LISTING:g} s")
        raise ClusterError(
            f"{self.address} gives a list of {key} that has no end: more than {MOST_PAGES} pages",
            hint=f"dray reads {most:,} at most; divide the experiment.",
        )


class Answered(ClusterError):
    """The server has refused a request: HTTP's number, and MLflow's word for it."""

    def __init__(self, message: str, code: int, kind: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind


# -- what comes back: no error shows any of it, since a server may repeat the credentials ---------


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
    except (Malformed, TypeError, ValueError, OverflowError):
        raise ClusterError("the MLflow server tells of a run that cannot be read") from None


def read_point(value: Any) -> Point:
    try:
        point = checks.record(value)
        step, time = int(point.get("step") or 0), int(point.get("timestamp") or 0)
        value = float(point.get("value", "nan"))
        return Point(checks.integer(step), value, checks.integer(time))
    except (Malformed, TypeError, ValueError, OverflowError):
        raise ClusterError("the MLflow server tells of a value that cannot be read") from None


def run_id(value: Any) -> str:
    if not RUN_ID.fullmatch(checks.text(value)):
        raise ClusterError("the MLflow server gives a run what is not the id of a run")
    return str(value)


def text_in(record: Any, key: str) -> str:
    try:
        return checks.text(checks.record(record).get(key))
    except Malformed:  # its text shows the value, where the server may repeat a token
        raise ClusterError(f"the MLflow server's answer cannot be read: {key}") from None


def rows_in(record: Mapping[str, Any], key: str) -> list[Any]:
    found = record.get(key) or []
    if not isinstance(found, list):
        raise ClusterError(f"the MLflow server's answer cannot be read: {key} is no list")
    return found


def table_in(data: Mapping[str, Any], kind: str) -> dict[str, str]:
    found = rows_in(data, kind)
    return {text_in(one, "key"): checks.note(str(one.get("value", ""))) for one in found}
