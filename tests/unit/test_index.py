"""What dray reads from git's index is what git reads, in every form that git gives it."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.snapshot import index, repository
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


def test_a_shared_index_that_is_missing_is_told(tmp_path: Path) -> None:
    tree = split(tmp_path)
    for shared in (tree / ".git").glob("sharedindex.*"):
        shared.unlink()
    with pytest.raises(Unreadable, match=r"sharedindex\.[0-9a-f]+ is missing"):
        tracked(index_of(tree))


def test_of_a_sparse_index_the_folders_that_are_not_there(tmp_path: Path) -> None:
    git(init(tmp_path), "sparse-checkout", "set", "--cone", "--sparse-index", "a")
    assert b"sdir" in Path(index_of(tmp_path)).read_bytes()
    assert set(tracked(index_of(tmp_path))) == {
        *(f"a/{number}.py".encode() for number in range(4)), b"a b/", "ü/".encode(),
    }  # fmt: skip


NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=6)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def index_v4(*entries: tuple[int, bytes], count: int | None = None) -> bytes:
    """Each entry: the length of its name, and how it differs from the name before it."""
    body = b"".join(bytes(60) + length.to_bytes(2, "big") + how for length, how in entries)
    count = len(entries) if count is None else count
    return b"DIRC" + (4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def test_a_long_name_that_is_repeated_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index"
    first, same = (4000, b"\0" + b"a" * 4000 + b"\0"), (4000, b"\0\0")
    path.write_bytes(index_v4(first, *[same] * 300) + bytes(20))
    assert path.stat().st_size < 25_000
    assert len(tracked(str(path))) == 301
    monkeypatch.setattr(index, "MOST", 1 << 20)
    with pytest.raises(Unreadable):
        tracked(str(path))


def test_entries_that_are_only_promised_take_no_memory() -> None:
    content = index_v4((1, b"\0a\0"), count=0xFFFFFFFF)
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable):
            index.parse(content)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_folders_that_are_named_without_end_are_not_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One name of 4,000 bytes stands for folders whose names have four million."""
    monkeypatch.setattr(repository, "MOST_NAMES", 1 << 20)
    names = [b"%d/" % number + b"a/" * 2000 + b"x" for number in range(9)]
    first = [(4003, b"\0" + names[0] + b"\0")]
    others = [(4003, b"\x9e\x23" + name + b"\0") for name in names[1:]]  # 4003 bytes are dropped
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_bytes(index_v4(*first, *others) + bytes(20))
    assert tracked(str(tmp_path / ".git/index")) == names
    found = repository.Repository(str(tmp_path), str(tmp_path / ".git")).tracked
    assert (1 << 20) <= sum(map(len, found)) < (1 << 20) + 5000


def test_a_bitmap_of_more_words_than_there_are_names_ends() -> None:
    words = [(100_000 << 33).to_bytes(8, "big")] + [b"\xff" * 8] * 100_000
    data = bytes(4) + len(words).to_bytes(4, "big") + b"".join(words)
    assert len(list(bits(data, 5))) <= 64


def test_a_bitmap_with_endless_runs_ends() -> None:
    run = (1 | 0xFFFFFFFF << 1).to_bytes(8, "big")
    assert list(bits(bytes(4) + (1).to_bytes(4, "big") + run, 5)) == [0, 1, 2, 3, 4]


def test_a_pipe_is_no_index(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "index")
    with pytest.raises(Unreadable, match="it is a named pipe"):
        tracked(str(tmp_path / "index"))
