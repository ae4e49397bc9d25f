"""A command carried out by a warm process is the user's own in everything but the time it takes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pexpect
import pytest

import dray as package
from dray.node.processes.process import parents
from tests.conftest import Dray, Hpc, wait_for
from tests.integration.test_slurm import ON, queued_names

# In the place of a verb: it says what it sees, or does what it is told.
PROBE = """
import json, os, sys, time
import click
from dray import background

@click.command("ps", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words):
    what = words[0] if words else ""
    umask = os.umask(0o077)
    os.umask(umask)
    about = {
        "pid": os.getpid(),
        "words": [os.fsencode(word).hex() for word in words],
        "folder": os.getcwd(),
        "umask": umask,
        "variables": dict(os.environ),
        "version": 1
    }
    if what == "read":
        about["input"] = sys.stdin.read()
        print("to stderr", file=sys.stderr)
    if what == "say":
        print(words[1])
    if what == "foreground":
        background.require_foreground()
    if what == "later":
        background.after_reply(lambda: time.sleep(3))
    try:
        print(json.dumps(about), flush=True)
        if what == "sleep":
            time.sleep(60)
    except KeyboardInterrupt:
        print("caught", flush=True)
        raise
    if what == "fail":
        raise RuntimeError("a mistake in the code")
    return int(words[1]) if what == "exit" else 0
"""


class Warm:
    """A copy of the code with a probe in it, and a warm process that has it imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "code/dray"
        shutil.copytree(Path(package.__file__).parent, self.code)
        (self.code / "cli/ps.py").write_text(PROBE)
        self.sockets = folder / f"dray-{os.getuid()}"
        self.sockets.mkdir(mode=0o700)
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(folder / "code"),
            "XDG_RUNTIME_DIR": str(folder),
        }

    def start(self) -> None:
        words = [sys.executable, "-P", "-c", "from dray.cli import warm; warm.start()"]
        subprocess.run(words, env=self.env, check=True)
        wait_for(lambda: list(self.sockets.glob("*.warm")))

    def begin(self, *arguments: str | bytes, **more: Any) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "dray", "ps", *arguments]
        options = {"env": self.env, "stdin": subprocess.DEVNULL, "cwd": self.folder}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, **{**options, **pipes, **more})

    def ask(self, *arguments: str | bytes, **more: Any) -> tuple[dict[str, Any], bool]:
        """What the probe saw, and whether a warm process has answered."""
        process = self.begin(*arguments, **more)
        output, complaints = process.communicate(timeout=60)
        assert process.returncode == 0, complaints
        seen: dict[str, Any] = json.loads(output)
        return seen, seen["pid"] != process.pid

    def processes(self) -> list[int]:
        found = []
        for pid in parents():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"warm_server" in words and os.fsencode(self.folder) in words:
                    found.append(pid)
        return found

    def has_ended(self) -> bool:
        """Kill what runs, and tell whether nothing did: a client may just have started one."""
        running = self.processes()
        for pid in running:
            with suppress(ProcessLookupError):  # it may end with the one before it
                os.kill(pid, signal.SIGKILL)
        return not running


@pytest.fixture
def warm() -> Iterator[Warm]:
    import tempfile  # a socket's path must be short

    with tempfile.TemporaryDirectory(prefix="dw", dir="/tmp") as folder:
        one = Warm(Path(folder))
        one.start()
        yield one
        wait_for(one.has_ended)


def first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    seen: dict[str, Any] = json.loads(process.stdout.readline())
    assert seen["pid"] != process.pid
    return seen


def is_running(pid: int) -> bool:
    return pid in parents()


# -- everything is as in the user's own process ---------------------------------------------------


def test_nothing_that_it_prints_acts_on_a_terminal(warm: Warm) -> None:
    odd = os.fsdecode(b"x\x1b]0;title\x07\xc2\x9b2J caf\xe9")
    talk: pexpect.spawn[bytes] = pexpect.spawn(
        sys.executable, ["-m", "dray", "ps", "say", odd], env=warm.env, cwd=str(warm.folder)
    )
    said, about = talk.read().decode().splitlines()
    talk.close()
    assert json.loads(about)["pid"] != talk.pid  # it was not this process
    assert said == r"x\x1b]0;title\x07\x9b2J caf\xe9"


