"""Servers that mean ill, or are broken: an MLflow server, and the API of a Ray cluster."""

from __future__ import annotations

import base64
import http.server
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any

import pytest

from dray.errors import ClusterError, ConfigError, DrayError, UsageError
from dray.node.formats import web
from dray.node.schedulers import ray_api as on_head
from dray.node.schedulers.scheduler import SchedulerError
from dray.node.sweeps import mlflow as mlflow_requests
from dray.node.sweeps import mlflow_live
from dray.node.sweeps.mlflow import PASSWORD, TOKEN, USER, Connection, NoAnswer
from dray.sweep import mlflow
from dray.transport import ray_api
from dray.transport.channel import LinkLost
from dray.transport.ray_api import RayApi
from dray.transport.ray_pipe import Frames, number_in

ANSWERS = {
    "nothing": b"",
    "no HTTP": b"\x00\xff\x1b]0;title\x07\r\n\r\n",
    "a line without end": b"HTTP/1.1 200 " + b"a" * 100_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    "a bad piece": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "less than nothing": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
    "half of it": b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a',
    "half a refusal": b"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a deep one": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
}
Serve = Callable[[bytes], str]
# All would be whole in the end: each byte comes in time, and they are good answers together.
SLOW = {
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b" ", b"{}"),
    "body of a refusal": (b"HTTP/1.1 400 No\r\n\r\n", b" ", b"{}"),
    "headers": (b"HTTP/1.1 200 OK\r\nA: ", b"a", b"\r\nContent-Length: 2\r\n\r\n{}"),
}
DRIPS, PAUSE = 400, 0.05


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[socketserver.TCPServer] = []

    def start(answer: bytes) -> str:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1 << 16)
                self.request.sendall(answer)

        server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for one in servers:
        one.shutdown()
        one.server_close()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_that_is_none_is_an_error_in_one_sentence(serve: Serve, answer: bytes) -> None:
    address = serve(answer)
    with pytest.raises(ClusterError):
        mlflow.Server(address, {}).experiment("robots")
    with closing(RayApi(address)) as api, pytest.raises(LinkLost):
        api.ask("GET", "/api/version").record()
    with pytest.raises(SchedulerError):
        on_head.Api(address).ask("GET", "/api/version")


@pytest.fixture
def drip() -> Iterator[Callable[[tuple[bytes, bytes, bytes]], str]]:
    """Serve answers whose middle comes byte by byte."""
    servers: list[socketserver.TCPServer] = []
    over = threading.Event()

    def start(answer: tuple[bytes, bytes, bytes]) -> str:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1 << 16)
                first, byte, last = answer
                with suppress(OSError):
                    for piece in (first, *[byte] * DRIPS, last):
                        self.request.sendall(piece)
                        if over.wait(PAUSE):
                            return

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    over.set()
    for one in servers:
        one.shutdown()
        one.server_close()


