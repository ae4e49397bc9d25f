"""Work trees on a disk that others, and any job, can write to."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from dray.node.code import worktree
from dray.node.containers import local_copy
from dray.node.formats import files, leases
from dray.node.jobs.jobdir import JobDir
from tests.unit.test_hostile_files import make_job


@pytest.fixture
def job_dir(tmp_path: Path) -> JobDir:
    return make_job(tmp_path / "root", "walk-7f3k")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name in ("SLURM_TMPDIR", "PBS_JOBFS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(scratch))
    return scratch


def leave_tree(scratch: Path, mark: object, name: str = "dray-work-x") -> Path:
    """What a killed attempt leaves, with a file that its command wrote."""
    tree = scratch / name
    tree.mkdir()
    (tree / worktree.MARK).write_text(json.dumps(mark))
    at = os.stat(tree / worktree.MARK).st_ctime_ns
    while os.stat(tree / worktree.MARK).st_ctime_ns == at:  # newer than the mark is the command's
        (tree / "made").write_text("x")
        if os.stat(tree / "made").st_ctime_ns > at:
            break
    return tree


def test_a_tree_is_private_and_cannot_be_foreseen(job_dir: JobDir, scratch: Path) -> None:
    places = {worktree.place_of(job_dir, 1) for _ in range(3)}
    assert len(places) == 3
    for place in places:
        assert Path(place).parent == scratch
        assert Path(place).name.startswith("dray-work-walk-7f3k-1-")
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o700


def test_one_that_others_have_taken_is_no_hindrance(job_dir: JobDir, scratch: Path) -> None:
    """As it was called once: somebody else's file lies there."""
    (scratch / "dray-work-walk-7f3k-1").write_text("in the way")
    job_dir.work = worktree.place_of(job_dir, 1)
    worktree.prepare(job_dir, 1, {"snapshot": None, "outputs": ["logs"]})
    assert (scratch / "dray-work-walk-7f3k-1").read_text() == "in the way"
    assert os.path.islink(os.path.join(job_dir.work, "logs"))


@pytest.mark.parametrize("what", ["missing", "a file"])
def test_a_scratch_folder_that_cannot_be_used_is_done_without(
    job_dir: JobDir, scratch: Path, what: str
) -> None:
    scratch.rmdir()
    if what == "a file":
        scratch.write_text("")
    assert worktree.place_of(job_dir, 1) == os.path.join(job_dir.path, "work")


def test_what_a_killed_attempt_wrote_is_kept(job_dir: JobDir, scratch: Path) -> None:
    tree = leave_tree(scratch, [job_dir.path, 1])
    worktree.sweep(str(scratch), job_dir.root)
    assert not tree.exists()
    assert Path(job_dir.attempt(1).left, "made").exists()


def test_the_tree_of_a_removed_job_goes(job_dir: JobDir, scratch: Path) -> None:
    tree = leave_tree(scratch, [os.path.join(job_dir.root, "jobs", "gone-7f3k"), 1])
    worktree.sweep(str(scratch), job_dir.root)
    assert not tree.exists()


@pytest.mark.parametrize("number", [2, -1, 10**20, "1", None, 1.0, [1]])
def test_a_mark_of_an_attempt_that_never_was_moves_nothing(
    job_dir: JobDir, scratch: Path, number: object
) -> None:
    tree = leave_tree(scratch, [job_dir.path, number])
    worktree.sweep(str(scratch), job_dir.root)
    assert (tree / "made").exists()
    assert os.listdir(job_dir.attempts) == ["001"]


def test_nor_does_one_that_names_a_job_elsewhere(
    job_dir: JobDir, scratch: Path, tmp_path: Path
) -> None:
    other = make_job(tmp_path / "other", "walk-7f3k")
    link = Path(job_dir.root, "jobs/link-7f3k")
    link.symlink_to(other.path)
    for at, path in enumerate([other.path, str(link), f"{job_dir.path}/../../../other", "", "x"]):
        leave_tree(scratch, [path, 1], f"dray-work-{at}")
    worktree.sweep(str(scratch), job_dir.root)
    assert len(list(scratch.glob("*/made"))) == 5
    assert not os.path.exists(other.attempt(1).left)


def test_hostile_entries_hang_and_fool_nobody(
    job_dir: JobDir, scratch: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / worktree.MARK).write_text(json.dumps([job_dir.root + "/jobs/gone-1", 1]))
    (precious / worktree.HELD).write_text("")
    (scratch / "dray-work-link").symlink_to(precious)
    (scratch / "dray-work-link.box-x").symlink_to(precious)
    (scratch / "dray-work-pipe").mkdir()
    os.mkfifo(scratch / "dray-work-pipe" / worktree.MARK)
    (scratch / "dray-work-p.box-x").mkdir()
    os.mkfifo(scratch / "dray-work-p.box-x" / worktree.HELD)
    (scratch / "dray-work-l").mkdir()
    (scratch / "dray-work-l" / worktree.MARK).symlink_to(precious / worktree.MARK)
    mine = scratch / "my.box-of-things"
    mine.mkdir()
    (mine / worktree.HELD).write_text("")
    before = sorted(os.listdir(scratch))
    worktree.sweep(str(scratch), job_dir.root)
    assert sorted(os.listdir(scratch)) == before
    assert sorted(os.listdir(precious)) == sorted([worktree.MARK, worktree.HELD])


def test_a_box_that_nobody_holds_is_removed(job_dir: JobDir, scratch: Path) -> None:
    for name in ("dray-work-a-1-x.box-n1", "dray-work-a-2-x.box-n1"):
        (scratch / name).mkdir()
        (scratch / name / worktree.HELD).write_text("")
    held = files.open_lock(str(scratch / "dray-work-a-2-x.box-n1" / worktree.HELD))
    assert files.try_lock(held)
    worktree.sweep(str(scratch), job_dir.root)
    os.close(held)
    assert os.listdir(scratch) == ["dray-work-a-2-x.box-n1"]


def test_where_locks_stay_on_one_node_the_trees_of_others_are_left_alone(
    job_dir: JobDir, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To this node the locks that another one holds look free."""
    monkeypatch.setattr(leases, "mount_of", lambda _: {"kind": "beegfs", "options": ["rw"]})
    tree = leave_tree(scratch, [job_dir.path, 1])
    boxes = [Path(job_dir.path, "work.box-a"), scratch / "dray-work-x.box-a"]
    for box in boxes:
        box.mkdir()
        (box / worktree.HELD).write_text("")
    for folder in (str(scratch), job_dir.path):
        worktree.sweep(folder, job_dir.root)
    assert (tree / "made").exists()
    assert all((box / worktree.HELD).exists() for box in boxes)


def test_nodes_that_share_their_scratch_have_copies_of_their_own(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = scratch / "x.sif"
    image.write_text("image")
    copy = local_copy.LocalCopy(str(image), str(scratch))
    path = copy.take()
    assert copy.held is not None
    os.close(copy.held)  # not seen on the other node
    here = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((here.sysname, "other", *here[2:])))
    local_copy.sweep(str(scratch))
    assert os.path.exists(path)


def test_image_copies_in_a_folder_that_others_can_write_to_are_left_alone(scratch: Path) -> None:
    folder = Path(local_copy.folder_in(str(scratch)))
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "abc.users").write_text("")
    (folder / "abc.sif").write_text("x")
    local_copy.sweep(str(scratch))
    assert sorted(os.listdir(folder)) == ["abc.sif", "abc.users"]
