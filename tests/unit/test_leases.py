"""Leases, where the file system has no locks. The file system is a real one: in the processes of
these tests, fcntl.flock is made to refuse, as Lustre's does when it is mounted without flock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.node.agent import site, status
from dray.node.attempt import attempt_lock as attempt_locks
from dray.node.containers import converting
from dray.node.containers.images import Images
from dray.node.formats import files, leases
from dray.node.formats.leases import Lease
from dray.node.jobs import staging
from dray.node.jobs.jobdir import JobDir
from dray.node.root.submission import Submission, being_submitted, submission_lock
from tests.conftest import wait_for
from tests.unit.test_hostile_files import make_agent, make_job

REFUSE = """
import errno, fcntl, os, sys, time

def refuse(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

fcntl.flock = refuse
"""


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(files.Lock, "leased", False)


def start(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", REFUSE + code, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


COUNT = """
from dray.node.formats import files
for _ in range(20):
    with files.Lock(sys.argv[1] + ".lock"):
        number = int(open(sys.argv[1]).read())
        time.sleep(0.001)
        open(sys.argv[1], "w").write(str(number + 1))
"""


def test_a_critical_section_stays_one_without_locks(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    counting = [start(COUNT, str(tmp_path / "count")) for _ in range(3)]
    for one in counting:
        one.communicate(timeout=100)
    assert [one.returncode for one in counting] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "60"
    assert sorted(os.listdir(tmp_path)) == ["count", "count.lock"]


HOLD = """
from dray.node.formats import files
with files.Lock(sys.argv[1]):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.mark.usefixtures("without_locks")
def test_the_lease_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    holder = start(HOLD, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    assert not files.Lock(path).take(wait=False)
    assert files.is_locked(path)
    holder.kill()
    holder.wait()
    assert not files.is_locked(path)
    with files.Lock(path):
        pass
    holder.communicate()


# A container may have its node's name, but its processes have numbers of their own.
@pytest.mark.parametrize("host", ["another-node", f"{os.uname().nodename} pid:[1]"])
@pytest.mark.parametrize(("idle", "free"), [(0, False), (30, False), (90, True)])
def test_one_of_another_node_is_free_once_it_is_not_renewed(
    tmp_path: Path, host: str, idle: int, free: bool
) -> None:
    path = tmp_path / "alive.lease"
    path.write_text(json.dumps({"host": host, "pid": 1, "started": "1"}))
    at = os.stat(path).st_mtime - idle
    os.utime(path, (at, at))
    lease = Lease(str(tmp_path / "alive"))
    assert lease.take() == free
    assert lease.is_mine() == free


def test_a_lease_that_was_taken_meanwhile_is_not_stolen(tmp_path: Path) -> None:
    first, second = Lease(str(tmp_path / "alive")), Lease(str(tmp_path / "alive"))
    assert first.take()
    second._steal(b"what was found free", second._now())
    assert first.is_mine()
    assert not second.take()
    assert os.listdir(tmp_path) == ["alive.lease"]


def age(path: str, seconds: float = 100) -> None:
    at = os.stat(path).st_mtime - seconds
    os.utime(path, (at, at))


def test_a_lease_that_is_renewed_at_that_moment_is_not_stolen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Lease(str(tmp_path / "alive")), Lease(str(tmp_path / "alive"))
    assert first.take()
    age(first.path)
    rename = os.rename

    def renew_then_rename(old: str, new: str) -> None:
        assert first.renew()
        rename(old, new)

    monkeypatch.setattr(os, "rename", renew_then_rename)
    assert not second.take()
    assert first.is_mine()
    assert os.listdir(tmp_path) == ["alive.lease"]


@pytest.mark.parametrize("content", ["", "[]", "[1]", "null", '{"host": 3, "pid": "x"}', "\xff"])
def test_junk_in_its_place_is_free_after_a_while(tmp_path: Path, content: str) -> None:
    path = tmp_path / "alive.lease"
    path.write_text(content)
    assert not Lease(str(tmp_path / "alive")).take()
    at = os.stat(path).st_mtime - 100
    os.utime(path, (at, at))
    assert Lease(str(tmp_path / "alive")).take()


KEEP = """
from dray.node.formats import leases
leases.RENEWAL = 0.05
lease = leases.Lease(sys.argv[1])
assert lease.take()
lease.keep()
print("kept", flush=True)
sys.stdin.read()
"""


def test_the_lease_of_a_lock_is_renewed_while_it_is_held(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    code = "from dray.node.formats import leases\nleases.RENEWAL = 0.05\n"
    holder = start(code + HOLD, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    age(path + leases.ENDING)
    wait_for(lambda: files.is_locked(path))
    holder.communicate("")
    assert not files.is_locked(path)


def test_whoever_lost_his_lease_does_not_go_on_beside_the_next(tmp_path: Path) -> None:
    path = tmp_path / "alive.lease"
    holder = start(KEEP, str(tmp_path / "alive"))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "kept\n"
    os.utime(path, (1, 1))
    wait_for(lambda: os.stat(path).st_mtime > 1)  # it is renewed
    files.write_json(str(path), {"host": "another-node"})
    assert holder.wait(timeout=30) == -signal.SIGKILL
    holder.communicate()


# -- an attempt --------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_locks")
def test_a_second_attempt_does_not_run_beside_one_that_beats_on_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_locks, "LOCK_PATIENCE", -leases.AGE)
    job_dir = make_job(tmp_path, "walk-7f3k")
    path = Path(job_dir.alive + leases.ENDING)
    path.write_text(json.dumps({"host": "another-node", "pid": 1, "started": "1"}))
    attempt_lock = attempt_locks.AttemptLock(job_dir)
    with pytest.raises(SystemExit, match="still running"):
        attempt_lock.take()
    at = os.stat(path).st_mtime - 100
    os.utime(path, (at, at))
    attempt_lock.take()
    assert job_dir.is_supervised()
    attempt_lock.leave()
    assert not path.exists()


def test_locks_that_only_this_node_sees_take_a_lease_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.Lock, "leased", False)
    monkeypatch.setattr(leases, "mount_of", lambda _: {"kind": "beegfs", "options": ["rw"]})
    job_dir = make_job(tmp_path, "walk-7f3k")
    attempt_lock = attempt_locks.AttemptLock(job_dir)
    attempt_lock.take()
    assert os.path.exists(job_dir.alive + leases.ENDING)
    attempt_lock.leave()
    with files.Lock(str(tmp_path / "lock")):
        assert os.path.exists(tmp_path / "lock.lease")


@pytest.mark.usefixtures("without_locks")
def test_a_job_is_written_and_swept_without_locks(tmp_path: Path) -> None:
    with staging.New(str(tmp_path), "walk-7f3k") as new:
        new.write({"secrets.json": b"s3cret"})
        staging.sweep(str(tmp_path), os.listdir(tmp_path))
        assert os.path.exists(new.path)
        os.utime(new.path, (1, 1))
        staging.sweep(str(tmp_path), os.listdir(tmp_path))
        assert not os.path.exists(new.path)


SUBMIT = """
from dray.node.jobs.jobdir import JobDir
from dray.node.root.submission import Submission
with Submission(JobDir(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.mark.usefixtures("without_locks")
def test_a_submission_outlives_its_agent_for_a_while(tmp_path: Path) -> None:
    """The scheduler's command may still be running."""
    job_dir = make_job(tmp_path, "walk-7f3k")
    holder = start(SUBMIT, job_dir.path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    holder.kill()
    holder.communicate()
    assert being_submitted(job_dir)
    assert not Submission(job_dir).take(wait=False)
    age(submission_lock(job_dir) + leases.ENDING)
    assert not being_submitted(job_dir)
    with Submission(job_dir):
        pass
    assert os.listdir(tmp_path / "jobs") == ["walk-7f3k"]


@pytest.mark.usefixtures("without_locks")
def test_the_lease_of_a_submission_under_way_is_not_swept(tmp_path: Path) -> None:
    job_dir = make_job(tmp_path, "walk-7f3k")
    jobs = str(tmp_path / "jobs")
    with Submission(job_dir) as lock:
        staging.sweep(jobs, os.listdir(jobs))
        assert lock.lease is not None
        assert lock.lease.is_mine()
    assert os.listdir(jobs) == ["walk-7f3k"]
    for ending in (".lease", ".lease.1f.new", ".lease.1f.old"):  # of one that was killed
        Path(lock.path + ending).write_text("{}")
        os.utime(lock.path + ending, (1, 1))
    staging.sweep(jobs, os.listdir(jobs))
    assert os.listdir(jobs) == ["walk-7f3k"]


@pytest.mark.usefixtures("without_locks")
def test_an_image_is_removed_without_locks_unless_it_is_being_made(tmp_path: Path) -> None:
    images, digest = Images(str(tmp_path)), "5" * 64
    with images.lock(digest):
        assert not images.remove(digest)
    Path(images.folder, digest + ".sif").write_text("x")
    assert images.remove(digest)
    assert os.listdir(images.folder) == [".lock-" + digest]


def test_an_image_is_converted_under_a_lease_where_locks_stay_on_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.Lock, "leased", False)
    monkeypatch.setattr(leases, "mount_of", lambda _: {"kind": "beegfs", "options": ["rw"]})
    monkeypatch.setenv("DRAY_OUTPUTS", str(tmp_path / "jobs/convert-1/outputs"))
    leased = []

    def look(images: Images, image: str) -> None:
        with images.lock(image) as lock:
            leased.append(lock.lease is not None)

    monkeypatch.setattr(converting, "convert", look)
    assert converting.main("5" * 64) == 0
    assert leased == [True]


@pytest.mark.usefixtures("without_locks")
def test_status_is_told_without_locks(tmp_path: Path) -> None:
    make_job(tmp_path, "walk-7f3k")
    (row,) = status.status(make_agent(tmp_path), {"ids": ["walk-7f3k"]})["jobs"]
    assert row["state"] == "lost"


# -- what is found out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "local"),
    [
        ("lustre", "rw,flock,user_xattr", False),
        ("lustre", "rw,localflock", True),
        ("lustre", "rw,noflock", True),
        ("beegfs", "rw,relatime", True),
        ("nfs", "rw,vers=3,nolock", True),
        ("nfs", "rw,vers=3,local_lock=none", False),
        ("nfs4", "rw,local_lock=flock", True),
        ("ext4", "rw", False),
    ],
)
def test_what_a_mount_says_of_its_locks(kind: str, options: str, local: bool) -> None:
    assert leases.keeps_locks_to_itself(kind, options.split(",")) == local


def test_locks_that_work_are_found_to(tmp_path: Path) -> None:
    found = leases.facts(str(tmp_path))
    assert (found["work"], found["only_here"]) == (True, False)
    assert found["file_system"]
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("without_locks")
def test_locks_that_are_refused_are_found_out(tmp_path: Path) -> None:
    assert leases.facts(str(tmp_path))["work"] is False
    assert site.probe(make_agent(tmp_path), {})["locks"]["work"] is False
    assert JobDir(str(tmp_path)).is_supervised() is False
