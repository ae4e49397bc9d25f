"""A trial whose MLflow server is away, hangs or answers oddly is a trial like any other."""

from __future__ import annotations

import http.server
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from dray.node.sweeps import mlflow, mlflow_live
from tests.conftest import Dray
from tests.integration.test_sweeps import TRAINER, trials, wait_until_all_are_done
from tests.rigs.processes import free_ports

FLAGS = ("--trials", "1", "--metric", "reward", "--space", "reward=1..2:float")


def start(dray: Dray, address: str, *more: str, check: bool = True) -> Any:
    dray.write("train.py", TRAINER)
    words = (*FLAGS, "--mlflow", address, *more, "--", sys.executable, "train.py")
    return dray("sweep", "start", *words, check=check, MLFLOW_TRACKING_TOKEN="t0ken")


class Checking(http.server.BaseHTTPRequestHandler):
    """Answers as MLflow does, and keeps what it is sent."""

    seen: ClassVar[list[tuple[str, str | None, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(body, {"run": {"info": {"run_id": "r1"}}} if "create" in self.path else {})

    def do_GET(self) -> None:
        self.answer(None, {"experiment": {"experiment_id": "7"}})

    def answer(self, body: Any, told: Any) -> None:
        self.seen.append((self.path, self.headers["Authorization"], body))
        text = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    Checking.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Checking) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_away_is_told_nothing(dray: Dray) -> None:
    (port,) = free_ports(1)
    sweep = start(dray, f"http://127.0.0.1:{port}").stdout.strip()
    wait_until_all_are_done(dray, sweep)
    assert trials(dray, sweep)[0]["value"] is not None


def test_a_server_that_hangs_holds_nothing_up(dray: Dray) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        sweep = start(dray, address).stdout.strip()
        wait_until_all_are_done(dray, sweep)
    assert trials(dray, sweep)[0]["value"] is not None


def test_credentials_are_the_jobs_secrets(dray: Dray) -> None:
    with serving() as address:
        secret = ("--secret", "MLFLOW_TRACKING_TOKEN")
        sweep = start(dray, address, *secret).stdout.strip()
        wait_until_all_are_done(dray, sweep)
        told = list(Checking.seen)
    assert {given for _, given, _ in told} == {"Bearer t0ken"}
    path, _, last = told[-1]
    assert path.endswith("runs/update")
    assert last == {"run_id": "r1", "status": "FINISHED"}
    steps = {
        one["step"]
        for path, _, body in told
        if path.endswith("log-batch")
        for one in body.get("metrics", ())
    }
    assert steps == set(range(1, 21))
    refused = start(dray, "http://mlflow.example.org", *secret, check=False)
    assert refused.returncode != 0
    assert "would go to it in the clear" in refused.stderr


def test_it_is_told_all_metrics(dray: Dray) -> None:
    two = TRAINER.replace("reward=reward)", "cost=2.0, reward=reward)")
    dray.write("train.py", two)
    flags = (*FLAGS, "--metric", "cost", "--sampler", "random", "--mode", "max,min")
    with serving() as address:
        words = (*flags, "--mlflow", address, "--", sys.executable, "train.py")
        wait_until_all_are_done(dray, dray("sweep", "start", *words).stdout.strip())
        told = [body for path, _, body in Checking.seen if path.endswith("log-batch")]
    points = {(one["key"], one["step"]) for body in told for one in body.get("metrics", ())}
    assert points == {(key, step) for key in ("reward", "cost") for step in range(1, 21)}


class Told(mlflow_live.Run):
    """Keeps what the server would be told; it is away at first."""

    def __init__(self, away: int) -> None:
        study: Any = {"id": "s", "metric": "reward", "repeats": 1}
        super().__init__(mlflow.Connection("http://x", {}, 1.0), study, {})  # type: ignore[typeddict-item]
        self.away = away
        self.points: list[tuple[int, float]] = []

    def tell(self, state: str, tags: Any, curves: Any) -> None:  # noqa: ARG002
        self.away -= 1
        if self.away >= 0:
            raise mlflow.NoAnswer("away")
        self.points += curves.get("reward", [])
        assert set(curves) <= {"reward"}


def test_what_a_server_missed_is_told_later_and_nothing_after_the_end() -> None:
    run = Told(away=2)
    live = mlflow_live.Live(run, every=0.01)
    for step in range(10):
        live.add("reward", step, float(step))
        live.add("other", step, -1.0)
    live.begin()
    until = time.monotonic() + 60
    while len(run.points) < 10 and time.monotonic() < until:
        time.sleep(0.01)
    live.end()
    assert live.thread is not None
    live.thread.join(60)
    assert run.points == [(step, float(step)) for step in range(10)]
    live.add("reward", 11, 1.0)
    with pytest.raises(mlflow.NoAnswer):
        run._ask("runs/update", {})


def test_points_that_wait_are_bounded() -> None:
    live = mlflow_live.Live(Told(away=0))
    for step in range(50_000):
        live.add("reward", step, 0.5)
    assert len(live.waiting["reward"]) <= 2 * mlflow_live.MOST_WAITING
    assert max(live.waiting["reward"]) == 49_999
    points = [(step, 0.0) for step in range(1001)]
    assert mlflow_live.thinned(points, 10)[-1] == (1000, 0.0)
    assert len(mlflow_live.thinned(points, 10)) == 10
