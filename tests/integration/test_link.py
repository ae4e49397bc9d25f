"""The link to the login node breaks, hangs, or the cluster's disk is full: nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.node.formats.wire import MARK
from dray.programs import shipping
from dray.snapshot import ChangedSince
from dray.transport.channel import Here
from dray.transport.link import AgentLink
from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import TRAINER, python
from tests.integration.test_slurm import ON, queued_names
from tests.rigs.link import Link

pytestmark = pytest.mark.slurm


@pytest.fixture
def far(dray: Dray, hpc: Hpc, link: Link) -> Dray:
    hpc.offer(dray)
    dray.write("train.py", TRAINER)
    return dray


def test_cut_in_the_middle_of_an_upload(far: Dray, link: Link, hpc: Hpc) -> None:
    (far.project / "big.bin").write_bytes(os.urandom(3_000_000))
    far("doctor", "hpc")  # the agent is there
    link.cut_after = link.sent_up + 1_000_000
    job = far.run(*ON, *python("import os; print(os.path.getsize('big.bin'))"))
    assert link.cut_after is None  # it did happen
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "3000000\n"
    assert len(list(far.jobs.iterdir())) == 1
    assert not list((far.jobs.parent / "packs").glob("*.tmp"))


def test_cut_while_the_agent_is_sent(far: Dray, link: Link) -> None:
    """Whatever has come of it is not taken for the agent."""
    link.cut_after = 300_000
    job = far.run(*ON, *python("print('fine')"))
    assert link.cut_after is None  # it did happen
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "fine\n"
    assert len(list((far.jobs.parent / "node").iterdir())) == 1


def test_a_damaged_agent_is_sent_again(far: Dray, hpc: Hpc) -> None:
    far("doctor", "hpc")
    wait_for(far.nothing_runs)
    (agent,) = (far.jobs.parent / "node").iterdir()
    whole = agent.read_bytes()
    agent.write_bytes(whole[:100_000])
    job = far.run(*ON, *python("print('fine')"))
    assert far.wait(job)["state"] == "done"
    assert agent.read_bytes() == whole


def test_a_full_disk_at_the_first_upload(far: Dray, hpc: Hpc, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(small)], check=True)
    try:
        hpc.offer(far, root=str(small / "root"))
        ended = far("run", *ON, "--no-snapshot", "--", "/bin/true", check=False)
        assert ended.returncode == 8
        assert "No space left" in ended.stderr
        assert not list(small.glob("root/node/*"))
    finally:
        wait_for(lambda: subprocess.run(["umount", str(small)]).returncode == 0)


def test_a_first_upload_is_sent_once(far: Dray, link: Link) -> None:
    """Also where the agent is not there yet, and has to be sent before."""
    (far.project / "big.bin").write_bytes(os.urandom(6_000_000))
    job = far.run(*ON, *python("import os; print(os.path.getsize('big.bin'))"))
    assert link.sent_up < 6_000_000 + len(shipping.app().content) + 100_000
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "6000000\n"


def test_where_a_password_is_asked_for_nothing_is_opened_early(far: Dray, hpc: Hpc) -> None:
    asking = far.home / "bin/ssh"
    asking.parent.mkdir()
    refuse = 'echo "Permission denied (password)." >&2; exit 255'
    asking.write_text(
        f'#!/bin/sh\ncase "$*" in *BatchMode=yes*) {refuse};; esac\n'
        f'exec {hpc.sshd.bin}/ssh -o ControlPath=none "$@"\n'
    )
    asking.chmod(0o755)
    far.env["PATH"] = f"{asking.parent}:{far.env['PATH']}"
    job = far.run(*ON, *python("print('let in')"))
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "let in\n"


@pytest.fixture
def long_named(hpc: Hpc, tmp_path: Path) -> Iterator[Path]:
    """A temporary folder with a name as macOS gives it."""
    folder = tmp_path / ("x" * 50)
    folder.mkdir()
    yield folder
    shared = f"ControlPath=/tmp/dray-{os.getuid()}/%C"
    words = [f"{hpc.sshd.bin}/ssh", "-o", shared, "-O", "exit", "hpc"]
    subprocess.run(words, capture_output=True, check=False)


def test_a_temporary_folder_with_a_long_name(far: Dray, long_named: Path) -> None:
    del far.env["XDG_RUNTIME_DIR"]
    far.env["TMPDIR"] = str(long_named)
    job = far.run(*ON, "--no-snapshot", "--", "/bin/echo", "reached")
    assert far.wait(job)["state"] == "done"
    assert far.log(job) == "reached\n"


def test_a_file_that_changes_while_it_is_sent(tmp_path: Path) -> None:
    """The upload is broken off, nothing of it stays, and the snapshot is taken again."""

    class Changing:
        size = 6_000_000

        def pieces(self) -> Iterator[bytes]:
            yield bytes(1_000_000)
            raise ChangedSince("a file changed")

    agent = AgentLink(Here(), str(tmp_path / "root"), sys.executable, "slurm")
    record = {"job": {"id": "some-1", "snapshot": None}, "pack": "some.pack"}
    with pytest.raises(ChangedSince), agent.call("submit", record, Changing()):
        pass
    wait_for(lambda: not list((tmp_path / "root/packs").glob("some.pack*")))


def test_cut_while_the_answer_is_under_way(far: Dray, link: Link, hpc: Hpc) -> None:
    """sbatch has happened, the laptop does not know: the retry finds the job."""
    far("doctor", "hpc")
    wait = python("import time; time.sleep(3)")
    done = threading.Event()

    def cut_once_queued() -> None:
        while not done.is_set():
            if far.jobs.exists() and any(far.jobs.glob("*/batch.sh")):
                link.cut()
                return

    watcher = threading.Thread(target=cut_once_queued)
    watcher.start()
    job = far.run(*ON, *wait)
    done.set()
    watcher.join()
    assert queued_names(hpc).count(job) == 1
    shown = far.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("done", 1)


# In the place of the login node's Python: an agent's answer is cut short, once.
CUTTING = """#!{python}
import os, subprocess, sys
words = ["{python}", *sys.argv[1:]]
if "agent" not in words:
    os.execv(words[0], words)
