"""Into a job of PBS, which starts nothing beside it: the job is called, else ssh goes there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.sessions.conftest import Enter, Inside
from tests.sessions.test_distrust import BECOME

pytestmark = pytest.mark.sessions


@pytest.fixture
def inside(dray: Dray, hpc: Hpc, running: Enter) -> Inside:
    hpc.offer_pbs(dray)
    return running("pbs")


def calls_to(inside: Inside) -> Path:
    return inside.dray.jobs / inside.job / "attempts/001/door.calls"


def way_in(inside: Inside) -> Path:
    return inside.dray.jobs.parent / "way-in.json"


@pytest.fixture
def ssh_to_nodes(hpc: Hpc) -> Iterator[None]:
    """The login node's ssh leads to this machine, which all nodes are on."""
    config = hpc.sshd.folder / "node_config"
    lines = (hpc.sshd.folder / "ssh_config").read_text().splitlines()[1:]
    config.write_text("\n".join([f"Host {socket.gethostname()}", *lines, ""]))
    wrapper = hpc.bin / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
    wrapper.chmod(0o755)
    yield
    wrapper.unlink()


def test_the_file_for_calls_is_private_and_goes_with_the_attempt(inside: Inside) -> None:
    assert calls_to(inside).stat().st_mode & 0o777 == 0o600
    assert inside.output("echo", "in") == "in"
    assert json.loads(way_in(inside).read_text()) == {"way": "call"}
    (inside.dray.jobs / inside.job / "outputs/end").touch()
    assert inside.dray.wait(inside.job)["state"] == "done"
    assert not calls_to(inside).exists()


def test_a_server_that_has_ended_is_started_by_the_next_call(inside: Inside, dray: Dray) -> None:
    assert inside.output("echo", "first") == "first"
    server = servers(dray)
    assert len(server) == 1
    os.kill(server[0], 9)
    wait_for(lambda: not servers(dray))
    assert inside.output("echo", "second") == "second"


def servers(dray: Dray) -> list[int]:
    found = []
    for pid in dray.processes():
        with suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += [pid] if b"session" in words else []
    return found


PESTER = """
import time
print("ready", flush=True)
got, held = b"", []
for line in sys.stdin:
    for number in range(100):
        s = socket.socket()
        try:
            s.connect(("127.0.0.1", int(line)))
            s.sendall(b"x" * (number % 70))
            held.append(s)
        except OSError: pass
time.sleep(0.5)
for s in held:
    s.setblocking(False)
    try: got += s.recv(1000)[64:]
    except OSError: pass
print(len(held), repr(got))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_who_knows_the_port(inside: Inside) -> None:
    """They get no word of the session, and hold it up for nobody."""
    words = [sys.executable, "-c", BECOME + PESTER]
    pipe = subprocess.PIPE
    others = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
    assert others.stdin is not None
    assert others.stdout is not None
    assert others.stdout.readline() == "ready\n"
    over, told = threading.Event(), 0

    def tell() -> None:
        nonlocal told
        while not over.wait(0.005):
            lines = calls_to(inside).read_text().splitlines()
            for line in lines[told:]:
                print(json.loads(line)["port"], file=others.stdin, flush=True)
            told = len(lines)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        for number in range(3):
            assert inside.output("echo", f"secret {number}") == f"secret {number}"
    finally:
        over.set()
        teller.join()
        said, _ = others.communicate(timeout=60)
    assert told >= 3
    count, _, got = said.partition(" ")
    assert int(count) > 0
    assert got == "b''\n"


def test_where_no_call_gets_through_ssh_goes_there(inside: Inside, ssh_to_nodes: None) -> None:
    calls_to(inside).unlink()
    given = os.urandom(100_000)
    assert inside.exec("cat", given=given).stdout == given
    assert json.loads(way_in(inside).read_text()) == {"way": "ssh"}
    assert inside.exec("sh", "-c", "exit 7").returncode == 7


def test_where_nothing_leads_there_it_is_said(inside: Inside, dray: Dray) -> None:
    calls_to(inside).unlink()
    refused = inside.exec("true")
    assert refused.returncode == 4
    said = refused.stderr.decode()
    host = socket.gethostname()
    assert f"its node {host} does not connect to this login node" in said
    assert f"'ssh {host}' fails here" in said
