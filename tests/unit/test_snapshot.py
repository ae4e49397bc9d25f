"""A snapshot is the tree as it is on disk, and taking it again costs next to nothing."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.errors import SnapshotError
from dray.job.model import Snapshot
from dray.node.code.packs import Packs, entries
from dray.snapshot import ChangedSince, Scanner, index, write_snapshot
from dray.snapshot.scan import UNSURE_NS

HUGE = 1 << 40
QUICK = settings(max_examples=25, suppress_health_check=list(HealthCheck))


def silent(done: int, total: int) -> None:
    pass


def scanner(tree: Path, cache: Path, *outputs: str, max_size: int = HUGE) -> Scanner:
    return Scanner(tree, outputs, cache, max_size)


def anew(tree: Path) -> Snapshot:
    """As taken by somebody who remembers nothing."""
    return scanner(tree, Path("/nonexistent")).take(remember=False)


def reads(one: Scanner) -> tuple[str, int]:
    """The snapshot, and how many files were read for it."""
    calls: list[int] = []
    snapshot = one.take(lambda done, total: calls.append(done))
    return snapshot.id, len(calls)


def paths(snapshot: Snapshot) -> dict[bytes, str]:
    return {entry.path: entry.kind for entry in entries(snapshot.manifest)}


def fill(folder: Path, tree: dict[str, str]) -> Path:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def describe(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """All there is: path → kind and content; folders where they are empty."""
    found: dict[bytes, tuple[str, bytes]] = {}
    top = os.fsencode(folder)
    for place, folders, names in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        if not folders and not names and place != top:
            found[os.path.relpath(place, top)] = ("d", b"")
        for name in names + links:
            path = os.path.join(place, name)
            if os.path.islink(path):
                what = ("l", os.readlink(path))
            else:
                kind = "x" if os.stat(path).st_mode & 0o111 else "f"
                with open(path, "rb") as file:
                    what = (kind, file.read())
            found[os.path.relpath(path, top)] = what
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def round_trip(tree: Path, place: Path) -> None:
    snapshot = anew(tree)
    write_snapshot(str(place / "root"), snapshot, silent)
    target = place / "target"
    target.mkdir()
    Packs(str(place / "root")).unpack(snapshot.id, str(target))
    assert describe(target) == describe(tree)


# -- what is taken --------------------------------------------------------------------------------


def test_everything_comes_back(tree: Path, tmp_path: Path) -> None:
    fill(tree, {"a.py": "print(1)\n", "x/y/z.txt": "", "x/same": "1", "x/same again": "1"})
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "empty" / "emptier").mkdir(parents=True)
    (tree / "link").symlink_to("a.py")
    (tree / "x" / "broken").symlink_to("nowhere")
    (tree / "to folder").symlink_to("x")
    (tree / "big").write_bytes(random.Random(1).randbytes(9 << 20))
    round_trip(tree, tmp_path)


def test_a_folder_of_which_everything_is_left_out_is_an_empty_one(tree: Path) -> None:
    fill(tree, {".gitignore": "*.log\n", "logs/a.log": "", "envs/one/pyvenv.cfg": ""})
    assert paths(anew(tree)) == {b".gitignore": "f", b"logs": "d", b"envs": "d"}


NAMES = (
    st.binary(min_size=1, max_size=40).filter(lambda name: not {0, ord("/")} & set(name))
    | st.text(min_size=1, max_size=20).map(lambda name: name.encode("utf-8", "surrogatepass"))
    | st.sampled_from([b"-rf", b"a\nb", b" ", b"\xff\xfe", b"...", b"f - 0 x", b"n" * 255])
)
ODD = NAMES.filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
).filter(lambda name: name not in (b".git", b".gitignore", b".drayignore", b"pyvenv.cfg"))


@QUICK
@given(st.lists(st.lists(ODD, min_size=1, max_size=3), max_size=6), st.binary(max_size=9))
def test_any_name_that_the_file_system_allows(found: list[list[bytes]], content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for parts in found:
            path = os.path.join(os.fsencode(tree), *parts)
            with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(content)
        round_trip(tree, Path(folder))


def test_the_same_tree_is_the_same_snapshot_wherever_it_lies(tmp_path: Path) -> None:
    content = {"b": "1", "a/b": "2", "a/a": "3", "ab": "4"}
    one = fill(tmp_path / "one", content)
    two = fill(tmp_path / "two", dict(reversed(content.items())))
    assert anew(one).id == anew(two).id
    assert anew(one).manifest == anew(two).manifest
    (two / "a" / "a").chmod(0o755)
    assert anew(one).id != anew(two).id


def test_size_and_count(tree: Path) -> None:
    fill(tree, {"a": "12345", "x/b": "123", "x/.gitignore": "out\n", "x/out": "1" * 999})
    snapshot = anew(tree)
    assert (snapshot.size, snapshot.files) == (5 + 3 + 4, 3)


def test_a_socket_and_a_pipe_are_left_out_with_a_word(tree: Path) -> None:
    fill(tree, {"a": ""})
    os.mkfifo(tree / "pipe")
    here = os.open(".", os.O_RDONLY)
    os.chdir(tree)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
    finally:
        os.fchdir(here)
        os.close(here)
    snapshot = anew(tree)
    assert paths(snapshot) == {b"a": "f"}
    assert snapshot.warnings == (
        "left out: pipe is a named pipe, not a file",
        "left out: socket is a socket, not a file",
    )


def test_links_that_lead_out_are_taken_with_a_warning(tree: Path, cache: Path) -> None:
    fill(tree, {"x/a": "", "..odd": ""})
    inside = {"fine": "x/a", "x/up": "../x/a", "x/odd": "../..odd", "x/top": ".."}
    outside = {"abs": "/etc", "x/out": "../../tree/x/a", "up": "..", "x/far": "../../../etc"}
    for name, target in {**inside, **outside}.items():
        (tree / name).symlink_to(target)
    one = scanner(tree, cache)
    for snapshot in (one.take(), one.take()):  # what is remembered warns as well
        warned = {warning.split()[0] for warning in snapshot.warnings}
        assert warned == set(outside)
    assert "(to /etc)" in snapshot.warnings[0]
    assert all(kind == "l" for path, kind in paths(snapshot).items() if path == b"abs")


# -- what is refused ------------------------------------------------------------------------------


@contextlib.contextmanager
def ordinary_user() -> Iterator[Path]:
    """Not root for a while, with a folder that an ordinary user can reach."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(place, 65534, 65534)
        os.seteuid(65534)
    try:
        yield place
    finally:
        for folder, _, _ in os.walk(place):
            os.chmod(folder, 0o700)
        if is_root:
            os.seteuid(0)
        shutil.rmtree(place)


