"""Whom a connection trusts: notices and MLflow go to servers that only a job's own copy of Python
knows the authority of."""

from __future__ import annotations

import http.server
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.node.formats import web
from dray.node.notifications import notify, sending
from dray.node.sweeps.mlflow import Connection, NoAnswer

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server that no authority of this machine vouches for, and its own certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ("-addext", "subjectAltName=DNS:localhost")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", *words.split(), *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"https://localhost:{server.server_port}", str(certificate)
        server.shutdown()


@needs_openssl
def test_a_copied_python_trusts_what_came_along_with_it(
    secure: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, authorities = secure
    monkeypatch.setenv("no_proxy", "localhost")
    notice = notify.Request(address, {}, b"{}")
    server = Connection(address, {}, 60.0)
    assert "SSL" in sending.post(notice)
    with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
        server.ask("runs/update", {})
    monkeypatch.setattr(web, "certificates", lambda: authorities)
    assert sending.post(notice) == ""
    assert server.ask("runs/update", {}) == {}
