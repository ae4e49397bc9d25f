"""dray view: a real WebRTC connection into a job, in the manner of Isaac Sim's livestream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Dray, Hpc, environment, wait_for
from tests.sessions.conftest import Enter
from tests.sessions.test_distrust import BECOME

# The client can be given no port: tests that use these must not run at the same time.
pytestmark = [pytest.mark.sessions, pytest.mark.xdist_group("livestream")]
PEERS = Path(__file__).parent / "webrtc.py"
SHOWN = "127.0.0.2"  # the job's node is this machine, whose 127.0.0.1 has the ports already


def serving(python: Path, public: str) -> list[str]:
    return [str(python), str(PEERS), "serve", "49100", "47998", public]


def test_a_picture_comes_through_ssh(dray: Dray, hpc: Hpc) -> None:
    hpc.offer(dray)
    python = environment("sessions") / "python"
    livestream = ("--env", "LIVESTREAM=1", "--env", f"PUBLIC_IP={SHOWN}")
    job = dray.run("--on", "hpc", *livestream, "--", *serving(python, SHOWN))
    with dray.serving("view", "--no-browser", "--address", SHOWN, job) as told:
        assert told.endswith(f"connect to {SHOWN}")
        watched = subprocess.run(
            [str(python), str(PEERS), "watch", "49100", SHOWN],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert watched.returncode == 0, watched.stderr
    seen = json.loads(watched.stdout)
    assert seen["sizes"] == [[640, 480]]
    assert sorted(seen["echoes"]) == sorted(f"key {number}"[::-1] for number in range(10))
    dray("stop", "--now", job)


def test_it_waits_until_there_is_a_stream(dray: Dray, hpc: Hpc) -> None:
    """And says beforehand what the command seems to lack."""
    hpc.offer(dray)
    script = (
        "import os, socket, time\n"
        "while not os.path.exists(os.environ['DRAY_OUTPUTS'] + '/go'): time.sleep(0.05)\n"
        "server = socket.create_server(('127.0.0.1', 8211))\n"
        "signalling = socket.create_server(('127.0.0.1', 49100))\n"
        "while True: server.accept()[0].close()"
    )
    job = dray.run("--on", "hpc", "--", "python3", "-c", script)
    wait_for(lambda: dray.show(job)["state"] == "running", 60)
    said = dray.home / "said"
    with said.open("wb") as errors:
        view = subprocess.Popen(
            [sys.executable, "-m", "dray", "view", "--no-browser", "--address", SHOWN, job],
            cwd=dray.project,
            env=dray.env,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    wait_for(lambda: "waiting for the livestream" in said.read_text(), 60)
    assert "does not seem to ask for a livestream" in said.read_text()
    (dray.jobs / job / "outputs/go").touch()
    assert view.stdout is not None
    line = view.stdout.readline().decode().strip()
    assert line == f"http://{SHOWN}:8211/streaming/webrtc-client?server={SHOWN}"
    dray("stop", "--now", job)
    view.communicate(timeout=60)
    assert "no more is forwarded" in said.read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_page_of_another_account_is_not_opened(dray: Dray, running: Enter) -> None:
    inside = running("local", "--env", "LIVESTREAM=1", "--env", "PUBLIC_IP=127.0.0.1")
    ports = "a, b = (socket.create_server(('127.0.0.1', one)) for one in (49100, 8210))\n"
    serve = ports + "print('ready', flush=True)\nsys.stdin.read()"
    said = dray.home / "said"
    words = [sys.executable, "-c", BECOME + serve]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as foreign:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == b"ready\n"
        with said.open("wb") as errors:
            view = subprocess.Popen(
                [sys.executable, "-m", "dray", "view", "--no-browser", inside.job],
                cwd=dray.project,
                env=dray.env,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        wait_for(lambda: "waiting for the livestream" in said.read_text(), 60)
        foreign.communicate()
    own = [sys.executable, "-c", "import socket, sys\n" + serve]
    with subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        told, _ = view.communicate(timeout=60)
        server.communicate()
    assert told.decode().strip() == "http://127.0.0.1:8210/"


def test_a_job_of_this_machine_needs_no_way(dray: Dray, running: Enter) -> None:
    inside = running("local", "--env", "LIVESTREAM=1", "--env", "PUBLIC_IP=127.0.0.1")
    serve = "import socket; s = socket.create_server(('127.0.0.1', 49100)); "
    serve += "print('ready', flush=True)\nwhile True: s.accept()[0].close()"
    server = inside.start("exec", inside.job, "--", "python3", "-c", serve)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    assert "connect to 127.0.0.1" in dray("view", inside.job).stdout
    server.kill()
    server.communicate()