def test_a_file_that_cannot_be_read() -> None:
    with ordinary_user() as place:
        fill(place, {"x/secret [1]": ""})
        (place / "x" / "secret [1]").chmod(0)
        with pytest.raises(SnapshotError, match="cannot be read") as caught:
            anew(place)
        assert caught.value.message.startswith("x/secret [1] ")
        assert caught.value.hint.endswith(r": /x/secret \[1]")
        (place / ".drayignore").write_text(caught.value.hint.rpartition(": ")[2])
        assert paths(anew(place)) == {b".drayignore": "f", b"x": "d"}


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_a_folder_that_cannot_be_read(mode: int) -> None:
    with ordinary_user() as place:
        fill(place, {"x/y/a": "", "b": ""})
        one = scanner(place, place / "x" / "cache")
        one.take(remember=False)
        (place / "x" / "y").chmod(mode)
        with pytest.raises(SnapshotError, match=r"^x/y cannot be read"):
            one.take(remember=False)


def test_a_tree_that_is_too_big_says_what_to_leave_out(tree: Path, cache: Path) -> None:
    fill(
        tree, {"src/a.py": "1" * 100, "src/b.py": "1" * 100, "src/data/raw/note": "", "weights": ""}
    )
    fill(tree, {"weights.bin": "", "src/data/raw/part": ""})
    for name, size in {"src/data/raw/note": 5 << 30, "src/data/raw/part": 5 << 30}.items():
        os.truncate(tree / name, size)
    os.truncate(tree / "weights", 2 << 30)
    os.truncate(tree / "weights.bin", 1 << 30)
    one = scanner(tree, cache, max_size=1 << 30)
    with pytest.raises(SnapshotError) as caught:
        one.take()
    lines = caught.value.message.splitlines()
    assert "13" in lines[0]
    # The code beside the data is not to be left out with it.
    assert [line.split()[-1] for line in lines[1:4]] == ["src/data/raw/", "weights", "weights.bin"]
    assert "in .drayignore, such as /src/data/raw/ " in caught.value.hint
    assert not cache.exists()
    fill(tree, {".drayignore": "/src/data/raw/\n/weights*\n"})
    assert b"src/a.py" in paths(one.take())


