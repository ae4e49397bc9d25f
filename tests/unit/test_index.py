"""What dray reads from git's index is what git reads, in every form that git gives it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.snapshot.index import Unreadable, bits, tracked
from tests.unit.test_ignore import fill, git

Make = Callable[[Path], Path]  # in an empty folder → the work tree to look at


def listed(tree: Path) -> list[bytes]:
    return git(tree, "ls-files", "-z", "--cached").split(b"\0")[:-1]


def index_of(tree: Path) -> str:
    return os.fsdecode(git(tree, "rev-parse", "--path-format=absolute", "--git-path", "index")[:-1])


def init(folder: Path, *words: str) -> Path:
    fill(folder, {f"{name}/{number}.py": name for name in ("a", "a b", "ü") for number in range(4)})
    git(folder, "init", "-q", *words)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x")
    return folder


def of_version(number: int) -> Make:
    def make(folder: Path) -> Path:
        git(init(folder), "update-index", f"--index-version={number}")
        return folder

    return make


def extended(folder: Path) -> Path:
    """Entries that are only announced have flags of their own."""
    fill(init(folder), {"new": "", "z": ""})
    git(folder, "add", "--intent-to-add", "new", "z")
    return folder


def extended_v4(folder: Path) -> Path:
    git(extended(folder), "update-index", "--index-version=4")
    return folder


def sha256(folder: Path) -> Path:
    return init(folder, "--object-format=sha256")


def empty(folder: Path) -> Path:
    git(init(folder, "--object-format=sha256"), "rm", "-qr", "--cached", ".")
    return folder


def without_index(folder: Path) -> Path:
    git(folder, "init", "-q")
    return folder


def unmerged(folder: Path) -> Path:
    init(folder)
    git(folder, "checkout", "-qb", "other")
    git(fill(folder, {"a/1.py": "theirs"}), "commit", "-qam", "x")
    git(folder, "checkout", "-q", "-")
    git(fill(folder, {"a/1.py": "ours"}), "commit", "-qam", "x")
    with pytest.raises(subprocess.CalledProcessError):
        git(folder, "merge", "-q", "other")
    return folder


def split(folder: Path) -> Path:
    git(init(folder), "config", "splitIndex.maxPercentChange", "100")
    git(folder, "update-index", "--split-index")
    fill(folder, {"later": "", "a/1.py": "changed", **{f"many/{n:03}": "" for n in range(200)}})
    git(folder, "add", ".")
    git(folder, "rm", "-q", "--cached", "a/2.py", "ü/3.py")
    return folder


def split_again(folder: Path) -> Path:
    """Long runs of removed entries."""
    fill(folder, {f"gone/{number:03}": "" for number in range(300)})
    git(split(folder), "update-index", "--no-split-index")
    git(folder, "add", ".")
    git(folder, "update-index", "--split-index")
    git(folder, "rm", "-qr", "--cached", "gone")
    return folder


def split_sha256(folder: Path) -> Path:
    git(sha256(folder), "update-index", "--split-index")
    git(fill(folder, {"later": ""}), "add", ".")
    return folder


def work_tree(folder: Path) -> Path:
    git(init(folder), "worktree", "add", "-q", "second")
    return folder / "second"


def submodule(folder: Path) -> Path:
    init(folder)
    other = init(folder / "elsewhere")
    git(folder, "submodule", "--quiet", "add", str(other), "sub")
    assert (folder / "sub/.git").is_file()
    return folder / "sub"


def with_submodule(folder: Path) -> Path:
    submodule(folder)
    return folder


@pytest.mark.parametrize(
    "make",
    [of_version(2), of_version(4), extended, extended_v4, sha256, empty, without_index, unmerged,
     split, split_again, split_sha256, work_tree, submodule, with_submodule],
    ids=lambda make: make.__qualname__.partition(".")[0],
)  # fmt: skip
def test_every_form_of_an_index(tmp_path: Path, make: Make) -> None:
    tree = make(tmp_path)
    found = tracked(index_of(tree))
    assert sorted(found) == sorted(listed(tree))
    assert found or make in (empty, without_index)


def test_the_forms_are_what_they_are_called(tmp_path: Path) -> None:
    """Git might do otherwise without a word, and then nothing would be tried."""
    for make, start in ((of_version(4), 4), (extended, 3), (extended_v4, 4), (of_version(2), 2)):
        (folder := tmp_path / f"{make.__qualname__}{start}").mkdir()
        assert Path(index_of(make(folder))).read_bytes()[:8] == b"DIRC\0\0\0%c" % start
    (tmp_path / "split").mkdir()
    assert b"link" in Path(index_of(split(tmp_path / "split"))).read_bytes()
    assert list((tmp_path / "split/.git").glob("sharedindex.*"))


def test_of_a_sparse_index_the_folders_that_are_not_there(tmp_path: Path) -> None:
    git(init(tmp_path), "sparse-checkout", "set", "--cone", "--sparse-index", "a")
    assert b"sdir" in Path(index_of(tmp_path)).read_bytes()
    assert set(tracked(index_of(tmp_path))) == {
        *(f"a/{number}.py".encode() for number in range(4)), b"a b/", "ü/".encode(),
    }  # fmt: skip


NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=6)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sets(NAMES.filter(lambda one: one.lower() not in (".", "..", ".git")), max_size=12),
       st.sampled_from([2, 4]), st.data())  # fmt: skip
def test_any_names(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], version: int, data: st.DataObject
) -> None:
    tree = tmp_path_factory.mktemp("tree")
    git(tree, "init", "-q")
    git(tree, "update-index", f"--index-version={version}")
    for name in names:
        folder = tree / data.draw(st.sampled_from(["", "sub", "sub/sub"]))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(name)
    git(tree, "add", "--all", "--force")
    assert sorted(tracked(index_of(tree))) == sorted(listed(tree))


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [of_version(2), of_version(4), split], ids=["2", "4", "split"])
def test_a_damaged_index_is_told_or_read_but_no_more(tmp_path: Path, make: Make) -> None:
    path = index_of(make(tmp_path))
    content = Path(path).read_bytes()
    for at in range(0, len(content), 7):
        for damaged in (content[:at], content[:at] + b"\xff\xff\xff\xff" + content[at + 4 :]):
            Path(path).write_bytes(damaged)
            try:
                tracked(path)
            except Unreadable:
                continue


def test_names_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    """Each entry of version 4 can repeat all of the name before it."""
    entries = b"".join(
        bytes(60) + min(length, 0xFFF).to_bytes(2, "big") + b"\0a\0" for length in range(1, 50_000)
    )
    path = tmp_path / "index"
    path.write_bytes(b"DIRC" + (4).to_bytes(4, "big") + (49_999).to_bytes(4, "big") + entries)
    with pytest.raises(Unreadable):
        tracked(str(path))


def test_a_bitmap_with_endless_runs_ends() -> None:
    run = (1 | 0xFFFFFFFF << 1).to_bytes(8, "big")
    assert list(bits(bytes(4) + (1).to_bytes(4, "big") + run, 5)) == [0, 1, 2, 3, 4]


def test_a_pipe_is_no_index(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "index")
    with pytest.raises(Unreadable, match="it is a named pipe"):
        tracked(str(tmp_path / "index"))
