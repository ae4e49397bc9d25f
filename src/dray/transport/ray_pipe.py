"""Runs a program on the head of a Ray cluster as ``ssh`` would, through Ray's HTTP API alone: its
input and output are this process's. See dray.node.ray.bridge for the other end.

ray_pipe ADDRESS TOKEN PYTHON WORDS...   TOKEN says where the token is, and is none itself
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import quote

from dray.errors import ClusterError, DrayError
from dray.programs import shipping
from dray.transport.channel import LinkLost
from dray.transport.ray_api import RayApi, find_token

BRIDGE = "dray_node/ray/bridge.py"
PREFIX = "dray-link-"
MARK = "link"  # what Ray's metadata says of such a job
PACKAGE = "_ray_pkg_{}-{}.zip"
LARGEST = 8 << 20  # bytes of a package
AHEAD = 4  # packages that may be under way
PING_SECONDS = 20.0
STARTING = 120.0  # seconds for Ray to start the job
FOLLOW_SECONDS = 0.03  # between two looks of Ray's at the file
FAILED = 255  # the exit code where the way itself failed, as ssh's
END = "end"  # the name of the last package
ENDING = 5.0  # seconds for the other end to end
OVER = ("SUCCEEDED", "FAILED", "STOPPED")
HEAD = re.compile(rb"([OEAX]) ([0-9]{1,8})\n")  # of a frame
LONGEST_HEAD = 11
LONGEST_SAID = 300
NUMBER = re.compile(rb"-?[0-9]{1,15}")


# What Ray is told to run: it reads the program from the first package. Ray's list of jobs shows
# nothing of a connection but its name.
STARTER = """\
import json, os, sys
from ray._raylet import GcsClient
from ray.experimental import internal_kv as packages
packages._initialize_internal_kv(GcsClient(address=os.environ["RAY_ADDRESS"]))
key = "gcs://_ray_pkg_{}-start.zip".format(sys.argv[1])
start = json.loads(packages._internal_kv_get(key))
packages._internal_kv_del(key)
code = {"__name__": "bridge"}
exec(start["source"], code)
code["main"](sys.argv[1], start["words"], packages)
"""


class Frames:
    """Reads frames from pieces: see dray.node.ray.bridge."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        self._rest += piece
        while found := HEAD.match(self._rest):
            end, size = found.end(), int(found[2])
            if size > LARGEST:
                raise LinkLost(f"a frame of {size} bytes came from Ray's head")
            if len(self._rest) < end + size:
                return
            yield found[1].decode(), bytes(self._rest[end : end + size])
            del self._rest[: end + size]
        if len(self._rest) >= LONGEST_HEAD or b"\n" in self._rest:
            raise LinkLost(f"what came from Ray's head is no frame: {bytes(self._rest[:60])!r}")


def number_in(data: bytes) -> int:
    if not NUMBER.fullmatch(data):
        raise LinkLost(f"what came from Ray's head is no number: {data[:60]!r}")
    return int(data)