@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW.keys())
def test_an_answer_that_comes_byte_by_byte_is_given_up(
    drip: Callable[[tuple[bytes, bytes, bytes]], str],
    answer: tuple[bytes, bytes, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = drip(answer)
    monkeypatch.setattr(web, "WHOLE", 0.5)
    monkeypatch.setattr(on_head, "WHOLE", 0.5)
    with pytest.raises(NoAnswer) as told:
        Connection(address, {}, 60.0).ask("experiments", seconds=0.5)
    assert "no whole answer in 0.5 s" in str(told.value) or told.value.code == 400
    with closing(RayApi(address)) as api, pytest.raises(LinkLost, match="no whole answer"):
        api.ask("GET", "/api/version")
    with pytest.raises(SchedulerError, match="no whole answer"):
        on_head.Api(address).ask("GET", "/api/version")


def test_an_answer_that_is_too_large_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = serve(b"HTTP/1.1 200 OK\r\n\r\n{}" + b" " * (2 << 20))
    for module in (mlflow_requests, ray_api, on_head):
        largest = "LONGEST_ANSWER" if module is mlflow_requests else "LARGEST"
        monkeypatch.setattr(module, largest, 1 << 20)
    with pytest.raises(ClusterError, match="more than 1 MB"):
        mlflow.Server(address, {}).experiment("robots")
    with closing(RayApi(address)) as api, pytest.raises(LinkLost, match="more than 1 MB"):
        api.ask("GET", "/api/version")
    with pytest.raises(SchedulerError, match="more than 1 MB"):
        on_head.Api(address).ask("GET", "/api/version")


def test_a_connection_is_kept_and_each_answer_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left of one answer's time is no matter of the next one."""
    monkeypatch.setattr(web, "WHOLE", 0.5)

    class Kept(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            time.sleep(0.3)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Kept) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with closing(RayApi(f"http://127.0.0.1:{server.server_port}")) as api:
            assert [api.ask("GET", "/").record() for _ in range(4)] == [{}] * 4
            assert api._connection is not None
            assert api._connection.sock.gettimeout() == api.patience
        server.shutdown()


def test_a_list_without_end_is_an_error_and_no_list(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"runs": [], "metrics": [], "next_page_token": "again"}'
    server = mlflow.Server(serve(b"HTTP/1.1 200 OK\r\n\r\n" + body), {})
    monkeypatch.setattr(mlflow, "MOST_PAGES", 3)
    with pytest.raises(ClusterError, match="no end: more than 3 pages"):
        list(server.runs("1"))
    with pytest.raises(ClusterError, match="no end"):
        list(server.history("a", "reward"))
    monkeypatch.setattr(mlflow, "LISTING", 0.0)
    with pytest.raises(ClusterError, match="no whole list of runs"):
        list(server.runs("1"))


@pytest.mark.parametrize(
    "body",
    [
        rb'{"runs": [{"info": {"run_id": "a"}, "data": {"tags": [{"key": "\ud800"}]}}]}',
        rb'{"runs": [], "next_page_token": "\udfff"}',
    ],
)
def test_halves_of_characters_are_no_answer(serve: Serve, body: bytes) -> None:
    server = mlflow.Server(serve(b"HTTP/1.1 200 OK\r\n\r\n" + body), {})
    with pytest.raises(ClusterError, match="did not answer as it should"):
        list(server.runs("1"))


@pytest.mark.parametrize("token", ["a warning\nhidden", "hidden\r\nHost: elsewhere", "hidden…"])
def test_a_token_that_is_none_is_not_shown(
    serve: Serve, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own complaint about a header has all of it."""
    address = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    asked: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: mlflow.Server(address, {TOKEN: token}).experiment("a"), UsageError),
        (lambda: RayApi(address, token).ask("GET", "/"), ConfigError),
        (lambda: on_head.Api(address).ask("GET", "/"), SchedulerError),
    ]
    for ask, kind in asked:
        with pytest.raises(kind, match="token") as caught:
            ask()
        error = caught.value
        assert "hidden" not in f"{error} {error.hint if isinstance(error, DrayError) else ''}"


@pytest.mark.parametrize("status", [b"401 No", b"500 Error", b"200 OK"])
def test_a_token_that_is_repeated_is_not_shown(serve: Serve, status: bytes) -> None:
    said = b"bad header: Bearer hidden-token"
    length = str(len(said)).encode()
    address = serve(b"HTTP/1.1 " + status + b"\r\nContent-Length: " + length + b"\r\n\r\n" + said)

    def ask() -> None:
        with closing(RayApi(address, "hidden-token")) as api:
            reply = api.ask("GET", "/")
            raise ClusterError(reply.text if not reply.ok else str(reply.record()))

    with pytest.raises(DrayError) as caught:
        ask()
    assert "bad header: Bearer …" in str(caught.value)
    assert "hidden" not in str(caught.value)


def refusal(told: dict[str, str]) -> bytes:
    said = json.dumps(told).encode()
    return b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said)


SECRET = "HIDDEN_TOKEN"
PAIR = base64.b64encode(f"user:{SECRET}".encode()).decode()
REPEATED = {
    "the header": refusal({"error_code": "BAD_REQUEST", "message": f"Bearer {SECRET}"}),
    "the pair": refusal({"error_code": "BAD_REQUEST", "message": f"Basic {PAIR}"}),
    "reversed": refusal({"error_code": "BAD_REQUEST", "message": SECRET[::-1]}),
    "as the kind": refusal({"error_code": SECRET, "message": ""}),
    "no HTTP": f"{SECRET} {PAIR}\r\n\r\n".encode(),
    "a status": f"HTTP/1.1 {SECRET} {PAIR}\r\n\r\n".encode(),
    "a value": b'HTTP/1.1 200 OK\r\n\r\n{"experiment": "%s"}' % SECRET.encode(),
}


@pytest.mark.parametrize("answer", REPEATED.values(), ids=REPEATED.keys())
@pytest.mark.parametrize("given", [{TOKEN: SECRET}, {USER: "user", PASSWORD: SECRET}])
def test_mlflow_credentials_that_are_repeated_are_not_shown(
    serve: Serve,
    answer: bytes,
    given: dict[str, str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither on the laptop, nor in the log of a trial."""
    address = serve(answer)
    with pytest.raises(ClusterError) as caught:
        mlflow.Server(address, given).experiment("robots")
    study: Any = {"id": "robots-1", "repeats": 1}
    run = mlflow_live.Run(Connection(address, given, 5.0), study, {"id": "a"})  # type: ignore[typeddict-item]
    assert not mlflow_live.Live(run)._tell()
    shown = f"{caught.value} {caught.value.hint} {capfd.readouterr().out}"
    assert "MLflow was not told how the trial does" in shown
    for secret in (SECRET, SECRET[::-1], PAIR):
        assert secret not in shown
    if b"BAD_REQUEST" in answer:
        assert "answered 400: BAD_REQUEST; " in str(caught.value)
        assert "see its own log" in str(caught.value)


def test_what_mlflow_says_is_shown_where_no_credentials_were_sent(serve: Serve) -> None:
    address = serve(refusal({"error_code": "BAD_REQUEST", "message": "no\n\x1b[2J" + "a" * 9999}))
    with pytest.raises(NoAnswer) as caught:
        Connection(address, {}, 5.0).ask("runs/search", {})
    assert "answered 400: no\\n\\x1b[2Jaaa" in str(caught.value)
    assert len(str(caught.value)) < 700
    assert caught.value.kind == "BAD_REQUEST"


@pytest.mark.parametrize(
    "told", [{"info": {"run_id": "!hidden"}}, {"info": {"run_id": "a", "start_time": "hidden"}}]
)
def test_a_run_that_cannot_be_read_is_not_shown(told: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match=r"cannot be read|not the id") as caught:
        mlflow.read_run(told)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "told",
    [
        {"value": 10**400},
        {"step": float("inf")},
        {"timestamp": 10**400},
        {"timestamp": float("-inf")},
    ],
)
def test_numbers_beyond_all_bounds_are_no_points(told: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="cannot be read"):
        mlflow.read_point({"step": 1, "value": 1.0, "timestamp": 1, **told})
    with pytest.raises(ClusterError, match="cannot be read"):
        mlflow.read_run({"info": {"run_id": "a", "start_time": float("inf")}})


@pytest.mark.parametrize(
    "sent",
    [
        b"O -5\n",  # it was taken for an empty one, again and again
        b"O 99999999\n",
        b"O 999999999999999999\n",
        b"O x\n",
        b"\xff 5\nhello",
        b"Z 5\nhello",
        b"\n",
        b"x" * 100,  # it was kept, and searched, with every further piece
    ],
)
def test_what_is_no_frame_ends_the_connection(sent: bytes) -> None:
    with pytest.raises(LinkLost, match="Ray's head"):
        list(islice(Frames().take(sent), 10))


def test_frames_arrive_in_any_pieces() -> None:
    sent = b"A 1\n1O 5\nhello" + b"O 0\n" + b"X 2\n-9"
    whole = [("A", b"1"), ("O", b"hello"), ("O", b""), ("X", b"-9")]
    for size in (1, 2, 3, 7, 100):
        frames = Frames()
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [one for piece in pieces for one in frames.take(piece)] == whole
    assert number_in(b"-9") == -9
    with pytest.raises(LinkLost, match="no number"):
        number_in(b"1e9")
