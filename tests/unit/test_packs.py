"""Packs: few, shared, verified, never half-made."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dray.node.code.packs
from dray.job.model import Snapshot
from dray.node.code.pack_store import FEW_PACKS, MOST_PACKS, YOUNG, packs_after, prune, register
from dray.node.code.packs import FOOTER, INDEX_ROW, Damaged, Entry, Packs, entries, hash_of
from dray.snapshot import Scanner, write_snapshot
from dray.snapshot.pack import write_pack

NOISE = random.Random(3)


def take(tree: Path) -> Snapshot:
    return Scanner(tree, (), Path("/nonexistent"), 1 << 40).take(remember=False)


def fill(folder: Path, tree: dict[str, str]) -> Path:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


class Place:
    """A tree, and a root that its snapshots are staged to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.root = folder / "root"
        self.packs = Packs(str(self.root))
        fill(self.tree, {"a": "first", "b": "second", "x/c": "third", "x/same": "first"})
        (self.tree / "link").symlink_to("a")

    def stage(self) -> str:
        snapshot = take(self.tree)
        write_snapshot(str(self.root), snapshot, lambda done, total: None)
        return snapshot.id

    def unpack(self, snapshot: str) -> Path:
        target = self.folder / "target"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        self.packs.unpack(snapshot, str(target))
        return target

    def is_whole(self, snapshot: str) -> bool:
        return take(self.unpack(snapshot)).id == snapshot

    def pack_files(self) -> list[Path]:
        return [self.root / "packs" / name for name in self.packs.names()]

    def held(self) -> int:
        return sum(len(self.packs.read_index(name)) for name in self.packs.names())

    def leftovers(self) -> list[str]:
        """What is neither a pack nor the lock."""
        found = os.listdir(self.root / "packs")
        return [name for name in found if not name.endswith(".pack") and name != "lock"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- sharing --------------------------------------------------------------------------------------


def test_a_content_is_written_once(place: Place) -> None:
    first = place.stage()
    assert len(place.pack_files()) == 1
    assert place.held() == 4  # first, second, third, and the link's "a"
    (place.tree / "b").write_text("changed")
    second = place.stage()
    assert len(place.pack_files()) == 2
    assert place.held() == 5
    (place.tree / "b").rename(place.tree / "renamed")
    third = place.stage()
    assert place.held() == 5
    assert all(place.is_whole(one) for one in (first, second, third))


def test_staging_again_writes_nothing(place: Place) -> None:
    snapshot = place.stage()
    files = [*place.pack_files(), place.root / "snapshots" / snapshot]
    before = [(path.stat().st_ino, path.read_bytes()) for path in files]
    assert place.stage() == snapshot
    assert [(path.stat().st_ino, path.read_bytes()) for path in files] == before
    assert place.leftovers() == []


def test_an_empty_tree_and_one_of_folders_only(place: Place) -> None:
    shutil.rmtree(place.tree)
    place.tree.mkdir()
    assert place.is_whole(place.stage())
    (place.tree / "x" / "y").mkdir(parents=True)
    assert place.is_whole(place.stage())
    assert (place.folder / "target" / "x" / "y").is_dir()
    assert place.pack_files() == []


def test_progress_counts_what_is_written(place: Place) -> None:
    seen: list[tuple[int, int]] = []
    write_snapshot(str(place.root), take(place.tree), lambda *both: seen.append(both))
    assert seen[-1] == (17, 17)
    write_snapshot(str(place.root), take(place.tree), lambda *both: pytest.fail("nothing to do"))


def test_a_snapshot_never_needs_many_packs(place: Place) -> None:
    """Spread over too many, it is packed whole; and those after it build on the whole pack."""
    for number in range(MOST_PACKS + 5):
        (place.tree / f"f{number}").write_text(f"content {number}")
        snapshot = place.stage()
    assert len(place.packs.read_snapshot(snapshot)[0]) <= 10
    assert place.is_whole(snapshot)
    assert place.held() < 3 * MOST_PACKS  # packed whole once, not each time


# -- what a small change needs --------------------------------------------------------------------


def change_b(place: Place) -> tuple[list[str], bytes, str, Snapshot]:
    """The packs before, the changed line, the pack that holds it, and the snapshot."""
    before = place.packs.names()
    (place.tree / "b").write_text(f"changed {len(before)}")
    snapshot = take(place.tree)
    (line,) = (line for line in snapshot.manifest.split(b"\0") if line.endswith(b" b"))
    wanted = [Entry(line)]
    new = write_pack(place.packs, snapshot, wanted, lambda done, total: None)
    return before, line + b"\0", new, snapshot


def test_a_small_change_needs_the_packs_before_and_its_own(place: Place) -> None:
    place.stage()
    before, middle, new, snapshot = change_b(place)
    needed = packs_after(place.packs, before, middle, new)
    assert needed == {*before, new}
    assert register(place.packs, snapshot.id, snapshot.manifest, needed) == []
    assert place.is_whole(snapshot.id)


def test_a_change_is_not_taken_on_trust(place: Place) -> None:
    """What no pack here holds for certain is looked for in all of them."""
    place.stage()
    before, middle, new, snapshot = change_b(place)
    assert packs_after(place.packs, before, middle, "") is None
    with pytest.raises(Damaged):
        register(place.packs, snapshot.id, snapshot.manifest + b"d - 0 more\0", {*before, new})
    place.packs.mark_damaged(before[0])
    assert packs_after(place.packs, before, middle, new) is None
    os.unlink(place.packs.mark(before[0]))
    place.pack_files()[place.packs.names().index(before[0])].unlink()
    assert packs_after(place.packs, before, middle, new) is None


def test_packs_that_are_no_longer_needed_do_not_pile_up(place: Place) -> None:
    place.stage()
    names = place.packs.names()
    for _ in range(3 * FEW_PACKS):
        _, middle, new, snapshot = change_b(place)
        needed = packs_after(place.packs, names, middle, new)
        assert register(place.packs, snapshot.id, snapshot.manifest, needed) == []
        names = place.packs.read_snapshot(snapshot.id)[0]
        assert len(names) <= FEW_PACKS
    assert place.is_whole(snapshot.id)


def test_what_lies_there_is_private(place: Place) -> None:
    snapshot = place.stage()
    for path in [*place.pack_files(), place.root / "snapshots" / snapshot]:
        assert path.stat().st_mode & 0o077 == 0


STAGE = """
import sys
from pathlib import Path
from dray.snapshot import Scanner, write_snapshot
root, tree = sys.argv[1:]
snapshot = Scanner(Path(tree), (), Path("/nonexistent"), 1 << 40).take(remember=False)
print("ready", flush=True)
sys.stdin.readline()
write_snapshot(root, snapshot, lambda done, total: None)
"""


def test_several_processes_stage_the_same_tree_at_once(place: Place) -> None:
    for number in range(40):
        (place.tree / f"f{number}").write_bytes(NOISE.randbytes(20_000))
    command = [sys.executable, "-c", STAGE, str(place.root), str(place.tree)]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(3)
        ]
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == b"ready\n"
        for one in started:
            assert one.stdin is not None
            one.stdin.write(b"\n")
            one.stdin.flush()
        assert [one.wait(60) for one in started] == [0, 0, 0]
    assert len(place.pack_files()) == 1
    assert place.leftovers() == []
    assert place.is_whole(take(place.tree).id)