agent = subprocess.Popen(words, stdout=subprocess.PIPE)
while piece := os.read(agent.stdout.fileno(), 1 << 16):
    mark = {mark!r}
    if mark in piece and os.path.exists("{cut}"):
        rest = int(open("{cut}").read())
        os.unlink("{cut}")
        os.write(1, piece[:piece.index(mark) + len(mark) + rest])
        agent.kill()
        break
    os.write(1, piece)
"""


@pytest.mark.parametrize("kept_open", [True, False])
@pytest.mark.parametrize("rest", [0, 1, 12])  # nothing, a part of the lengths, a part of the record
def test_cut_inside_an_answer(far: Dray, hpc: Hpc, kept_open: bool, rest: int) -> None:
    program, cut = far.home / "cutting", far.home / "cut"
    program.write_text(CUTTING.format(python=sys.executable, cut=cut, mark=MARK))
    program.chmod(0o755)
    hpc.offer(far, python=str(program))
    far("doctor", "hpc")
    if kept_open:
        standing_socket(far)
    else:
        wait_for(far.nothing_runs)
    cut.write_text(str(rest))
    job = far.run(*ON, "--no-snapshot", "--", "/bin/true")
    assert not cut.exists()
    assert far.wait(job)["state"] == "done"
    assert [path.name for path in far.jobs.iterdir()] == [job]


def test_following_a_log_survives_a_cut(far: Dray, link: Link) -> None:
    job = far.run(*ON, "--", sys.executable, "train.py", "40", "0.1")
    with subprocess.Popen(
        [sys.executable, "-m", "dray", "logs", "-f", job],
        cwd=far.project,
        env=far.env,
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "start at 0\n"
        link.cut()
        assert follower.stdout.read() == "finished\n"
        assert follower.wait(60) == 0


def test_a_frozen_link_is_noticed(far: Dray, link: Link) -> None:
    far("doctor", "hpc")
    link.frozen.set()
    ended = far("doctor", "hpc", check=False)
    assert ended.returncode == 7
    assert "BAD  login" in ended.stdout
    rows = far("ps", check=False)  # what was last seen is shown without the cluster
    assert rows.returncode == 0
    link.frozen.clear()


def test_two_at_once_submit_the_same_tree(far: Dray, link: Link) -> None:
    (far.project / "data.bin").write_bytes(os.urandom(500_000))
    words = [sys.executable, "-m", "dray", "run", *ON, "--", "/bin/true"]
    both = [
        subprocess.Popen(words, cwd=far.project, env=far.env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    jobs = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [far.wait(job)["state"] for job in jobs] == ["done", "done"]


def test_a_pack_cut_short_on_the_cluster(far: Dray, link: Link) -> None:
    far.wait(far.run(*ON, *python("pass")))
    (pack,) = (far.jobs.parent / "packs").glob("*.pack")
    pack.write_bytes(pack.read_bytes()[:-10])
    job = far.run(*ON, *python("import os; print(os.listdir())"))
    shown = far.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert "train.py" in far.log(job)


def test_a_full_disk_on_the_cluster(far: Dray, hpc: Hpc, link: Link, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)], check=True)
    try:
        hpc.offer(far, root=str(small / "root"))
        (far.project / "big.bin").write_bytes(os.urandom(4_000_000))
        ended = far("run", *ON, *python("pass"), check=False)
        assert ended.returncode == 8
        assert "No space left" in ended.stderr
        assert json.loads(far("ps", "--all", "--json").stdout) == []
        assert not list(small.glob("root/packs/*"))
    finally:
        wait_for(lambda: subprocess.run(["umount", str(small)]).returncode == 0)


def test_a_disk_that_fills_up_with_the_submission(
    far: Dray, hpc: Hpc, link: Link, tmp_path: Path
) -> None:
    """Slurm has taken the job: there is no room left to write down its number."""
    small = tmp_path / "small"
    small.mkdir()
    filling = tmp_path / "bin"
    filling.mkdir()
    for name, script in (
        ("sbatch", f'/usr/bin/sbatch --hold "$@"; cat /dev/zero > {small}/filler'),
        ("python", f'PATH={filling}:$PATH exec python3 "$@"'),
    ):
        (filling / name).write_text(f"#!/bin/sh\n{script}\nexit 0\n")
        (filling / name).chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)], check=True)
    try:
        hpc.offer(far, root=str(small / "root"), python=str(filling / "python"))
        job = far.run(*ON, *python("pass"))
        assert list(hpc.slurm.call("squeue", "-h", "-o", "%j").split()) == [job]
        assert [row["id"] for row in json.loads(far("ps", "--json").stdout)] == [job]
        (small / "filler").unlink()
        far("stop", job)
        assert far.show(job)["state"] == "stopped"
    finally:
        far("cluster", "list")
        far.nothing_runs()
        wait_for(lambda: subprocess.run(["umount", str(small)]).returncode == 0)


def standing_processes(dray: Dray) -> list[int]:
    return [
        pid
        for pid in dray.processes()
        if b"dray.transport.standing" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def standing_process(dray: Dray) -> int:
    """Wait for the one process that stays: a second one that was started ends at the lock."""
    return wait_for(lambda: len(pids := standing_processes(dray)) == 1 and pids)[0]


def standing_socket(dray: Dray) -> Path:
    process = standing_process(dray)
    words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    path = Path(os.fsdecode(words[words.index(b"dray.transport.standing") + 1]))
    wait_for(path.exists)
    return path


def test_a_connection_is_kept_open_and_never_needed(far: Dray, hpc: Hpc, link: Link) -> None:
    far("doctor", "hpc")
    path = wait_for(lambda: list(hpc.sockets.glob("dray-*/*.link")))[0]
    first = standing_process(far)
    assert path.parent.stat().st_mode & 0o077 == 0
    wait_for(lambda: far("doctor", "hpc").returncode == 0)
    assert standing_processes(far) == [first]  # it was used, no second one was started
    os.kill(first, signal.SIGKILL)
    job = far.run(*ON, *python("print('fine')"))
    assert far.wait(job)["state"] == "done"
    second = standing_process(far)
    assert second != first
    link.cut()
    wait_for(lambda: second not in standing_processes(far))  # ends with its session
    assert far.log(job) == "fine\n"


def test_one_who_says_nothing_does_not_keep_others_waiting(far: Dray, hpc: Hpc) -> None:
    far("doctor", "hpc")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(standing_socket(far)))
        assert far("doctor", "hpc").returncode == 0
        assert silent.recv(1) == b""  # it was sent away


def test_one_who_is_stopped_does_not_keep_others_waiting(far: Dray, hpc: Hpc) -> None:
    """As by Ctrl-Z, in the middle of what he says."""
    far("doctor", "hpc")
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.connect(str(standing_socket(far)))
        stopped.sendall(b"1000 0\n{")
        assert far("doctor", "hpc").returncode == 0
        job = far.run(*ON, "--no-snapshot", "--", "/bin/echo", "fine")
        assert far.wait(job)["state"] == "done"
    assert len(standing_processes(far)) == 1
