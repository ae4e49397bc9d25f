"""Running jobs of every kind of cluster, and what gets into them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pexpect
import pytest

from tests.conftest import Dray, Hpc, wait_for

KINDS = ["local", "hpc", "pbs", "box", pytest.param("k8s", marks=pytest.mark.kubernetes)]
PROMPT = "RDY> "
# Runs until it is told to end by a file, so that no test has to wait for it.
WAITING = (
    "import os, time\n"
    "while not os.path.exists(os.environ['DRAY_OUTPUTS'] + '/end'): time.sleep(0.05)"
)


class Inside:
    """A running job, and ways into it."""

    def __init__(self, dray: Dray, job: str) -> None:
        self.dray = dray
        self.job = job

    def exec(
        self, *words: str | bytes, given: bytes = b"", flags: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "dray", "exec", *flags, self.job, "--", *words],
            cwd=self.dray.project,
            env=self.dray.env,
            input=given,
            capture_output=True,
            timeout=100,
            check=False,
        )

    def output(self, *words: str, flags: tuple[str, ...] = ()) -> str:
        ended = self.exec(*words, flags=flags)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.decode().strip()

    def start(self, *words: str, **more: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dray", *words],
            cwd=self.dray.project,
            env=self.dray.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,  # type: ignore[call-overload]
        )

    def start_with_pipes(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dray", *words],
            cwd=self.dray.project,
            env=self.dray.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start_on(self, terminal: int, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dray", *words],
            cwd=self.dray.project,
            env=self.dray.env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )

    def shell(self, *flags: str) -> pexpect.spawn[str]:
        """A shell in a terminal of its own, as a user sees it."""
        spawned = pexpect.spawn(
            sys.executable,
            ["-m", "dray", "shell", *flags, self.job],
            cwd=str(self.dray.project),
            env={**self.dray.env, "TERM": "xterm"},
            encoding="utf-8",
            codec_errors="replace",
            timeout=60,
            dimensions=(30, 100),
        )
        spawned.delaybeforesend = None
        return spawned


@pytest.fixture(params=KINDS)
def on(request: pytest.FixtureRequest, dray: Dray) -> str:
    if request.param in ("hpc", "pbs", "box"):
        hpc: Hpc = request.getfixturevalue("hpc")
        {"hpc": hpc.offer, "pbs": hpc.offer_pbs, "box": hpc.offer_box}[request.param](dray)
    if request.param == "k8s":
        request.getfixturevalue("pods").offer(dray, image="registry.local/python:1")
    return str(request.param)


Enter = Callable[..., Inside]


@pytest.fixture
def running(dray: Dray) -> Iterator[Enter]:
    """Starts a job that waits, and ends it after the test."""
    jobs: list[str] = []

    def start(on: str, *flags: str, **env: str) -> Inside:
        job = dray.run("--on", on, *flags, "--", "python3", "-c", WAITING, **env)
        jobs.append(job)
        wait_for(lambda: dray.show(job)["state"] == "running", 60)
        wait_for(lambda: (dray.jobs / job / "attempts/001/door.json").exists(), 60)
        return Inside(dray, job)

    yield start
    for job in jobs:
        with suppress(OSError):
            (dray.jobs / job / "outputs/end").touch()
        dray("stop", "--now", job, check=False)
        dray.wait(job)


Open = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def opened(dray: Dray) -> Iterator[Open]:
    """Starts `dray shell …` in a terminal of its own, and ends what is left after the test."""
    started: list[pexpect.spawn[str]] = []

    def start(*flags: str) -> pexpect.spawn[str]:
        shell = pexpect.spawn(
            sys.executable,
            ["-m", "dray", "shell", *flags],
            cwd=str(dray.project),
            env={**dray.env, "TERM": "xterm"},
            encoding="utf-8",
            codec_errors="replace",
            timeout=90,
            dimensions=(30, 100),
        )
        shell.delaybeforesend = None
        started.append(shell)
        return shell

    yield start
    for shell in started:
        with suppress(OSError, pexpect.ExceptionPexpect):
            shell.close(force=True)
    for job in jobs(dray):
        if job["state"] in ("queued", "running"):
            dray("stop", "--now", job["id"], check=False)  # it may just be ending


def jobs(dray: Dray) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dray("ps", "--json", "--all").stdout)
    return found


def settled(shell: pexpect.spawn[str]) -> str:
    """Wait for the shell itself; return the session's id."""
    shell.expect(r"(\S+) ends with its last shell")
    assert isinstance(shell.match, re.Match)
    job = str(shell.match[1])
    shell.sendline("PS1='RD''Y> '; bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo")
    shell.expect_exact(PROMPT)
    shell.sendline("echo be''gun")
    shell.expect_exact("begun")
    shell.expect_exact(PROMPT)
    return job