# -- damage ---------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def damaged(place: Place, snapshot: str) -> str:
    with pytest.raises(Damaged) as caught:
        place.unpack(snapshot)
    return str(caught.value)


def heals(place: Place, snapshot: str) -> bool:
    return place.stage() == snapshot and place.is_whole(snapshot)


def test_a_flipped_byte_is_found_wherever_it_is(place: Place) -> None:
    """In contents, index and footer: said clearly, and staging again heals it."""
    snapshot = place.stage()
    [pack] = place.pack_files()
    whole = pack.read_bytes()
    index = place.packs.read_index(pack.name)
    tail = len(index) * INDEX_ROW.size + FOOTER.size
    first_content = index[0][1]
    for at in [*range(first_content, len(whole) - tail), *range(len(whole) - tail, len(whole), 7)]:
        flip(pack, at)
        said = damaged(place, snapshot)
        assert pack.name in said
        assert heals(place, snapshot), said
        assert pack.read_bytes() == whole
        assert place.leftovers() == []


def test_a_pack_cut_short(place: Place) -> None:
    snapshot = place.stage()
    [pack] = place.pack_files()
    for size in (0, 5, FOOTER.size, pack.stat().st_size - 1):
        os.truncate(pack, size)
        assert "cut short" in damaged(place, snapshot)
        assert heals(place, snapshot)


