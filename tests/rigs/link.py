"""A slow link between laptop and login node that can be frozen and cut: a relay on loopback.

``python -m tests.rigs.link PORT DELAY`` is one in a process of its own, until its input ends: it
prints its port.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress

PIECE = 64 * 1024


class Link:
    """Relays TCP connections to ``port``, each piece ``delay`` seconds late in either direction."""

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self.target = port
        self.delay = delay
        self.frozen = threading.Event()
        self.sent_up = 0  # bytes from the laptop to the login node
        self.turns = 0  # how often the laptop spoke after an answer: round trips
        self._answered = True
        self.sent_down = 0
        self.cut_after: int | None = None  # cut all connections once so much has gone up
        self.cut_answers_after: int | None = None  # the same, once so much has come down
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [near, far]
                for source, sink, up in ((near, far, True), (far, near, False)):
                    pieces: deque[tuple[float, bytes]] = deque()
                    ready = threading.Condition()
                    for work in (self._receive, self._deliver):
                        threading.Thread(
                            target=work, args=(source, sink, up, pieces, ready), daemon=True
                        ).start()

    def _receive(
        self,
        source: socket.socket,
        _sink: socket.socket,
        up: bool,
        pieces: deque[tuple[float, bytes]],
        ready: threading.Condition,
    ) -> None:
        data = b"x"
        while data:
            try:
                data = source.recv(PIECE)
            except OSError:
                data = b""
            if up:
                self.sent_up += len(data)
                self.turns += self._answered
            else:
                self.sent_down += len(data)
            self._answered = not up
            with ready:
                pieces.append((time.monotonic() + self.delay, data))
                ready.notify()

    def _deliver(
        self,
        _source: socket.socket,
        sink: socket.socket,
        up: bool,
        pieces: deque[tuple[float, bytes]],
        ready: threading.Condition,
    ) -> None:
        with suppress(OSError):
            while True:
                with ready:
                    ready.wait_for(lambda: pieces)
                    due, data = pieces.popleft()
                time.sleep(max(0.0, due - time.monotonic()))
                while self.frozen.is_set():
                    time.sleep(0.05)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                if up and self.cut_after is not None and self.sent_up > self.cut_after:
                    self.cut_after = None
                    self.cut()
                    return
                most = self.cut_answers_after
                if not up and most is not None and self.sent_down > most:
                    self.cut_answers_after = None
                    self.cut()
                    return
                sink.sendall(data)

    def cut(self) -> None:
        """Every connection breaks; new ones are accepted."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self.frozen.clear()
        self._listener.close()
        self.cut()


if __name__ == "__main__":
    print(Link(int(sys.argv[1]), float(sys.argv[2])).port, flush=True)
    sys.stdin.read()
