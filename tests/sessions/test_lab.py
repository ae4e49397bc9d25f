"""`dray lab`: a real JupyterLab, as a job, reached from this machine."""

from __future__ import annotations

import http.client
import json
import os
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, Hpc, environment, wait_for

pytestmark = pytest.mark.sessions


@pytest.fixture(scope="session")
def jupyter() -> Path:
    return environment("sessions")


class Lab:
    """JupyterLab, as its page speaks to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        url = urllib.parse.urlsplit(address)
        self.host = url.netloc
        (self.token,) = urllib.parse.parse_qs(url.query)["token"]

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        headers = {"Authorization": f"token {self.token if token is None else token}"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text


@contextmanager
def opened(dray: Dray, *arguments: str) -> Iterator[Lab]:
    with dray.serving("lab", "--no-browser", *arguments) as address:
        yield Lab(address)


def labs(dray: Dray) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dray("ps", "--json").stdout)
    return found


def save(lab: Lab, name: str, text: str) -> None:
    body = {"type": "file", "format": "text", "content": text}
    status, answer = lab.ask("PUT", f"/api/contents/{name}", body)
    assert status in (200, 201), answer


def test_on_this_machine(dray: Dray, jupyter: Path) -> None:
    dray.use(jupyter)
    dray.write("notes.txt", "from the project")
    with opened(dray) as lab:
        assert lab.ask("GET", "/lab")[0] == 200
        assert lab.ask("GET", "/api/kernels", token="wrong")[0] == 403
        assert lab.ask("GET", "/api/contents/notes.txt")[1]["content"] == "from the project"
        assert lab.ask("PUT", "/api/contents/work", {"type": "directory"})[0] == 201
        save(lab, "work/new.txt", "mine")
        (job,) = labs(dray)
        kept = dray.job_dir(job["id"]) / "outputs" / "lab" / "work" / "new.txt"
        assert wait_for(kept.exists)
        assert kept.read_text() == "mine"
        assert_private(dray, lab.token)
        with opened(dray) as again:  # the same one
            assert again.token == lab.token
        assert len(labs(dray)) == 1
    assert dray.show(job["id"])["state"] == "running"
    dray("stop", job["id"])
    assert not [pid for pid in dray.processes() if b"jupyter" in command_of(pid)]


def assert_private(dray: Dray, token: str) -> None:
    """Neither a process's words nor a file that others can read holds the token; and no port is
    open, only a socket in a private folder."""
    for pid in dray.processes():
        assert token.encode() not in command_of(pid)
    (folder,) = Path("/tmp").glob(f"dray-lab-{os.getuid()}-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "s").is_socket()
    assert (folder / "token").stat().st_mode & 0o777 == 0o600


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_what_was_saved_is_there_after_a_resume(dray: Dray, jupyter: Path) -> None:
    dray.use(jupyter)
    dray.write("a.txt", "old")
    with opened(dray) as lab:
        save(lab, "a.txt", "new")
        (job,) = labs(dray)
    dray("stop", "--now", job["id"])
    dray("resume", job["id"])
    with opened(dray) as lab:
        assert lab.ask("GET", "/api/contents/a.txt")[1]["content"] == "new"
    assert [one["id"] for one in labs(dray)] == [job["id"]]
    dray("stop", "--now", job["id"])


def test_an_idle_one_ends(dray: Dray, jupyter: Path) -> None:
    dray.use(jupyter)
    with opened(dray, "--idle", "5s"):
        (job,) = labs(dray)
    seen = dray.wait(job["id"])
    assert seen["state"] == "done"
    assert "idle" in dray.log(job["id"])


def test_on_slurm_over_ssh(dray: Dray, hpc: Hpc, jupyter: Path) -> None:
    hpc.offer(dray)
    with opened(dray, "--on", "hpc", "--time", "10m", "--", str(jupyter / "python")) as lab:
        assert lab.ask("GET", "/lab")[0] == 200
        (job,) = labs(dray)
    dray("stop", job["id"])


def test_without_jupyter_it_says_the_line_to_add(dray: Dray) -> None:
    ended = dray("lab", "--no-browser", "--", "/usr/bin/python3", check=False)
    assert ended.returncode == 4
    assert "pip install jupyterlab" in ended.stderr