def test_a_missing_pack(place: Place) -> None:
    snapshot = place.stage()
    [pack] = place.pack_files()
    pack.unlink()
    assert damaged(place, snapshot) == f"pack {pack.name} is missing at {pack}"
    assert heals(place, snapshot)


@pytest.mark.parametrize("where", [0, 3, 12, -1])
def test_a_damaged_snapshot(place: Place, where: int) -> None:
    snapshot = place.stage()
    path = place.root / "snapshots" / snapshot
    flip(path, where % path.stat().st_size)
    assert damaged(place, snapshot)
    assert heals(place, snapshot)
    path.write_bytes(b"")
    assert damaged(place, snapshot) == f"snapshot {snapshot} is damaged at {path}"
    assert heals(place, snapshot)
    path.unlink()
    assert damaged(place, snapshot) == f"snapshot {snapshot} is missing at {path}"
    assert heals(place, snapshot)


def test_healing_keeps_the_link_of_a_job(place: Place) -> None:
    """``prune`` counts links: a healed snapshot must still be the file that a job links to."""
    snapshot = place.stage()
    os.link(place.root / "snapshots" / snapshot, place.folder / "job")
    [pack] = place.pack_files()
    pack.unlink()
    (place.tree / "new").write_text("new")  # the contents then go to a pack of another name
    place.stage()
    (place.tree / "new").unlink()
    assert heals(place, snapshot)
    make_old(place)
    prune(str(place.root))
    assert place.is_whole(snapshot)


def test_only_what_a_damaged_pack_held_is_written_again(place: Place) -> None:
    old = place.stage()
    [pack] = place.pack_files()
    (place.tree / "new").write_text("new")
    new = place.stage()
    flip(pack, pack.read_bytes().index(b"second"))
    assert "b in pack" in damaged(place, new)
    assert place.packs.is_marked_damaged(pack.name)
    assert heals(place, new)
    assert not place.packs.is_marked_damaged(pack.name)  # the same contents: the same pack, mended
    assert place.is_whole(old)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_rubbish_is_damage(
    tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, at: int
) -> None:
    place = Place(tmp_path_factory.mktemp("rubbish"))
    snapshot = place.stage()
    [pack] = place.pack_files()
    content = pack.read_bytes()
    changed = content[: len(content) - at] + rubbish
    pack.write_bytes(changed)
    if changed != content:
        damaged(place, snapshot)
    assert heals(place, snapshot)


# -- unpacking ------------------------------------------------------------------------------------


def forge(place: Place, *lines: tuple[str, str, str]) -> str:
    """A snapshot that no scan would make: (kind, content, path)."""
    place.stage()
    made = []
    for kind, content, path in lines:
        (place.tree / "forged").write_text(content)
        place.stage()
        made.append(f"{kind} {hash_of(content.encode())} {len(content)} {path}\0")
    manifest = "".join(made).encode()
    header = json.dumps({"packs": place.packs.names()}).encode() + b"\n"
    (place.root / "snapshots" / hash_of(manifest)).write_bytes(header + manifest)
    return hash_of(manifest)


