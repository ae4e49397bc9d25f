"""kill -9 at every step, of every process: no job is lost, run twice at once, or shown wrongly."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.node.formats import files
from dray.node.formats.faults import MOMENTS
from dray.node.processes.process import parents
from tests.conftest import Dray, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER, attempt_pid, parent_of

# Each start of the command leaves a line, and fails if another one is running.
COUNTED = """
import fcntl, os, time
folder = os.environ["DRAY_OUTPUTS"]
lock = open(folder + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
open(folder + "/starts", "a").write("x")
time.sleep(0.2)
open(folder + "/ends", "a").write("x")
"""


@pytest.fixture
def fault(dray: Dray) -> str:
    dray.write("count.py", COUNTED)
    dray.write("train.py", TRAINER)
    return str(dray.home / "fault-happened")


def submit(dray: Dray, moment: str, token: str) -> subprocess.CompletedProcess[str]:
    return dray(
        "run", "--", sys.executable, "count.py", check=False, DRAY_FAULT=f"{moment}@{token}"
    )


def listed(dray: Dray) -> dict[str, str]:
    rows = json.loads(dray("ps", "--all", "--json").stdout)
    return {row["id"]: row["state"] for row in rows}


def count(dray: Dray, job: str, what: str) -> int:
    path = dray.job_dir(job) / "outputs" / what
    return len(path.read_text()) if path.exists() else 0


def test_every_moment_is_tried() -> None:
    assert set(MOMENTS) == {*BEFORE_THE_JOB, *UNCARED_FOR, *SEEN_THROUGH, *ATTEMPT_LOST}


BEFORE_THE_JOB = ["run:packs-written", "run:intent-stored"]
UNCARED_FOR = ["run:job-committed", "keeper:started", "keeper:granted"]
SEEN_THROUGH = [
    "run:keeper-started",
    "keeper:attempt-ended",
    "keeper:before-end",
    "supervisor:outcome-written",
]
ATTEMPT_LOST = [
    "supervisor:started",
    "supervisor:unpacked",
    "supervisor:command-started",
    "supervisor:command-ended",
]


@pytest.mark.parametrize("moment", BEFORE_THE_JOB)
def test_killed_before_there_is_a_job(dray: Dray, fault: str, moment: str) -> None:
    assert submit(dray, moment, fault).returncode == -signal.SIGKILL
    assert listed(dray) == {}
    job = dray.run("--", sys.executable, "count.py")
    assert dray.wait(job)["state"] == "done"
    assert listed(dray) == {job: "done"}


@pytest.fixture
def held_up(dray: Dray, fault: str) -> Iterator[subprocess.Popen[str]]:
    """A ``dray run`` whose job waits for a lock, and was begun a while ago by the clock."""
    dray.wait(dray.run("--", sys.executable, "count.py"))
    with files.Lock(str(dray.jobs.parent / "queue/lock")):
        words = [sys.executable, "-m", "dray", "run", "--name", "slow", "--", "/bin/true"]
        process = subprocess.Popen(
            words, cwd=dray.project, env=dray.env, stdout=subprocess.PIPE, text=True
        )
        wait_for(lambda: list(dray.jobs.glob(".new-slow-*/job.json")))
        with sqlite3.connect(dray.home / "dray/store.db") as store:
            store.execute("UPDATE jobs SET created = created - 1000 WHERE name = 'slow'")
        store.close()
        yield process
    process.communicate(timeout=60)


def test_a_submission_that_is_still_under_way_is_not_given_up(
    dray: Dray, held_up: subprocess.Popen[str]
) -> None:
    listed(dray)  # it looks at what became of everything
    shown = dray.show("slow")
    assert (shown["state"], shown["reason"]) == ("queued", "being submitted")


def test_one_that_nobody_works_on_is(dray: Dray, held_up: subprocess.Popen[str]) -> None:
    held_up.kill()
    held_up.wait()
    listed(dray)
    assert dray("show", "slow", check=False).returncode == 3
    assert not list((dray.home / "dray/submitting").iterdir())


@pytest.mark.parametrize("moment", UNCARED_FOR)
def test_killed_with_nobody_left_to_care(dray: Dray, fault: str, moment: str) -> None:
    submit(dray, moment, fault)
    wait_for(lambda: os.path.exists(fault))
    (job,) = wait_for(lambda: listed(dray))
    wait_for(lambda: dray.show(job)["state"] == "lost")
    assert "dray resume" in dray("show", job).stdout
    other = dray.run("--", sys.executable, "count.py")  # the queue is not blocked
    assert dray.wait(other)["state"] == "done"
    dray("resume", job)
    assert dray.wait(job)["state"] == "done"
    assert (count(dray, job, "starts"), count(dray, job, "ends")) == (1, 1)


@pytest.mark.parametrize("moment", SEEN_THROUGH)
def test_killed_and_seen_through_by_the_others(dray: Dray, fault: str, moment: str) -> None:
    submit(dray, moment, fault)
    (job,) = wait_for(lambda: listed(dray))
    assert dray.wait(job)["state"] == "done"
    wait_for(lambda: os.path.exists(fault))
    assert listed(dray) == {job: "done"}
    assert (count(dray, job, "starts"), count(dray, job, "ends")) == (1, 1)
    assert dray("resume", job, check=False).returncode == 4


@pytest.mark.parametrize("moment", ATTEMPT_LOST)
def test_a_killed_supervisor_costs_one_attempt(dray: Dray, fault: str, moment: str) -> None:
    job = submit(dray, moment, fault).stdout.strip()
    shown = dray.wait(job)
    assert [one["outcome"] for one in shown["attempts"]] == ["lost", "done"]
    assert shown["state"] == "done"


@pytest.mark.parametrize("moment", MOMENTS)
def test_secrets_do_not_stay_behind(dray: Dray, fault: str, moment: str) -> None:
    flags = ("--secret", "KEY", "--", sys.executable, "count.py")
    dray("run", *flags, check=False, KEY="s3cret", DRAY_FAULT=f"{moment}@{fault}")
    for job in listed(dray):
        dray.wait(job)
    wait_for(lambda: not dray.processes())
    listed(dray)
    found = subprocess.run(["grep", "-rl", "s3cret", str(dray.home / "dray")], capture_output=True)
    assert found.stdout == b""


def test_a_killed_keeper_is_replaced_by_its_supervisor(dray: Dray, fault: str) -> None:
    """Also over the attempts that are still to come."""
    limits = ("--time", "5s", "--grace", "1s", "--checkpoint-signal", "USR1")
    job = dray.run(*limits, *RESUMABLE, "--", sys.executable, "train.py", "90", "0.1")
    command = wait_for(lambda: attempt_pid(dray, job))
    keeper = parent_of(parent_of(command))
    assert keeper == int((dray.job_dir(job) / "alive").read_text())
    os.kill(keeper, signal.SIGKILL)
    assert dray.show(job)["state"] == "running"
    shown = dray.wait(job)
    assert shown["state"] == "done"
    assert len(shown["attempts"]) >= 3


def test_keeper_and_supervisor_killed_at_once(dray: Dray, fault: str) -> None:
    flags = (*RESUMABLE, "--", sys.executable, "train.py", "40", "0.05", "--every")
    job = dray.run(*flags)
    wait_for(lambda: list((dray.job_dir(job) / "outputs").glob("ckpt_*")))
    command = wait_for(lambda: attempt_pid(dray, job))
    supervisor = parent_of(command)
    for pid in (parent_of(supervisor), supervisor):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not dray.processes())  # the command does not outlive them
    assert dray.show(job)["state"] == "lost"
    assert listed(dray) == {job: "lost"}
    dray("resume", job)
    shown = dray.wait(job)
    assert shown["state"] == "done"
    assert [one["outcome"] for one in shown["attempts"]] == ["lost", "done"]
    assert shown["attempts"][1]["from_checkpoint"] is not None


def test_strays_of_a_lost_attempt_are_ended_before_the_next(dray: Dray, fault: str) -> None:
    """A grandchild survives when the whole chain above it is killed."""
    code = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'],"
        " start_new_session=True)\n"
        "open(os.environ['DRAY_OUTPUTS'] + '/up', 'w').close()\n"
        "if os.environ['DRAY_ATTEMPT'] == '1': time.sleep(300)\n"
    )
    dray.write("stray.py", code)
    job = dray.run("--", sys.executable, "stray.py")
    wait_for(lambda: (dray.job_dir(job) / "outputs/up").exists())
    command = wait_for(lambda: attempt_pid(dray, job))
    supervisor = parent_of(command)
    for pid in (parent_of(supervisor), supervisor):
        os.kill(pid, signal.SIGKILL)
    (stray,) = wait_for(lambda: len(dray.processes()) == 1 and dray.processes())
    dray("resume", job)
    assert dray.wait(job)["state"] == "done"
    assert stray not in parents()


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_run_interrupted_at_any_moment(dray: Dray, fault: str, blow: signal.Signals) -> None:
    """Either there is a job, and it runs once, or there is none; an id printed is a job kept."""
    for delay in [0.01 * step for step in range(0, 45, 3)]:
        known = set(listed(dray))
        process = subprocess.Popen(
            [sys.executable, "-m", "dray", "run", "--", sys.executable, "count.py"],
            cwd=dray.project,
            env=dray.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay)
        process.send_signal(blow)
        printed, complaints = process.communicate(timeout=30)
        assert "group.py" not in complaints  # a traceback of ours, not of Python's own start
        new = set(listed(dray)) - known
        assert len(new) <= 1
        if printed:
            assert new == {printed.strip()}
        for job in new:
            if dray.wait(job)["state"] == "lost":  # killed before it could hand the job over
                assert blow == signal.SIGKILL
                dray("resume", job)
                dray.wait(job)
            assert dray.show(job)["state"] == "done"
            assert (count(dray, job, "starts"), count(dray, job, "ends")) == (1, 1)
    leftovers = list((dray.home / "dray/local").glob("**/*.tmp"))
    if blow == signal.SIGINT:
        assert leftovers == []
        assert not list((dray.home / "dray/local/jobs").glob(".new-*"))


def test_two_resumes_at_once_start_one_attempt(dray: Dray, fault: str) -> None:
    job = dray.run("--", sys.executable, "-c", "raise SystemExit(1)")
    dray.wait(job)
    resumes = [
        subprocess.Popen(
            [sys.executable, "-m", "dray", "resume", job],
            cwd=dray.project,
            env=dray.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(3)
    ]
    codes = sorted(process.wait() for process in resumes)
    assert codes[0] == 0
    shown = dray.wait(job)
    # One that comes when another's attempt has just ended finds nothing left to do.
    assert 2 <= len(shown["attempts"]) <= 1 + codes.count(0)
    assert shown["state"] == "failed"


def test_a_full_disk_during_the_run_is_told_truly(tmp_path: Path) -> None:
    """The command fails to write; its outcome is recorded all the same."""
    script = tmp_path / "full.sh"
    inside = tmp_path / "full"
    inside.mkdir()
    (tmp_path / "project").mkdir()
    program = f"{sys.executable} -m dray"
    script.write_text(
        f"""set -e
mount -t tmpfs -o size=8m,mode=700 none {inside}
export DRAY_HOME={inside}/dray
cd {tmp_path}/project
id=$({program} run -- /bin/sh -c 'cat /dev/zero > "$DRAY_OUTPUTS/big"; exit 9')
{program} wait --timeout 60s "$id" || true
{program} show --json "$id"
umount -l {inside}
"""
    )
    ended = subprocess.run(
        ["unshare", "-m", "sh", str(script)], capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout)
    assert (shown["state"], shown["exit_code"]) == ("failed", 9), shown["reason"]


def test_the_zipapp_runs_on_the_oldest_python(dray: Dray, tmp_path: Path) -> None:
    """A whole attempt by the node side alone, under Python 3.6 where there is one."""
    from dray.node.formats import files
    from dray.node.jobs.jobdir import JobDir
    from dray.node.schedulers.queue import Queue
    from dray.programs import shipping

    app = shipping.install(tmp_path / "root")
    job = dray.run("--", "/bin/echo", "hällo", "a b")
    dray.wait(job)
    description = json.loads((dray.job_dir(job) / "job.json").read_text())
    description["snapshot"] = None
    job_dir = JobDir(str(tmp_path / "root/jobs/old-1"))
    files.make_folder(job_dir.attempts)
    files.write_json(job_dir.job, description)
    queue = Queue(str(tmp_path / "root"))
    queue.make()
    alive = files.open_lock(job_dir.alive)
    ticket = queue.take_ticket("old-1", description["resources"])
    assert files.try_lock(alive)
    subprocess.run(
        [oldest_python(), "-I", "-S", app, "keep", job_dir.path, str(alive), str(ticket)],
        pass_fds=(alive, ticket),
        env={"LC_ALL": "C.UTF-8"},
        check=True,
    )
    os.close(alive)
    os.close(ticket)
    end = wait_for(lambda: files.read_json(job_dir.end))
    assert end["state"] == "done"
    assert Path(job_dir.attempt(1).log).read_text() == "hällo a b\n"
    wait_for(lambda: not job_dir.is_supervised())


def oldest_python() -> str:
    """The oldest interpreter of this machine that the node side must run on."""
    versions = Path.home() / ".pyenv/versions"
    for minor in range(6, 12):
        for found in sorted(versions.glob(f"3.{minor}.*/bin/python3")):
            return str(found)
    return sys.executable
