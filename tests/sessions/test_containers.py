"""Into a job whose command runs in a container: the real Apptainer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pexpect
import pytest

from tests.conftest import Dray, Hpc
from tests.contract.test_contract import AWKWARD
from tests.rigs.containers import Apptainer
from tests.rigs.link import Link
from tests.sessions.conftest import Enter
from tests.sessions.test_exec import TELL
from tests.sessions.test_shell import ask, begin, leave, lose_the_link, use_keys_and_sizes

pytestmark = [pytest.mark.sessions, pytest.mark.containers]


@pytest.fixture
def contained(dray: Dray, apptainer: Apptainer, train_sif: Path) -> Dray:
    dray.use(apptainer.bin)
    dray.write("dray.toml", f'[job]\nimage = "{train_sif}"\n')
    return dray


def test_a_program_is_in_a_container_like_the_commands(contained: Dray, running: Enter) -> None:
    inside = running("local", "--secret", "TOKEN", "--env", "MINE=it's $HOME", TOKEN="s3cr3t")
    script = f"{TELL}; sys.stdout.flush(); os.execvp('cat', ['cat'])"
    awkward = [*AWKWARD, b"\xff\xfe caf\xe9"]
    ended = inside.exec("python3", "-c", script, *awkward, given=b"\0\xff")
    assert ended.returncode == 0, ended.stderr
    told, given = ended.stdout[:-2], ended.stdout[-2:]
    assert given == b"\0\xff"
    words, env, folder = json.loads(told)
    assert [os.fsencode(word) for word in words] == [os.fsencode(word) for word in awkward]
    assert env["TRAIN_HOME"] == "/opt/train"  # the image's own
    assert env["DRAY_JOB_ID"] == inside.job
    assert (env["TOKEN"], env["MINE"]) == ("s3cr3t", "it's $HOME")
    assert folder == env["DRAY_CODE"]
    assert inside.exec("sh", "-c", "exit 5").returncode == 5
    outside = inside.exec("sh", "-c", "echo [$TRAIN_HOME] $DRAY_JOB_ID", flags=("--host",))
    assert outside.stdout.decode().split() == ["[]", inside.job]
    # Neither in a list of processes nor on a disk.
    left = list(contained.jobs.rglob("enter-*"))
    assert not left
    assert not any(
        b"s3cr3t" in path.read_bytes()
        for path in (contained.jobs / inside.job).rglob("*")
        if path.is_file() and path.name != "secrets.json"
    )


@pytest.mark.parametrize("isolation", ["", "containall"])
def test_a_shell_in_the_container(contained: Dray, running: Enter, isolation: str) -> None:
    """Apptainer gives what it isolates altogether a terminal of another name."""
    if isolation:
        with (contained.project / "dray.toml").open("a") as settings:
            settings.write("[job.container]\ncontainall = true\n")
    inside = running("local")
    use_keys_and_sizes(inside, "/dev/console" if isolation else "/dev/pts/")
    shell = begin(inside)
    ask(shell, "echo [$TRAIN_HOME]", "[/opt/train]")
    shell.sendline("exit 4")
    assert leave(shell) == 4


def test_a_program_with_a_terminal_in_the_container(contained: Dray, running: Enter) -> None:
    inside = running("local")
    words = ["-m", "dray", "exec", "-t", inside.job, "--", "sh", "-c", "stty size; tty; exit 3"]
    spawned: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        words,
        cwd=str(contained.project),
        env=contained.env,
        encoding="utf-8",
        timeout=60,
        dimensions=(33, 77),
    )
    spawned.expect_exact("33 77")
    spawned.expect_exact("/dev/pts/")
    assert leave(spawned) == 3


@pytest.mark.parametrize("fault", ["cut", "frozen"])
def test_one_comes_back_to_the_container(
    dray: Dray, apptainer_on_hpc: Hpc, link: Link, train_sif: Path, running: Enter, fault: str
) -> None:
    apptainer_on_hpc.offer(dray)
    dray.write("dray.toml", f'[job]\nimage = "{train_sif}"\n')
    lose_the_link(running("hpc"), link, fault)