@pytest.mark.parametrize("path", ["/etc/out", "../out", "x/../../out", "x/..", ".."])
@pytest.mark.parametrize("kind", ["f", "x", "l", "d"])
def test_a_path_that_leads_out_is_refused(place: Place, path: str, kind: str) -> None:
    snapshot = forge(place, (kind, "content", path))
    assert damaged(place, snapshot).endswith("leads out of the work tree")
    assert not (place.folder / "out").exists()


@pytest.mark.parametrize("kind", ["f", "l", "d"])
def test_a_path_through_a_link_is_refused(place: Place, kind: str) -> None:
    outside = place.folder / "outside"
    outside.mkdir()
    for path in ("door/out", "door/x/out"):
        for lines in ((("l", str(outside), "door"), (kind, "content", path)),):
            for order in (lines, lines[::-1]):
                assert damaged(place, forge(place, *order)).endswith("leads out of the work tree")
    assert os.listdir(outside) == []


def test_files_are_verified_before_anything_is_believed(place: Place) -> None:
    snapshot = forge(place, ("f", "content", "a"))
    missing = b"f " + b"0" * 40 + b" 3 a\0"
    (place.root / "snapshots" / hash_of(missing)).write_bytes(b'{"packs": []}\n' + missing)
    assert place.unpack(snapshot)
    assert damaged(place, hash_of(missing)) == "no pack holds a"