class Pipe:
    def __init__(self, connect: Callable[[], RayApi], python: str) -> None:
        self.name = secrets.token_hex(8)
        self.job = PREFIX + self.name
        self.api = connect()
        self.sending = connect()  # of the thread that sends
        self.python = python
        self.sent = 0
        self.acknowledged = 0
        self.turn = threading.Condition()
        self.input: list[bytes] = []
        self.has_ended = False

    def start(self, words: list[str]) -> None:
        start = {"source": shipping.sources()[BRIDGE].decode("ascii"), "words": words}
        self.put("start", json.dumps(start).encode())
        program = [self.python, "-I", "-c", STARTER, self.name]
        asked = {
            "entrypoint": "exec " + " ".join(map(shlex.quote, program)),
            "submission_id": self.job,
            "metadata": {"dray": MARK},
        }
        reply = self.api.ask("POST", "/api/jobs/", asked)
        if not reply.ok:
            raise ClusterError(f"{self.api.address} takes no job: {reply.text}")

    def answers(self) -> Iterator[tuple[str, bytes]]:
        """Yield frames, once the job has begun to write them."""
        node, until = self.head(), time.monotonic() + STARTING
        query = f"node_id={node}&filename={quote(f'dray-{self.name}.out')}&lines=-1"
        while not self.is_written(node):
            self.require_life(until)
            time.sleep(0.1)
        frames = Frames()
        for piece in self.api.follow(f"/api/v0/logs/stream?{query}&interval={FOLLOW_SECONDS}"):
            yield from frames.take(piece)
        raise LinkLost(f"{self.api.address} ended the connection")

    def is_written(self, node: str) -> bool:
        glob = quote(f"dray-{self.name}.out")
        reply = self.api.ask("GET", f"/api/v0/logs?node_id={node}&glob={glob}")
        return reply.ok and self.name.encode() in reply.content

    def head(self) -> str:
        found = self.api.ask("GET", "/api/v0/nodes?filters=[]&limit=10000").record()
        with suppress(TypeError, KeyError):
            for node in found["data"]["result"]["result"]:
                if node["is_head_node"] and node["state"] == "ALIVE":
                    return quote(str(node["node_id"]))
        said = found.get("msg") if isinstance(found, dict) else ""
        why = f": {str(said)[:LONGEST_SAID]}" if said else ": is this Ray's dashboard?"
        raise ClusterError(f"{self.api.address} names no head{why}")

    def require_life(self, until: float) -> None:
        found = self.api.ask("GET", f"/api/jobs/{self.job}").record()
        status = found.get("status") if isinstance(found, dict) else None
        if status in OVER:
            logs = self.api.ask("GET", f"/api/jobs/{self.job}/logs").record()
            said = str(logs.get("logs", "")).strip() if isinstance(logs, dict) else ""
            said = said or str(found.get("message"))
            raise ClusterError("\n".join(said.splitlines()[-5:]))
        if time.monotonic() > until:
            raise LinkLost(f"{self.api.address} has not started a job in {STARTING:g} s")

    # -- sending, in threads ----------------------------------------------------------------------

    def read_input(self) -> None:
        while True:
            piece = os.read(0, LARGEST)
            with self.turn:
                self.has_ended = not piece
                self.input.append(piece)
                self.turn.notify_all()
                self.turn.wait_for(lambda: sum(map(len, self.input)) < LARGEST)
            if not piece:
                return

    def send_input(self) -> None:
        """Send what was read, and a sign of life now and then."""
        is_closed = False
        try:
            while True:
                with self.turn:
                    ready = self.turn.wait_for(lambda: self.input, PING_SECONDS)
                    pieces, self.input = self.input, []
                    is_last = self.has_ended and not is_closed
                    self.turn.notify_all()
                    self.turn.wait_for(lambda: self.sent - self.acknowledged < AHEAD, PING_SECONDS)
                data = b"".join(pieces)
                if data:
                    self.send(b"I" + data)
                if is_last:
                    is_closed = True
                    self.send(b"C")
                elif not ready:
                    self.send(b"P")
        except DrayError as error:
            fail(error)

    def send(self, package: bytes) -> None:
        self.put(self.sent, package)
        self.sent += 1

    def put(self, name: str | int, package: bytes) -> None:
        path = f"/api/packages/gcs/{PACKAGE.format(self.name, name)}"
        reply = self.sending.ask("PUT", path, raw=package)
        if not reply.ok:
            raise ClusterError(f"{self.api.address} takes no package: {reply.text}")

    def acknowledge(self, taken: int) -> None:
        with self.turn:
            self.acknowledged = taken
            self.turn.notify_all()

    # -- afterwards -------------------------------------------------------------------------------

    def see_off(self) -> None:
        """Leave a process behind that hangs up once this one has ended, however it did."""
        here, there = os.pipe()
        if os.fork() > 0:
            os.close(here)
            return
        with suppress(BaseException):
            os.setsid()
            os.close(there)
            with open(os.devnull, "r+b") as null:
                for stream in (0, 1, 2):
                    os.dup2(null.fileno(), stream)
            os.read(here, 1)  # ends with that process
            self.put(END, b"end")
            self.tidy()
        os._exit(0)

    def tidy(self) -> None:
        """Have Ray forget this connection's job, and those of others that are over."""
        until = time.monotonic() + ENDING
        while time.monotonic() < until:
            found = self.api.ask("GET", "/api/jobs/").record()
            jobs = [one for one in found if isinstance(one, dict)]
            for job in filter(is_old_link, jobs):
                self.api.ask("DELETE", f"/api/jobs/{quote(str(job['submission_id']))}")
            live = [one.get("submission_id") for one in jobs if not is_old_link(one)]
            if self.job not in live:
                return
            time.sleep(0.5)


def is_old_link(job: Mapping[str, Any]) -> bool:
    """Tell by its name alone: what Ray makes of a job that was deleted early says nothing else."""
    return job.get("status") in OVER and str(job.get("submission_id")).startswith(PREFIX)


def fail(error: DrayError) -> NoReturn:
    """End this process, from any of its threads."""
    sys.stderr.write(f"{type(error).__name__}: {error.message}\n{error.hint}\n")
    sys.stderr.flush()
    os._exit(FAILED)


def run(connect: Callable[[], RayApi], python: str, words: Sequence[str]) -> int:
    """Run these words on the head; return their exit code."""
    pipe = Pipe(connect, python)
    pipe.see_off()
    pipe.start(list(words))
    for work in (pipe.read_input, pipe.send_input):
        threading.Thread(target=work, daemon=True).start()
    for kind, data in pipe.answers():
        if kind == "A":
            pipe.acknowledge(number_in(data))
        elif kind == "X":
            return number_in(data) & 255
        else:
            os.write(1 if kind == "O" else 2, data)
    return FAILED


def by_address(address: str, source: str, python: str, *words: str) -> int:
    token = find_token(source)
    return run(lambda: RayApi(address, token), python, words)


def main(way: Callable[..., int]) -> NoReturn:
    """Take the way that this process's words describe, and end as it ends."""
    try:
        code = way(*sys.argv[1:])
    except DrayError as error:
        fail(error)
    os._exit(code)  # threads may still be reading


if __name__ == "__main__":
    main(by_address)
