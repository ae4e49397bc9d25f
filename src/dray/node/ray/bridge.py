"""dray: runs a program on the head of a Ray cluster, for a laptop that reaches only Ray's HTTP API.

Ray's API takes in packages, and gives out log files: the program's input comes in the former, one
after another, and its output goes into a file beside Ray's own logs, which the laptop follows. This
text, and the program's words, come in the first package, and need no other file there; the other
end is dray.transport.ray_pipe.

    a package   I input, C end of input, P sign of life
    the last    is called END: the laptop's side has ended
    the file    frames "KIND LENGTH\\n": O output, E errors, A packages taken so far, X exit code
"""

import fcntl
import os
import re
import subprocess
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, List, Optional, Tuple  # noqa: F401

PACKAGE = "gcs://_ray_pkg_{}-{}.zip"
SILENCE = 90.0  # seconds without a sign of life, after which the laptop is taken to be gone
SHORTEST, LONGEST = 0.005, 0.1  # seconds between two looks for a package
PIECE = 1 << 16
AHEAD = 16  # packages that may have come and were not taken
END = "end"
END_LOOK = 0.5  # seconds between two looks whether the laptop has hung up
NAMED = re.compile(r"dray-[0-9a-f]{16}\.out$")
MOST_RELEASED = 50  # of abandoned files, for each connection
FAREWELLS, FAREWELL = 4, 0.25  # writes after the laptop has gone, and seconds after each
DASHBOARD = "DRAY_RAY_DASHBOARD"  # where the agent finds Ray's API


def find_dashboard(packages: "Any") -> str:
    """Return the address of Ray's API as the head itself reaches it."""
    found = packages._internal_kv_get("dashboard", namespace="dashboard")
    return "http://" + found.decode() if found else ""


class Answers:
    """The file that the laptop follows; locked while somebody writes it."""

    def __init__(self, name: str) -> None:
        logs = os.path.dirname(os.readlink("/proc/self/fd/1"))
        release_abandoned(logs)
        self.path = os.path.join(logs, "dray-{}.out".format(name))
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        self.lock = threading.Lock()

    def write(self, kind: str, data: bytes) -> None:
        data = "{} {}\n".format(kind, len(data)).encode() + data
        with self.lock:
            while data:
                data = data[os.write(self.fd, data) :]

    def copy(self, kind: str, pipe: "IO[bytes]") -> None:
        for piece in iter(lambda: os.read(pipe.fileno(), PIECE), b""):
            self.write(kind, piece)

    def end(self) -> None:
        """Remove the file, once the laptop has hung up."""
        release([(self.path, self.fd)])


def release(found: "List[Tuple[str, int]]") -> None:
    """Remove files that nobody reads any more. Ray, which passes each on through two processes,
    only notices that the laptop has gone when both of them have something to send: before that,
    the request counts among the hundred that its dashboard takes at once, from everybody."""
    for path, _ in found:
        with suppress(OSError):  # another connection was quicker, or it is not ours to remove
            os.unlink(path)
    for _ in range(FAREWELLS if found else 0):
        for _, fd in found:
            with suppress(OSError):  # a full disk: what has gone stays a while longer
                os.write(fd, b"A 1\n0")
        time.sleep(FAREWELL)


def release_abandoned(logs: str) -> None:
    """Remove files of bridges that were killed, all in the time that one takes."""
    found = []  # type: List[Tuple[str, int]]
    try:
        for name in os.listdir(logs):
            path = os.path.join(logs, name)
            fd = abandoned(path) if NAMED.match(name) and len(found) < MOST_RELEASED else None
            found += [(path, fd)] if fd is not None else []
        release(found)
    finally:
        for _, fd in found:
            os.close(fd)


def abandoned(path: str) -> "Optional[int]":
    """Return the file, locked, where nobody writes it any more."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # its owner has just removed it, or it is somebody else's
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(fd).st_mtime > SILENCE:  # else it is about to be locked
            return fd
    except OSError:  # somebody writes it
        pass
    os.close(fd)
    return None


class Bridge:
    """``packages``: where Ray keeps what comes in."""

    def __init__(self, name: str, words: "List[str]", packages: "Any") -> None:
        self.name = name
        self.answers = Answers(name)
        self.packages = packages
        env = dict(os.environ, **{DASHBOARD: find_dashboard(packages)})
        pipe = subprocess.PIPE
        self.program = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        self.taken = 0
        self.heard = self.next_look = time.monotonic()

    def run(self) -> None:
        ending = threading.Thread(target=self.report)
        ending.start()
        pause = SHORTEST
        try:
            while not self.is_over() and time.monotonic() - self.heard < SILENCE:
                pause = SHORTEST if self.look() else min(pause * 1.2, LONGEST)
                time.sleep(pause)
        finally:
            self.end()
        ending.join()
        self.answers.end()

    def is_over(self) -> bool:
        """Look now and then whether the laptop has hung up."""
        now = time.monotonic()
        if now < self.next_look:
            return False
        self.next_look = now + END_LOOK
        return bool(self.packages._internal_kv_get(PACKAGE.format(self.name, END)))

    def report(self) -> None:
        """Pass on what the program says, and how it ended."""
        program, copy = self.program, self.answers.copy
        assert program.stdout is not None
        assert program.stderr is not None
        errors = threading.Thread(target=copy, args=("E", program.stderr))
        errors.start()
        copy("O", program.stdout)
        errors.join()
        self.answers.write("X", str(program.wait()).encode())

    def look(self) -> bool:
        """Take the next package, if it has come."""
        key = PACKAGE.format(self.name, self.taken)
        package = self.packages._internal_kv_get(key)
        if not package:
            return False
        self.packages._internal_kv_del(key)
        self.taken += 1
        self.heard = time.monotonic()
        self.answers.write("A", str(self.taken).encode())
        self.heed(package[:1], package[1:])
        return True

    def heed(self, kind: bytes, data: bytes) -> None:
        assert self.program.stdin is not None
        try:
            if kind == b"I":
                self.program.stdin.write(data)
                self.program.stdin.flush()
            elif kind == b"C":
                self.program.stdin.close()
        except (OSError, ValueError):  # it has ended, or its input has
            pass

    def end(self) -> None:
        """End the program, and drop what has come for it in vain."""
        assert self.program.stdin is not None
        try:
            self.program.stdin.close()
        except OSError:
            pass
        try:
            self.program.wait(5)
        except subprocess.TimeoutExpired:
            self.program.kill()
        for one in list(range(self.taken, self.taken + AHEAD)) + [END]:
            self.packages._internal_kv_del(PACKAGE.format(self.name, one))


def main(name: str, words: "List[str]", packages: "Any") -> None:
    os.umask(0o077)
    Bridge(name, words, packages).run()