def oldest_python() -> str:
    """What an old cluster has; where there is none that runs, ours."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which("python3.6"), *sorted(map(str, versions.glob("3.6*/bin/python")))]
    for python in filter(None, found):
        tried = subprocess.run([python, "-c", ""], capture_output=True, check=False)
        if tried.returncode == 0:  # a shim may stand for a version that is not chosen
            return python
    return sys.executable


UNPACK = """
import sys
sys.path.insert(0, sys.argv[1])
import packs
print(packs.Packs(sys.argv[2]).unpack(sys.argv[3], sys.argv[4]))
"""


def test_the_oldest_python_unpacks(place: Place) -> None:
    (place.tree / "run.sh").write_text("#!/bin/sh\n")
    (place.tree / "run.sh").chmod(0o755)
    (place.tree / "empty").mkdir()
    (place.tree / "d\u00e9j\u00e0 vu\n-x").write_text("odd")
    with open(os.fsencode(place.tree) + b"/\xff\xfe", "wb") as file:
        file.write(NOISE.randbytes(3 << 20))
    snapshot = place.stage()
    program = place.folder / "program"
    target = place.folder / "target"
    program.mkdir()
    target.mkdir()
    shutil.copy(dray.node.code.packs.__file__, program)
    command = [oldest_python(), "-I", "-S", "-c", UNPACK]
    arguments = [str(program), str(place.root), snapshot, str(target)]
    for locale in ("C", "C.UTF-8"):
        shutil.rmtree(target)
        target.mkdir()
        environment = {"LC_ALL": locale, "PATH": os.defpath}
        done = subprocess.run(
            command + arguments, env=environment, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("8\n", "")
        assert take(target).id == snapshot
    [pack] = place.pack_files()
    flip(pack, 100)
    shutil.rmtree(target)
    target.mkdir()
    failed = subprocess.run(command + arguments, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "Damaged: " in failed.stderr
    assert place.packs.is_marked_damaged(pack.name)


# -- pruning --------------------------------------------------------------------------------------


def make_old(place: Place, seconds: float = YOUNG + 60) -> None:
    then = time.time() - seconds
    for folder in ("packs", "snapshots"):
        for path in (place.root / folder).iterdir():
            os.utime(path, (then, then))


def test_prune_removes_what_no_job_links_to(place: Place) -> None:
    kept = place.stage()
    os.link(place.root / "snapshots" / kept, place.folder / "job")
    (place.tree / "new").write_text("new")
    gone = place.stage()
    prune(str(place.root))
    assert place.is_whole(gone)  # young: a submission may be about to link it
    make_old(place)
    prune(str(place.root))
    assert os.listdir(place.root / "snapshots") == [kept]
    assert len(place.pack_files()) == 1
    assert place.is_whole(kept)
    (place.folder / "job").unlink()
    prune(str(place.root))
    assert os.listdir(place.root / "snapshots") == []
    assert place.pack_files() == []


def test_staging_again_makes_it_young_again(place: Place) -> None:
    snapshot = place.stage()
    make_old(place)
    place.stage()
    prune(str(place.root))
    assert place.is_whole(snapshot)


def test_a_pack_shared_with_a_used_snapshot_stays(place: Place) -> None:
    place.stage()
    (place.tree / "new").write_text("new")
    used = place.stage()
    os.link(place.root / "snapshots" / used, place.folder / "job")
    make_old(place)
    prune(str(place.root))
    assert os.listdir(place.root / "snapshots") == [used]
    assert place.is_whole(used)


def test_prune_clears_away_what_a_killed_process_left(place: Place) -> None:
    snapshot = place.stage()
    (place.root / "packs" / "new-1.tmp").write_bytes(b"half a pack")
    (place.root / "snapshots" / f"{snapshot}.1.tmp").write_bytes(b"half a snapshot")
    place.packs.mark_damaged("0" * 40 + ".pack")
    prune(str(place.root))
    assert place.is_whole(snapshot)
    make_old(place)
    place.stage()
    prune(str(place.root))
    assert place.leftovers() == []
    assert os.listdir(place.root / "snapshots") == [snapshot]


def test_prune_where_nothing_was_ever_staged(tmp_path: Path) -> None:
    prune(str(tmp_path / "missing"))
    prune(str(tmp_path))
    assert os.listdir(tmp_path) == []


# -- a full disk ----------------------------------------------------------------------------------


@contextlib.contextmanager
def files_no_bigger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_nothing_half_made(place: Place) -> None:
    small = place.stage()
    before = sorted(path.name for path in place.pack_files())
    (place.tree / "big").write_bytes(NOISE.randbytes(2 << 20))
    with files_no_bigger_than(1 << 20), pytest.raises(OSError):
        place.stage()
    assert sorted(path.name for path in place.pack_files()) == before
    assert place.leftovers() == []
    assert os.listdir(place.root / "snapshots") == [small]
    assert place.is_whole(small)
    assert place.is_whole(place.stage())


FULL = """
import errno, os, sys
from pathlib import Path
from dray.snapshot import Scanner, write_snapshot
root, tree = sys.argv[1:]
snapshot = Scanner(Path(tree), (), Path("/nonexistent"), 1 << 40).take(remember=False)
try:
    write_snapshot(root, snapshot, lambda done, total: None)
except OSError as error:
    print(error.errno in (errno.ENOSPC, errno.EFBIG))
print(sorted(os.listdir(root + "/packs")), os.listdir(root + "/snapshots"))
"""


def test_a_full_disk_leaves_nothing_half_made(place: Place) -> None:
    """A real one of 1 MB where we may mount it; else files may be no bigger than that."""
    (place.tree / "big").write_bytes(NOISE.randbytes(3 << 20))
    place.root.mkdir()
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    mount = 'mount -t tmpfs -o size=1m none "$1" || ulimit -f 1024; shift; exec "$@"'
    program = [sys.executable, "-c", FULL, str(place.root), str(place.tree)]
    wrapped = ["sh", "-c", mount, "sh", str(place.root), *program]
    unshare = shutil.which("unshare")
    may = unshare and subprocess.run([unshare, *as_root, "-m", "true"], check=False).returncode == 0
    command = [str(unshare), *as_root, "-m", *wrapped] if may else wrapped
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n['lock'] []\n"


def test_manifest_lines_survive_spaces(place: Place) -> None:
    (place.tree / "a b  c").write_text("odd")
    found = {entry.path: entry.size for entry in entries(take(place.tree).manifest)}
    assert found[b"a b  c"] == 3
