"""dray exec on every kind of cluster: the real program, a real job."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dray.node.sessions.link import SILENCE
from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import AWKWARD
from tests.sessions.conftest import Enter

pytestmark = pytest.mark.sessions
TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"


def test_a_program_sees_what_the_command_sees(on: str, running: Enter) -> None:
    inside = running(on, "--env", "MINE=two words", "--secret", "TOKEN", TOKEN="hidden")
    ended = inside.exec("python3", "-c", TELL, *AWKWARD)
    assert ended.returncode == 0, ended.stderr
    words, env, folder = json.loads(ended.stdout)
    assert words == AWKWARD
    assert (env["MINE"], env["TOKEN"]) == ("two words", "hidden")
    assert (env["DRAY_JOB_ID"], env["DRAY_ATTEMPT"]) == (inside.job, "1")
    assert folder == env["DRAY_CODE"]


def test_every_byte_and_the_exit_code_come_back(on: str, running: Enter) -> None:
    inside = running(on)
    given = os.urandom(3_000_000)
    assert inside.exec("cat", given=given).stdout == given
    ended = inside.exec("sh", "-c", "cat >&2; echo out; exit 7", given=b"\0\xff\r\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"out\n", b"\0\xff\r\n")
    assert inside.exec("sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = inside.exec("no-such-program")
    assert missing.returncode == 127
    assert b"no-such-program: command not found" in missing.stderr


def test_what_it_leaves_running_is_not_waited_for(running: Enter) -> None:
    ended = running("local").exec("sh", "-c", "sleep 60 & echo started")
    assert (ended.returncode, ended.stdout) == (0, b"started\n")


def test_a_reader_that_leaves_ends_the_program(running: Enter) -> None:
    inside = running("local")
    process = inside.start("exec", inside.job, "--", "sh", "-c", "echo $$; exec yes")
    assert process.stdout is not None
    number = process.stdout.readline().decode().strip()
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    process.stderr.close()
    wait_for(lambda: inside.exec("kill", "-0", number).returncode != 0, 60)


def test_ctrl_c_reaches_the_program(on: str, running: Enter) -> None:
    inside = running(on)
    script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done"
    process = inside.start("exec", inside.job, "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == b"caught\n"
    assert process.returncode == 3


def test_a_stopped_client_ends_no_program(on: str, running: Enter) -> None:
    """As by Ctrl-Z, for longer than any other silence is borne."""
    if on == "k8s":
        pytest.skip("what is asked here is the same for all that relay")
    inside = running(on)
    with inside.start_with_pipes("exec", inside.job, "--", "sh", "-c", "echo in; cat") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(SILENCE + 4)
        process.send_signal(signal.SIGCONT)
        process.stdin.write(b"still here")
        process.stdin.close()
        assert process.stdout.read() == b"still here"
        assert process.wait(30) == 0


def test_a_program_ends_with_who_started_it(on: str, running: Enter) -> None:
    inside = running(on)
    process = inside.start("exec", inside.job, "--", "sh", "-c", "echo $$; exec sleep 98765")
    assert process.stdout is not None
    number = process.stdout.readline().decode().strip()
    process.kill()
    process.communicate()
    alive = ("sh", "-c", f"kill -0 {number} 2>/dev/null && echo yes || echo no")
    wait_for(lambda: inside.output(*alive) == "no", 60)


def test_it_ends_with_the_attempt_and_leaves_nothing(on: str, running: Enter, dray: Dray) -> None:
    inside = running(on)
    door = json.loads((dray.jobs / inside.job / "attempts/001/door.json").read_text())
    process = inside.start("exec", inside.job, "--", "sh", "-c", "echo in; sleep 98765")
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    (dray.jobs / inside.job / "outputs/end").touch()
    assert dray.wait(inside.job)["state"] == "done"
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"the attempt has ended" in said or b"lost" in said
    assert not os.path.exists(os.path.dirname(door["socket"]))
    assert not (dray.jobs / inside.job / "attempts/001/door.json").exists()
    after = inside.exec("true")
    assert after.returncode == 4
    assert b"it has ended: done" in after.stderr
    assert b"dray run --like" in after.stderr  # it cannot be resumed


def test_a_job_that_waits_or_is_of_an_older_dray(dray: Dray, running: Enter) -> None:
    inside = running("local", "--cpus", str(os.cpu_count()))
    waiting = dray.run("--cpus", str(os.cpu_count()), "--", "true")
    refused = dray("exec", waiting, "--", "true", check=False)
    assert refused.returncode == 4
    assert "it waits for its turn" in refused.stderr
    assert f"dray show {waiting}" in refused.stderr
    (dray.jobs / inside.job / "attempts/001/door.json").rename(dray.home / "door.json")
    refused = dray("exec", inside.job, "--", "true", check=False)
    assert "a version of dray that lets nobody in" in refused.stderr
    (dray.home / "door.json").rename(dray.jobs / inside.job / "attempts/001/door.json")
    dray("stop", waiting)
    assert inside.exec("true").returncode == 0


@pytest.mark.parametrize("kind", ["hpc", "pbs"])
def test_what_stands_is_used(dray: Dray, hpc: Hpc, running: Enter, kind: str) -> None:
    """A connection that an earlier command has left lends an agent, also while others are in."""
    (hpc.offer if kind == "hpc" else hpc.offer_pbs)(dray)
    inside = running(kind)
    script = "echo in; cat"
    with inside.start_with_pipes("exec", inside.job, "--", "sh", "-c", script) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == b"in\n"

        def lent() -> bool:
            told = dray("--verbose", "exec", inside.job, "--", "echo", "second")
            assert told.stdout == "second\n"
            return "by the standing connection" in told.stderr

        wait_for(lent, 60)
        end_what_stands(dray)
        first.stdin.write(b"\0still here")
        first.stdin.close()
        assert first.stdout.read() == b"\0still here"
        assert first.wait(30) == 0


def end_what_stands(dray: Dray) -> None:
    for pid in dray.processes():
        with suppress(OSError):  # it has ended meanwhile
            if b"dray.transport.standing" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("flag", ["--rank", "--host"])
def test_flags_stand_before_or_after_the_job(running: Enter, dray: Dray, flag: str) -> None:
    inside = running("local")
    words = [flag, "0"] if flag == "--rank" else [flag]
    assert dray("exec", inside.job, *words, "--", "echo", flag).stdout == f"{flag}\n"
    no_rank = dray("exec", "--rank", "3", inside.job, "--", "true", check=False)
    assert "it has no rank 3" in no_rank.stderr


def test_each_rank_has_its_own_door(dray: Dray, running: Enter, hpc: Hpc) -> None:
    hpc.offer(dray)
    inside = running("hpc", "--nodes", "2", "--gpus", "2", "--launch", "srun")
    for rank in range(4):
        door = f"ranks/{rank}.door.json" if rank else "door.json"
        wait_for((dray.jobs / inside.job / "attempts/001" / door).exists)
        said = inside.output("sh", "-c", "echo $RANK $SLURMD_NODENAME", flags=("--rank", str(rank)))
        assert said.split()[0] == str(rank)
    nodes = {
        inside.output("sh", "-c", "echo $SLURMD_NODENAME", flags=("--rank", str(rank)))
        for rank in (0, 3)
    }
    assert len(nodes) == 2