def test_words_folder_variables_and_umask_are_the_callers(warm: Warm, tmp_path: Path) -> None:
    words = [b"a b", b"", b"\xff\xfe", "ü\n".encode(), b"$HOME;'", b"--", b"-x"]
    env = {**warm.env, "ODD": "x=y\udcff", "TZ": "Asia/Tokyo", "TMPDIR": str(tmp_path)}
    seen, served = warm.ask(*words, cwd=tmp_path, env=env, umask=0o027)
    assert served
    assert [bytes.fromhex(word) for word in seen["words"]] == [w for w in words if w != b"--"]
    assert seen["folder"] == str(tmp_path)
    assert seen["variables"] == env
    assert seen["umask"] == 0o027
    seen, served = warm.ask()
    assert served
    assert seen["variables"] == warm.env  # nothing of the last one is left
    assert seen["folder"] == str(warm.folder)


def test_input_and_output_are_the_callers(warm: Warm) -> None:
    process = warm.begin("read", stdin=subprocess.PIPE)
    output, complaints = process.communicate(b"some input", timeout=60)
    seen = json.loads(output)
    assert seen["pid"] != process.pid
    assert seen["input"] == "some input"
    assert complaints == b"to stderr\n"


def test_exit_codes_and_tracebacks(warm: Warm) -> None:
    process = warm.begin("exit", "7")
    first_line(process)
    process.communicate(timeout=60)
    assert process.returncode == 7
    process = warm.begin("fail")
    first_line(process)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"RuntimeError: a mistake in the code" in complaints


def test_nobody_reads_what_is_said(warm: Warm) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = warm.begin("words", stdout=writing)
    os.close(writing)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_two_at_once(warm: Warm) -> None:
    both = [warm.begin("sleep") for _ in range(2)]
    pids = {first_line(process)["pid"] for process in both}
    assert len(pids) == 2
    for process in both:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130


def test_the_answer_does_not_wait_for_what_is_left_to_do(warm: Warm) -> None:
    seen, served = warm.ask("later")
    assert served
    assert is_running(seen["pid"])


# -- signals, and deaths --------------------------------------------------------------------------


def test_ctrl_c_is_passed_on(warm: Warm) -> None:
    process = warm.begin("sleep")
    seen = first_line(process)
    process.send_signal(signal.SIGINT)
    output, complaints = process.communicate(timeout=60)
    assert (output, complaints) == (b"caught\n", b"\ndray: interrupted\n")
    assert process.returncode == 130
    wait_for(lambda: not is_running(seen["pid"]))


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_ends_with_the_caller(warm: Warm, blow: signal.Signals) -> None:
    process = warm.begin("sleep")
    seen = first_line(process)
    process.send_signal(blow)
    assert process.wait(60) == -blow
    wait_for(lambda: not is_running(seen["pid"]))
    process.communicate()


def test_the_caller_ends_with_it(warm: Warm) -> None:
    """What was begun is not begun again: the caller is told what it would have been told."""
    process = warm.begin("sleep")
    os.kill(first_line(process)["pid"], signal.SIGKILL)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == -signal.SIGKILL


def test_one_that_was_killed_is_not_missed(warm: Warm) -> None:
    process = warm.begin("sleep")
    working = first_line(process)["pid"]
    for pid in set(warm.processes()) - {working}:
        os.kill(pid, signal.SIGKILL)
    process.send_signal(signal.SIGINT)  # who was being served is served to the end
    assert process.communicate(timeout=60)[0] == b"caught\n"
    assert not warm.ask()[1]
    warm.start()
    wait_for(lambda: warm.ask()[1])


# -- when it does not serve -----------------------------------------------------------------------


def test_code_that_was_edited_is_never_served_by_the_old(warm: Warm) -> None:
    assert warm.ask()[1]
    probe = warm.code / "cli/ps.py"
    probe.write_text(PROBE.replace('"version": 1', '"version": 2 # edited'))
    seen, served = warm.ask()
    assert (seen["version"], served) == (2, False)
    wait_for(lambda: not warm.processes())  # it notices by itself
    warm.start()
    seen, served = warm.ask()
    assert (seen["version"], served) == (2, True)


def test_another_kind_of_python_is_not_served(warm: Warm) -> None:
    assert not warm.ask(env={**warm.env, "PYTHONOPTIMIZE": "1"})[1]
    assert not warm.ask(env={**warm.env, "LC_ALL": "C"})[1]
    assert warm.ask()[1]


