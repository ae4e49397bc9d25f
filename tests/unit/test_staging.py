"""What is written aside comes into place whole; what a kill leaves there is removed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.node.formats import files
from dray.node.jobs import arrays, staging
from dray.node.jobs.arrays import ArrayDir
from dray.node.jobs.jobdir import JobDir
from dray.node.root.root import Root

# Writes a job's directory, and is killed at the Nth call that changes anything on the disk.
WRITE = """
import os, signal, sys
from dray.node.formats import files; from dray.node.jobs import arrays
from dray.node.jobs.arrays import ArrayDir
from dray.node.jobs.jobdir import JobDir

left = int(sys.argv[3])

def counted(real):
    def act(*words, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words, **more)
    return act

for name in ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "link", "close", "write"):
    setattr(os, name, counted(getattr(os, name)))
job_dir = JobDir(sys.argv[2])
contents = {"secrets.json": b'{"KEY": "s3cret"}', "job.json": b"{}", "batch.sh": b"x"}
getattr(arrays, sys.argv[1])(job_dir, contents, None)
left = 0
"""


def write(how: str, job_dir: JobDir, step: int) -> int:
    words = [sys.executable, "-c", WRITE, how, job_dir.path, str(step)]
    return subprocess.run(words, check=False, timeout=60).returncode


def look(root: Path) -> list[str]:
    """As status does; returns where the secret lies then."""
    jobs = str(root / "jobs")
    staging.sweep(jobs, files.all_names_in(jobs), thoroughly=False)
    found = [path for path in root.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    return [str(path.relative_to(root)) for path in found]


@pytest.mark.parametrize("how", ["write_directory", "rewrite"])
def test_secrets_do_not_outlive_a_kill_outside_of_a_job(tmp_path: Path, how: str) -> None:
    job_dir = JobDir(str(tmp_path / "jobs/walk-7f3k"))
    for step in range(1, 200):
        files.remove_tree(str(tmp_path / "jobs"))
        os.makedirs(job_dir.path if how == "rewrite" else tmp_path / "jobs")
        code = write(how, job_dir, step)
        assert look(tmp_path) in ([], ["jobs/walk-7f3k/secrets.json"])
        whole = os.path.exists(job_dir.secrets)
        assert not whole or os.path.exists(job_dir.job)
        # Before its lock's file says who holds it, nothing tells that a folder's writer is gone.
        inside = {path.name for path in (tmp_path / "jobs").glob(".new-*/*")}
        assert inside <= {".writing"}
        if code == 0:
            break
        assert code == -signal.SIGKILL
    else:
        raise AssertionError("it never came to its end")
    assert whole
    assert step > 15


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    with staging.New(str(tmp_path), "walk-7f3k") as new:
        new.write({"secrets.json": b"s3cret"})
        for age in (0, 3600):  # it may have to wait for somebody
            at = os.stat(new.path).st_mtime - age
            os.utime(new.path, (at, at))
            staging.sweep(str(tmp_path), os.listdir(tmp_path))
            assert os.path.exists(os.path.join(new.path, "secrets.json"))
        new.become(str(tmp_path / "walk-7f3k"))
    assert (tmp_path / "walk-7f3k/secrets.json").exists()


@pytest.mark.parametrize(("age", "stays"), [(0, True), (3600, False)])
def test_what_another_machine_wrote_is_removed_after_a_while(
    tmp_path: Path, age: int, stays: bool
) -> None:
    """Its lock may not be seen here."""
    folder = tmp_path / ".new-walk-7f3k-x"
    folder.mkdir()
    (folder / ".writing").write_text("another-host")
    at = os.stat(folder).st_mtime - age
    os.utime(folder, (at, at))
    staging.sweep(str(tmp_path), os.listdir(tmp_path))
    assert folder.exists() == stays


def test_hostile_leftovers_hang_nobody(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secrets.json").write_text("kept")
    os.mkfifo(tmp_path / ".gone-pipe")
    (tmp_path / ".new-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".new-x").mkdir()
    os.mkfifo(tmp_path / ".new-x/.writing")
    (tmp_path / ".new-file").write_text("")
    staging.sweep(str(tmp_path), os.listdir(tmp_path))
    assert not (tmp_path / ".gone-pipe").exists()
    assert (tmp_path / "elsewhere/secrets.json").exists()


REMOVE = (
    WRITE.partition("job_dir =")[0]
    + "from dray.node.jobs import staging\nstaging.remove(sys.argv[2])"
)


def test_a_directory_is_removed_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    for step in range(1, 200):
        job = tmp_path / "jobs/walk-7f3k"
        job.mkdir(parents=True, exist_ok=True)
        for name in ("job.json", "a", "b"):
            (job / name).write_text("x")
        (job / "secrets.json").write_text("s3cret")
        words = [sys.executable, "-c", REMOVE, "x", str(job), str(step)]
        code = subprocess.run(words, check=False, timeout=60).returncode
        if job.exists():
            assert len(list(job.iterdir())) == 4
        else:
            assert look(tmp_path) == []
        if code == 0:
            break
    assert step > 4
    staging.sweep(str(tmp_path / "jobs"), os.listdir(tmp_path / "jobs"))
    assert list((tmp_path / "jobs").iterdir()) == []


def test_an_arrays_secrets_are_swept_too(tmp_path: Path) -> None:
    array = ArrayDir(str(tmp_path), "sweep-a")
    os.makedirs(os.path.dirname(array.path))
    arrays.write_directory(array, {"job.json": b"{}", "secrets.json": b"{}"}, None)
    assert sorted(os.listdir(array.path)) == ["job.json", "secrets.json"]


# -- the lock -------------------------------------------------------------------------------------


def test_a_lock_whose_file_was_removed_lets_only_one_in(tmp_path: Path) -> None:
    """One waits on the file that its holder removes; a third one makes a new file."""
    path = str(tmp_path / "lock")
    enter = (
        "import sys, time\nfrom dray.node.formats import files\n"
        "with files.Lock(sys.argv[1]):\n"
        "    print('in', flush=True)\n    sys.stdin.read()\n"
    )
    first = files.Lock(path)
    first.take()
    waiting = subprocess.Popen(
        [sys.executable, "-c", enter, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        while f"-> FLOCK  ADVISORY  WRITE {waiting.pid} " not in Path("/proc/locks").read_text():
            assert waiting.poll() is None
        third = files.Lock(path)
        files.remove(path)
        assert third.take(wait=False)
        first.__exit__()
        assert not is_in(waiting)
        third.__exit__()
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"in\n"
    finally:
        waiting.communicate(timeout=30)


def is_in(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 1.0)[0])


def test_what_cannot_be_removed_is_not_said_where_answers_are_written(tmp_path: Path) -> None:
    """The agent's answers, and the id that ``dray run`` prints, go to the same place as notes."""
    code = (
        "import os, sys\nfrom dray.node.formats import files; from dray.node.jobs import staging\n"
        "def refuse(*_, **__):\n    raise OSError(5, 'Input/output error')\n"
        "os.unlink = os.open = refuse\n"
        "files.discard(sys.argv[1])\nstaging.sweep(sys.argv[1], ['.new-x', '.gone-x'])\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    ended = subprocess.run(words, check=True, capture_output=True, timeout=60)
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_what_killed_probes_of_the_root_have_left_goes(tmp_path: Path) -> None:
    """Not what is being looked at just now, nor anything else that lies there."""
    names = [".clock-old", ".link-probe-old", ".link-probe-old.too", ".lock-probe-old"]
    kept = [".clock-new", ".lock-probe-held", ".other", "queue.json.lock"]
    for name in [*names, *kept]:
        (tmp_path / name).touch()
        if not name.endswith("new"):
            os.utime(tmp_path / name, (1, 1))
    with files.Lock(str(tmp_path / ".lock-probe-held")):
        Root(str(tmp_path)).tidy()
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