def test_many_small_files_can_be_too_big_as_well(tree: Path) -> None:
    fill(tree, {f"f{number}": "1" * 100 for number in range(40)})
    with pytest.raises(SnapshotError, match="biggest parts"):
        scanner(tree, tree, max_size=1000).take(remember=False)


def test_drayignore_is_not_advised_without_saying_that_gitignore_then_ends(tree: Path) -> None:
    fill(tree, {"a": "1" * 100, ".gitignore": "b\n"})
    with pytest.raises(SnapshotError) as caught:
        scanner(tree, tree, max_size=10).take(remember=False)
    assert "takes the place of .gitignore" in caught.value.hint


def test_the_whole_disk_or_home_is_no_project(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path)
    for root in (Path("/"), tmp_path, tmp_path / "link", tmp_path / "x" / ".."):
        with pytest.raises(SnapshotError, match="is not a project") as caught:
            scanner(root, cache).take()
        assert "--no-snapshot" in caught.value.hint
    with pytest.raises(SnapshotError, match="is not a folder"):
        scanner(tmp_path / "missing", cache).take()


WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
print("writing", flush=True)
while True:
    os.pwrite(fd, os.urandom(8), 0)
"""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Another process writes to the file again and again."""
    command = [sys.executable, "-I", "-S", "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            yield
        finally:
            writer.kill()


def test_a_file_that_changes_while_it_is_read(tree: Path, cache: Path) -> None:
    fill(tree, {"a": "", "log *.txt": ""})
    os.truncate(tree / "log *.txt", 64 << 20)
    with writing(tree / "log *.txt"), pytest.raises(SnapshotError) as caught:
        scanner(tree, cache).take()
    assert caught.value.message == "log *.txt changes while it is read"
    assert "--output" in caught.value.hint
    assert caught.value.hint.endswith(r": /log \*.txt")
    assert not cache.exists()


def test_files_that_come_and_go_are_no_obstacle(tree: Path, cache: Path) -> None:
    """An editor's and a trainer's temporary files: what stays is taken."""
    fill(tree, {f"x{number}/kept": "1" for number in range(30)})
    script = (
        "import os, sys; os.chdir(sys.argv[1]); print(1, flush=True)\n"
        "while True:\n open('x7/tmp', 'w').close(); os.unlink('x7/tmp')"
    )
    one = scanner(tree, cache)
    command = [sys.executable, "-I", "-S", "-c", script, str(tree)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            taken = []
            for _ in range(30):
                with contextlib.suppress(SnapshotError):  # thrice in a row is possible, not usual
                    taken.append(one.take())
        finally:
            writer.kill()
    assert taken
    (tree / "x7" / "tmp").unlink(missing_ok=True)
    for snapshot in taken:
        assert set(paths(anew(tree))) <= set(paths(snapshot))


@pytest.mark.parametrize("edit", ["rewrite", "remove", "folder", "link"])
def test_a_big_file_that_changes_before_it_is_packed(tree: Path, tmp_path: Path, edit: str) -> None:
    fill(tree, {"a": "1", "big": ""})
    os.truncate(tree / "big", 5 << 20)  # too big to be kept in memory
    snapshot = anew(tree)
    if edit == "rewrite":
        (tree / "big").write_bytes(b"1" * (5 << 20))
    else:
        (tree / "big").unlink()
    if edit == "folder":
        (tree / "big").mkdir()
    if edit == "link":
        (tree / "big").symlink_to("a")
    root = tmp_path / "root"
    with pytest.raises(ChangedSince, match=r"^big") as caught:
        write_snapshot(str(root), snapshot, silent)
    assert caught.value.transient
    assert os.listdir(root / "snapshots") == []
    assert os.listdir(root / "packs") == ["lock"]


# -- what is remembered ---------------------------------------------------------------------------

START = {
    "a": "aaaa",
    "b": "bbbb",
    "x/a": "cccc",
    "x/y/a": "dddd",
    "x/y/b.log": "eeee",
    "env/code.py": "ffff",
    "venv/pyvenv.cfg": "",
    "venv/code.py": "gggg",
    ".gitignore": "*.tmp\n",
    "x/y/.gitignore": "# nothing\n",
    "z.tmp": "hhhh",
    "x/same.tmp": "",
    "nested/deep/c.tmp": "iiii",
}


def swap(tree: Path) -> None:
    (tree / "a").rename(tree / "c")
    (tree / "b").rename(tree / "a")
    (tree / "c").rename(tree / "b")


def folder_to_file(tree: Path) -> None:
    shutil.rmtree(tree / "x" / "y")
    (tree / "x" / "y").write_text("now a file")


def file_to_folder(tree: Path) -> None:
    (tree / "a").unlink()
    fill(tree, {"a/inside": ""})


def same_size_and_time(tree: Path) -> None:
    before = os.stat(tree / "a")
    (tree / "a").write_text("AAAA")
    os.utime(tree / "a", ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_folder(tree: Path) -> None:
    fill(tree / "new", {"a": "CCCC", "y/a": "DDDD"})
    (tree / "x").rename(tree.parent / f"{tree.name}-old")
    (tree / "new").rename(tree / "x")


CHANGES: dict[str, Callable[[Path], object]] = {
    "same size edit": lambda tree: (tree / "x" / "y" / "a").write_text("DDDD"),
    "same size and time": same_size_and_time,
    "appended": lambda tree: (tree / "a").write_text("aaaaa"),
    "executable": lambda tree: (tree / "a").chmod(0o755),
    "renamed": lambda tree: (tree / "a").rename(tree / "c"),
    "moved": lambda tree: (tree / "a").rename(tree / "x" / "y" / "c"),
    "swapped": swap,
    "added": lambda tree: fill(tree, {"x/y/new": ""}),
    "added folder": lambda tree: (tree / "x" / "new").mkdir(),
    "removed": lambda tree: (tree / "x" / "a").unlink(),
    "removed folder": lambda tree: shutil.rmtree(tree / "x"),
    "folder renamed": lambda tree: (tree / "x").rename(tree / "xx"),
    "folder replaced": replace_folder,
    "folder to file": folder_to_file,
    "file to folder": file_to_folder,
    "file to link": lambda tree: ((tree / "a").unlink(), (tree / "a").symlink_to("b")),
    "rule changed": lambda tree: (tree / ".gitignore").write_text("*.log\n"),
    "rule emptied": lambda tree: (tree / ".gitignore").write_text(""),
    "rule removed": lambda tree: (tree / ".gitignore").unlink(),
    "nested rule changed": lambda tree: (tree / "x/y/.gitignore").write_text("*.log\n   \n"),
    "nested rule added": lambda tree: fill(tree, {"x/.gitignore": "*.log\n"}),
    "nested rule removed": lambda tree: (tree / "x/y/.gitignore").unlink(),
    "drayignore added": lambda tree: fill(tree, {".drayignore": "b\n"}),
    "became an environment": lambda tree: fill(tree, {"env/pyvenv.cfg": ""}),
    "became outputs": lambda tree: fill(tree, {"x/y/.dray-outputs": ""}),
    "environment no more": lambda tree: (tree / "venv" / "pyvenv.cfg").unlink(),
    "rules of the clone": lambda tree: fill(tree, {".git/info/exclude": "b\n"}),
    "became a repository": lambda tree: (tree / "x" / ".git").mkdir(),
    "repository no more": lambda tree: (tree / "nested" / ".git").rmdir(),
    "rules of a nested clone": lambda tree: fill(tree, {"nested/.git/info/exclude": "c.*\n"}),
}
KEPT = ["unchanged", "remember nothing", "unreadable memory", *CHANGES]


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scanner]:
    """A tree for each change, old enough that what was read of it is believed."""
    place = tmp_path_factory.mktemp("settled")
    found = {}
    for name in KEPT:
        tree = fill(place / name, START)
        (tree / "empty").mkdir()
        (tree / "nested" / ".git").mkdir()
        (tree / "link").symlink_to("a")
        found[name] = scanner(tree, place / "cache")
        found[name].take()
    time.sleep(UNSURE_NS / 1e9 + 0.1)
    for one in found.values():
        assert reads(one)[1] == 10  # too fresh to be believed: read once more
    return found


def test_an_unchanged_tree_is_not_read_again(settled: dict[str, Scanner]) -> None:
    one = settled["unchanged"]
    before = one.cache.stat()
    first = one.take()
    assert reads(one) == (first.id, 0)
    assert first.contents == {}
    assert first.manifest == anew(one.root).manifest
    assert (first.size, first.files) == (anew(one.root).size, anew(one.root).files)
    assert one.cache.stat() == before or one.cache.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(settled: dict[str, Scanner], change: str) -> None:
    one = settled[change]
    before, count = reads(one)
    assert count == 0
    CHANGES[change](one.root)
    expected = anew(one.root)
    assert expected.id != before
    again = one.take(remember=False)
    assert (again.id, again.manifest) == (expected.id, expected.manifest)
    assert (again.size, again.files) == (expected.size, expected.files)
    assert again.warnings == expected.warnings
    kept = one.take()
    assert kept.id == expected.id
    assert one.take().id == expected.id


def test_one_changed_file_is_all_that_is_read(settled: dict[str, Scanner]) -> None:
    one = settled["unreadable memory"]
    assert reads(one)[1] == 0
    (one.root / "a").write_text("AAAA")
    assert reads(one)[1] == 1
    fill(one.root, {"x/.gitignore": "*.log\n"})
    assert reads(one)[1] <= 2  # new rules: listed anew, but read only what is fresh
    whole = one.cache.read_bytes()
    generator = random.Random(7)
    for spoiled in (b"", b"\0" * len(whole), whole[:1], whole[: len(whole) // 2], whole[:-1], b"i"):
        one.cache.write_bytes(spoiled)
        assert one.take(remember=False).id == anew(one.root).id
    one.cache.write_bytes(generator.randbytes(200))
    assert one.take().id == anew(one.root).id


def test_remember_nothing_leaves_no_trace(
    settled: dict[str, Scanner], tree: Path, cache: Path
) -> None:
    fill(tree, {"a": ""})
    scanner(tree, cache).take(remember=False)
    assert not cache.exists()
    assert sorted(os.listdir(tree)) == ["a"]
    one = settled["remember nothing"]
    memory = one.cache.read_bytes()
    (one.root / "a").write_text("AAAA")
    one.take(remember=False)
    assert one.cache.read_bytes() == memory


def test_a_second_edit_within_the_same_tick_is_noticed(tree: Path, cache: Path) -> None:
    one = scanner(tree, cache)
    found = set()
    for number in range(100):
        (tree / "a").write_text(f"{number:4}")
        found.add(one.take().id)
    assert len(found) == 100


def test_what_was_fresh_when_read_is_doubted_however_long_the_rest_took(
    tree: Path, cache: Path
) -> None:
    fill(tree, {"a": "", "b": ""})
    one = scanner(tree, cache)
    one.take(lambda done, total: time.sleep(UNSURE_NS / 1e9 / 2 + 0.1))
    assert reads(one)[1] == 2


def test_a_repository_that_appears_above_brings_its_rules(tmp_path: Path, cache: Path) -> None:
    tree = fill(tmp_path / "p", {"a": "", "b": "", "x/b": ""})
    fill(tmp_path, {".gitignore": "b\n"})
    one = scanner(tree, cache)
    assert b"x/b" in paths(one.take())
    time.sleep(UNSURE_NS / 1e9 + 0.1)
    one.take()
    (tmp_path / ".git").mkdir()
    assert set(paths(one.take())) == {b"a", b"x"}
    (tmp_path / ".git").rmdir()
    assert set(paths(one.take())) == {b"a", b"b", b"x/b"}


def test_what_git_tracks_from_now_on_is_noticed(tree: Path, cache: Path) -> None:
    def run_git(*words: str) -> None:
        subprocess.run(["git", "-C", tree, *words], check=True, capture_output=True)

    fill(tree, {"a": "", "runs/b": "", ".gitignore": "/runs/\n"})
    run_git("init", "-q")
    one = scanner(tree, cache)
    for _ in range(2):
        one.take()
        time.sleep(UNSURE_NS / 1e9 + 0.1)
    assert b"runs/b" not in paths(one.take())
    run_git("add", "-f", "runs/b")
    assert b"runs/b" in paths(one.take())
    time.sleep(UNSURE_NS / 1e9 + 0.1)
    one.take()
    (tree / ".git/index").touch()  # written anew with the same files, as git does
    assert b"runs/b" in paths(one.take())
    run_git("rm", "-q", "--cached", "runs/b")
    assert b"runs/b" not in paths(one.take())


def test_what_a_repository_within_another_tracks_is_noticed(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_git(folder: Path, *words: str) -> None:
        subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)

    def read_index(path: str) -> list[bytes]:
        asked.append(path)
        return tracked(path)

    asked: list[str] = []
    tracked = index.tracked
    monkeypatch.setattr(index, "tracked", read_index)
    fill(tree, {".gitignore": "/a\n", "x/sub/.gitignore": "/runs/\n", "x/sub/runs/b": ""})
    run_git(tree, "init", "-q")
    (tree / ".git/modules").mkdir()
    run_git(tree / "x/sub", "init", "-q", "--separate-git-dir", tree / ".git/modules/sub")
    assert (tree / "x/sub/.git").is_file()
    one = Scanner(tree, (), cache, HUGE)
    for _ in range(2):
        one.take()
        time.sleep(UNSURE_NS / 1e9 + 0.1)
    asked.clear()
    assert b"x/sub/runs/b" not in paths(one.take())
    assert not asked
    run_git(tree / "x/sub", "add", "-f", "runs/b")
    assert b"x/sub/runs/b" in paths(one.take())
    time.sleep(UNSURE_NS / 1e9 + 0.1)
    one.take()
    asked.clear()
    fill(tree, {"x/sub/c": "", "d": ""})
    assert {b"x/sub/c", b"x/sub/runs/b", b"d"} < set(paths(one.take()))
    run_git(tree / "x/sub", "rm", "-q", "--cached", "runs/b")
    assert b"x/sub/runs/b" not in paths(one.take())


def test_different_outputs_are_remembered_apart(tree: Path, cache: Path) -> None:
    fill(tree, {"a": "", "runs/b": ""})
    for _ in range(2):
        assert set(paths(scanner(tree, cache).take())) == {b"a", b"runs/b"}
        assert set(paths(scanner(tree, cache, "runs").take())) == {b"a"}


def test_a_memory_that_cannot_be_kept_is_no_obstacle(tree: Path, tmp_path: Path) -> None:
    fill(tree, {"a": ""})
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert paths(scanner(tree, tmp_path / "cache").take()) == {b"a": "f"}


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "remove", "folder", "link", "executable", "rules", "mark"]),
        st.sampled_from(["a", "b", "x", "x/a", "x/b", "x/y", "x/y/a"]),
        st.sampled_from(["a\n", "b\n", "x/\n", "!a\n", "*\n"]),
    ),
    max_size=12,
)


def act(tree: Path, what: str, where: str, text: str) -> None:
    path = tree / where
    if what == "remove" and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif what == "remove":
        path.unlink()
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(text.strip())
    elif what == "executable":
        path.chmod(path.stat().st_mode ^ 0o111)
    elif what == "rules":
        (path / ".gitignore").write_text(text)
    elif what == "mark":
        (path / "pyvenv.cfg").write_text("")
    else:
        path.write_text(text)


@QUICK
@given(ACTIONS)
def test_what_is_remembered_never_changes_the_result(actions: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        fill(tree, {"a": "", "x/a": "", "x/y/b": ""})
        one = scanner(tree, Path(folder) / "cache")
        for what, where, text in actions:
            with contextlib.suppress(OSError):
                act(tree, what, where, text)
            assert one.take().manifest == anew(tree).manifest