def test_a_folder_that_others_can_open_is_not_trusted(warm: Warm) -> None:
    warm.sockets.chmod(0o755)
    assert not warm.ask()[1]
    warm.sockets.chmod(0o700)
    assert warm.ask()[1]


def test_without_output_it_is_done_here(warm: Warm) -> None:
    script = f"exec {sys.executable} -m dray ps exit 5 >&-"
    ended = subprocess.run(["/bin/sh", "-c", script], env=warm.env, capture_output=True)
    assert b"Bad file" not in ended.stderr


def test_what_needs_the_users_own_process_is_given_back(warm: Warm) -> None:
    assert not warm.ask("foreground")[1]
    assert not warm.ask("--follow")[1]
    assert warm.ask()[1]


def test_one_that_hangs_is_not_waited_for(warm: Warm) -> None:
    stopped: set[int] = set()
    while more := {*warm.processes()} - stopped:  # its child may be made this moment
        for pid in more:
            os.kill(pid, signal.SIGSTOP)
        stopped |= more
    assert not warm.ask()[1]
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: warm.ask()[1])


def test_one_who_is_stopped_does_not_keep_others_waiting(warm: Warm) -> None:
    """Before he has said anything, and in the middle of it."""
    (path,) = warm.sockets.glob("*.warm")
    for said in (b"", b"\0\0\1\0", b"\0\0\1\0half of it"):
        with socket.socket(socket.AF_UNIX) as stopped:
            stopped.connect(str(path))
            stopped.sendall(said)
            wait_for(lambda: warm.ask()[1])


# -- over SSH, to Slurm ---------------------------------------------------------------------------


def is_served(dray: Dray, hpc: Hpc) -> bool:
    """Both are there for the next command: the connection, and the warm process."""
    folder = hpc.sockets / f"dray-{os.getuid()}"
    ready = list(folder.glob("*.warm")) and list(folder.glob("*.link"))
    ended = dray("ps", PYTHONPROFILEIMPORTTIME="1")
    return bool(ready) and "dray.cli.group" not in ended.stderr


@pytest.fixture
def near(dray: Dray, hpc: Hpc) -> Dray:
    hpc.offer(dray)
    dray.env["PYTHONPROFILEIMPORTTIME"] = "1"  # tells who imports what
    dray("doctor", "hpc")
    wait_for(lambda: is_served(dray, hpc))
    return dray


def test_a_job_is_submitted_by_a_warm_process(near: Dray, hpc: Hpc) -> None:
    near.write("here.txt", "this project's")
    for _ in range(3):  # a busy machine may not have the next process ready in time
        ended = near("run", *ON, "--", "/bin/cat", "here.txt")
        if "dray.cli.group" not in ended.stderr:
            break
    assert "dray.cli.group" not in ended.stderr
    job = ended.stdout.strip()
    assert near.wait(job)["state"] == "done"
    assert near.log(job) == "this project's"


def test_without_a_connection_it_is_given_back(near: Dray, hpc: Hpc) -> None:
    """Whoever opens one may be asked for a password."""
    for path in hpc.sockets.glob("dray-*/*.link"):
        path.unlink()
    ended = near("run", *ON, "--", "/bin/true")
    assert "dray.cli.group" in ended.stderr
    job = ended.stdout.strip()
    assert near.wait(job)["state"] == "done"
    assert [row["id"] for row in json.loads(near("ps", "--all", "--json").stdout)] == [job]


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_at_any_moment(near: Dray, hpc: Hpc, blow: signal.Signals) -> None:
    """There is one job or none; an id that was printed is a job's."""
    known: set[str] = set()
    for number in range(1, 16):
        process = subprocess.Popen(
            [sys.executable, "-m", "dray", "run", *ON, "--", "/bin/true"],
            cwd=near.project,
            env=near.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01 * number)
        process.send_signal(blow)
        printed = process.communicate(timeout=60)[0]
        there = {path.name for path in near.jobs.glob("[!.]*")}
        new, known = there - known, there
        # The job of one who was killed may come a moment later: what was sent is carried out.
        assert len(new) <= 1 or blow == signal.SIGKILL
        assert len(known) <= number
        if printed:
            assert printed.strip() in new
    for job in known:
        assert near.wait(job)["state"] in ("done", "lost"), job
        assert queued_names(hpc).count(job) <= 1
