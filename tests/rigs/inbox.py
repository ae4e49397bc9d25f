"""A real HTTP server on this machine that keeps what it is sent, and can be unkind."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Inbox:
    """``manner``: ok, hang (never answers), error (500), cut (closes in the middle of an answer),
    or a URL to redirect to."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.manner = "ok"
        self.over = threading.Event()
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.take(self)

            def do_GET(self) -> None:
                inbox.take(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        self.received.append(Received(asked.path, dict(asked.headers), body))
        if self.manner == "hang":
            self.over.wait(60)
        elif self.manner == "error":
            asked.send_error(500)
        elif self.manner == "cut":
            asked.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            asked.close_connection = True
        elif self.manner != "ok":
            asked.send_response(302)
            asked.send_header("Location", self.manner)
            asked.end_headers()
        else:
            asked.send_response(200)
            asked.end_headers()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def wait(self, number: int, seconds: float = 60.0) -> list[Received]:
        """What has come, once it is so many."""
        until = time.monotonic() + seconds
        while len(self.received) < number and time.monotonic() < until:
            time.sleep(0.05)
        return list(self.received)

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
