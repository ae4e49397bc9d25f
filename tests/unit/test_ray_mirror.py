"""Files of a node that does not see the root: what is sent there, and how it comes home."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.jobs.jobdir import JobDir
from dray.node.ray import apart as aparting
from dray.node.ray import host, sending
from dray.node.ray import mirror as mirroring
from dray.node.ray import node as program
from dray.node.ray.apart import Apart
from dray.node.ray.host import TURNS, Host
from dray.node.ray.landing import Landing, Unsafe, link_inside, parts_of
from dray.node.ray.mirror import PIECE, Mirror, batches, checked, sort_of
from dray.node.schedulers.gathered import STAND_IN

RULES: Any = {"checkpoint": "**/model_*.pt", "number": r"model_(\d+)", "keep": None}


class Node:
    """A host beside its own stand-in, and the root that it does not know of."""

    def __init__(self, folder: Path) -> None:
        self.host = Host()
        self.root = folder / "root"
        self.job = self.root / "jobs/j-1"
        (self.job / "outputs").mkdir(parents=True)
        (self.job / "attempts/001").mkdir(parents=True)
        (folder / "scratch").mkdir()
        self.stand_in = Path(self.host.open(str(folder / "scratch"), "r", "t1"))
        self.there = self.stand_in / "jobs/j-1"
        for name in ("outputs", "attempts/002"):
            (self.there / name).mkdir(parents=True)
        self.asked: list[str] = []
        self.during: Callable[[], None] = lambda: None

    def ask(self, method: str, *arguments: Any) -> Any:
        self.asked.append(method)
        answer = getattr(self.host, method)(*arguments)
        if method == "read":
            self.during()
        return answer

    def mirror(self, **more: Any) -> Mirror:
        return Mirror(str(self.job), str(self.stand_in), RULES, 2, self.ask, **more)

    def write(self, path: str, content: bytes, age: float = 60.0) -> Path:
        target = self.there / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.utime(target, (time.time() - age,) * 2)
        return target

    def here(self) -> set[str]:
        top = self.job / "outputs"
        return {str(one.relative_to(top)) for one in top.rglob("*") if not one.is_dir()}


def make_deep(top: Path, depth: int, name: str = "d" * 20) -> None:
    """Make folders in each other, whose paths are longer than any that can be opened."""
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield Node(tmp_path)
    host.remove_tree(str(tmp_path))  # some of it is too deep for pytest


# -- what comes home ----------------------------------------------------------------------------


def test_what_changes_comes_and_what_goes_goes(node: Node) -> None:
    mirror = node.mirror()
    node.write("outputs/a/model_1.pt", b"one")
    node.write("outputs/notes", b"first")
    mirror.bring_outputs()
    assert node.here() == {"a/model_1.pt", "notes"}
    (node.there / "outputs/a/model_1.pt").unlink()
    node.write("outputs/a/model_2.pt", b"two")
    node.write("outputs/notes", b"2nd")
    mirror.bring_outputs()
    assert node.here() == {"a/model_2.pt", "notes"}
    assert (node.job / "outputs/notes").read_bytes() == b"2nd"
    assert list((node.job / "incoming").iterdir()) == []


def test_a_file_that_grows_is_brought_from_where_it_ended(node: Node) -> None:
    mirror = node.mirror()
    path = node.write("outputs/events", b"x" * 3_000_000)
    mirror.bring_outputs()
    with path.open("ab") as file:
        file.write(b"more")
    read: list[int] = []
    asked = node.host.read
    node.host.read = lambda wanted: (read.extend(one[2] for one in wanted), asked(wanted))[1]  # type: ignore[method-assign]
    mirror.bring_outputs()
    assert read == [4]
    assert (node.job / "outputs/events").read_bytes() == path.read_bytes()


def test_a_file_that_was_written_anew_and_is_longer_is_brought_whole(node: Node) -> None:
    mirror = node.mirror()
    path = node.write("outputs/state", b"a" * 1000)
    mirror.bring_outputs()
    with path.open("r+b") as file:  # the same file, and other content
        file.write(b"b" * 2000)
    mirror.bring_outputs()
    assert (node.job / "outputs/state").read_bytes() == b"b" * 2000


def test_a_change_in_the_middle_of_what_has_grown_is_found_at_the_end(node: Node) -> None:
    mirror = node.mirror()
    path = node.write("outputs/table", b"a" * 300_000)
    mirror.bring_outputs()
    with path.open("r+b") as file:
        file.seek(150_000)
        file.write(b"zzz")
        file.seek(300_000)
        file.write(b"more")
    mirror.bring_outputs()
    mirror.bring_outputs(is_last=True)
    assert (node.job / "outputs/table").read_bytes() == path.read_bytes()


def test_a_checkpoint_that_is_being_written_does_not_come(node: Node) -> None:
    """Nor does the one before it go, though the trainer has removed it already."""
    mirror = node.mirror()
    old = node.write("outputs/model_1.pt", b"whole")
    mirror.bring_outputs()
    node.write("outputs/model_2.pt", b"half", age=0)
    old.unlink()
    mirror.bring_outputs()
    assert node.here() == {"model_1.pt"}
    mirror.bring_outputs(is_last=True)
    assert node.here() == {"model_2.pt"}


def test_a_checkpoint_that_changes_on_its_way_is_left_for_the_next_round(node: Node) -> None:
    mirror = node.mirror()
    path = node.write("outputs/model_1.pt", b"a" * 2 * PIECE)

    def rewrite() -> None:
        node.during = lambda: None
        path.write_bytes(b"b" * 2 * PIECE)

    node.during = rewrite
    mirror.bring_outputs()
    assert node.here() == set()
    mirror.bring_outputs(is_last=True)
    assert (node.job / "outputs/model_1.pt").read_bytes() == b"b" * 2 * PIECE


def test_the_newest_checkpoint_comes_first_and_the_outcome_last(node: Node) -> None:
    order: list[str] = []
    read = node.host.read
    node.host.read = lambda wanted: (order.extend(one[0] for one in wanted), read(wanted))[1]  # type: ignore[method-assign]
    node.write("outputs/aaa", b"small")
    node.write("outputs/model_1.pt", b"x" * 100, age=100)
    node.write("outputs/model_2.pt", b"x" * 100, age=50)
    node.write("attempts/002/outcome.json", b"{}")
    node.mirror().bring_outputs()
    names = [Path(one).name for one in order]
    assert names == ["model_2.pt", "model_1.pt", "aaa", "outcome.json"]


def test_logs_and_the_heartbeat_come_and_earlier_attempts_stay(node: Node) -> None:
    (node.job / "attempts/001/outcome.json").write_text("first")
    node.write("attempts/001/outcome.json", b"forged")
    node.write("attempts/001/log", b"forged")
    node.write("attempts/002/log", b"one\n")
    node.write("attempts/002/heartbeat.json", b"{}")
    node.write("attempts/002/anything", b"no")
    node.write("attempts/002/outcome.json", b"{}")
    mirror = node.mirror()
    mirror.bring_news()
    node.write("attempts/002/log", b"one\ntwo\n")
    (node.there / "attempts/002/heartbeat.json").unlink()
    mirror.bring_news()
    mirror.bring_outputs()
    assert (node.job / "attempts/001/outcome.json").read_text() == "first"
    found = {one.name: one.read_bytes() for one in (node.job / "attempts/002").iterdir()}
    assert found == {"log": b"one\ntwo\n", "outcome.json": b"{}"}


def test_an_output_of_two_nodes_is_the_leaders(node: Node, tmp_path: Path) -> None:
    node.write("outputs/mine", b"mine")
    node.write("outputs/both", b"followers")
    node.mirror(yields=lambda path: path == "outputs/both").bring_outputs()
    assert node.here() == {"mine"}


def test_what_another_node_has_left_lies_beside_that_of_the_first(node: Node) -> None:
    node.write("attempts/002/left-10.0.0.4-1/runs/notes", b"left")
    node.mirror().bring_outputs()
    assert (node.job / "attempts/002/left/10.0.0.4-1/runs/notes").read_bytes() == b"left"


def test_what_cannot_be_listed_is_not_taken_to_be_gone(node: Node, monkeypatch: Any) -> None:
    mirror = node.mirror()
    node.write("outputs/model_1.pt", b"one")
    mirror.bring_outputs()
    scandir = os.scandir

    def broken(path: str) -> Any:
        if "outputs" in str(path):
            raise OSError(5, "Input/output error")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(OSError, match="Input/output"):
        mirror.bring_outputs()
    assert (node.job / "outputs/model_1.pt").exists()


# -- what goes wrong ----------------------------------------------------------------------------


def fill_disk(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Have a disk write less than it is asked to, and then nothing, where files come home."""
    write = os.pwrite

    def pwrite(fd: int, content: Any, offset: int) -> int:
        if "/incoming/" not in os.readlink(f"/proc/self/fd/{fd}"):
            return write(fd, content, offset)
        if offset >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, content[: room - offset], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def test_what_a_full_disk_cuts_short_is_brought_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what fits comes, the checkpoint before it stays, and no outcome says that all is well."""
    mirror = node.mirror()
    old = node.write("outputs/model_1.pt", b"one")
    mirror.bring_outputs()
    old.unlink()
    node.write("outputs/model_2.pt", b"x" * 3000)
    node.write("outputs/notes", b"small")
    node.write("attempts/002/outcome.json", b"{}")
    with monkeypatch.context() as full:
        fill_disk(full, 1000)
        for is_last in (False, True):
            with pytest.raises(OSError, match=r"model_2\.pt could not be brought: No space left"):
                mirror.bring_outputs(is_last)
    assert node.here() == {"model_1.pt", "notes"}
    assert list(mirror.failed) == ["outputs/model_2.pt"]
    assert not (node.job / "attempts/002/outcome.json").exists()
    assert list((node.job / "incoming").iterdir()) == []
    mirror.bring_outputs(is_last=True)
    assert node.here() == {"model_2.pt", "notes"}
    assert (node.job / "outputs/model_2.pt").read_bytes() == b"x" * 3000
    assert (node.job / "attempts/002/outcome.json").exists()


def test_a_file_of_another_size_than_on_the_node_is_not_put_in_place(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write("outputs/model_1.pt", b"x" * 3000)
    monkeypatch.setattr(mirroring, "write_at", lambda fd, content, at: os.pwrite(fd, b"x", at))
    mirror = node.mirror()
    with pytest.raises(OSError, match="1 of its 3000 bytes are here"):
        mirror.bring_outputs()
    assert node.here() == set()
    assert mirror.known == {}


def test_what_cannot_be_listed_is_left_and_all_else_comes(
    node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mirror = node.mirror()
    node.write("outputs/closed/model_1.pt", b"one")
    mirror.bring_outputs()
    node.write("outputs/good", b"good")
    make_deep(node.there / "outputs", 250)
    node.write("attempts/002/outcome.json", b"{}")
    scandir = os.scandir

    def refused(path: str) -> Any:
        if str(path).endswith("/closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    mirror.bring_outputs(is_last=True)
    assert (node.job / "outputs/good").exists()
    assert (node.job / "outputs/closed/model_1.pt").exists()
    assert (node.job / "attempts/002/outcome.json").exists()
    told = capfd.readouterr().out
    assert "outputs/closed cannot be listed on its node, and was left there" in told
    assert told.count("cannot be listed") == 2


def test_a_name_that_would_lead_up_once_placed_is_left(
    node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    node.write("attempts/002/left-../x", b"no")
    node.write("outputs/good", b"good")
    node.write("attempts/002/outcome.json", b"{}")
    node.mirror().bring_outputs(is_last=True)
    assert node.here() == {"good"}
    assert {one.name for one in (node.job / "attempts/002").iterdir()} == {"outcome.json"}
    assert "attempts/002/left-.. has a path that" in capfd.readouterr().out


def test_deep_and_old_files_come(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    deep = "d/" * 150 + "f"
    node.write("outputs/" + deep, b"deep")
    node.write("outputs/" + "e/" * 250 + "f", b"too deep")
    os.utime(node.write("outputs/old", b"old"), (-5, -5))
    mirror = node.mirror()
    mirror.bring_outputs(is_last=True)
    assert node.here() == {deep, "old"}
    assert (node.job / "outputs/old").stat().st_mtime == 0
    told = capfd.readouterr().out
    assert "too deep" in told
    assert told.count("\n") == 2
    node.asked.clear()
    mirror.bring_outputs()
    assert "read" not in node.asked


def test_more_files_than_can_be_listed_are_told_of(
    node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in (host, mirroring):
        monkeypatch.setattr(module, "MOST_ROWS", 20)
    for folder in range(5):
        for number in range(10):
            node.write(f"outputs/{folder}/{number}", b"x")
    node.mirror().bring_outputs(is_last=True)
    told = capfd.readouterr().out
    assert "the first 20 files and folders were looked at, and there are more" in told


class Turned:
    """A turn on one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.hosts = [node.host]
        self.addresses = ["10.0.0.4"]

    def ask(self, _: int, method: str, *arguments: Any) -> Any:
        return self.node.ask(method, *arguments)


def apart_on(node: Node, ends: Callable[[], bool] = lambda: False) -> Apart:
    """Return the driver's side of a turn whose command has ended."""
    loop: Any = SimpleNamespace(job_dir=JobDir(str(node.job)), job={})
    turn: Any = Turned(node)
    apart = Apart(turn, loop, str(node.job / "batch.log"), lambda: False, ends)
    apart.stand_in = str(node.stand_in)
    apart.mirrors = [node.mirror()]
    return apart


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aparting, "RETRY", 0.01)
    monkeypatch.setattr(aparting, "PATIENCE", 0.3)


def test_a_step_that_fails_at_the_end_keeps_nothing_else_from_coming(
    node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here the job has removed the file by which it would hear who wants in."""
    node.write("attempts/002/door.json", b"{}")
    node.write("outputs/good", b"good")
    node.write("attempts/002/outcome.json", b"{}")
    apart = apart_on(node)
    apart.mirrors[0].bring_news()
    apart.mirrors[0].pass_calls()
    (node.job / "attempts/002/door.calls").write_text("hi\n")
    apart._bring_rest()
    apart._clear()
    assert node.here() == {"good"}
    assert (node.job / "attempts/002/outcome.json").exists()
    assert not node.stand_in.exists()
    assert capfd.readouterr().out.count("\n") == 1


def test_nobody_waits_at_a_door_that_is_gone(node: Node) -> None:
    door = node.write("attempts/002/door.json", b"{}")
    apart = apart_on(node)
    apart.mirrors[0].bring_news()
    apart._look()
    assert (node.job / "attempts/002/door.calls").exists()
    door.unlink()
    apart._bring_rest()
    assert not (node.job / "attempts/002/door.calls").exists()


def test_who_wants_in_keeps_no_job_from_being_stopped(node: Node) -> None:
    node.write("attempts/002/door.json", b"{}")
    apart = apart_on(node)
    apart.mirrors[0].bring_news()
    apart._look()
    (node.job / "attempts/002/door.calls").write_text("hi\n")
    (node.job / "stop.json").write_text('{"state": "cancelled"}')
    apart._look()
    assert (node.there / "stop.json").exists()


@pytest.mark.usefixtures("impatient")
def test_a_disk_that_has_room_again_gets_what_is_left(
    node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aparting, "PATIENCE", 60.0)
    node.write("outputs/model_1.pt", b"x" * 3000)
    node.write("attempts/002/outcome.json", b"{}")
    looks: list[int] = []
    full = pytest.MonkeyPatch()
    fill_disk(full, 1000)

    def ends() -> bool:
        looks.append(1)
        if len(looks) == 5:
            full.undo()
        return False

    apart = apart_on(node, ends)
    apart._bring_rest()
    apart._clear()
    assert (node.job / "outputs/model_1.pt").read_bytes() == b"x" * 3000
    assert (node.job / "attempts/002/outcome.json").exists()
    assert not node.stand_in.exists()
    assert capfd.readouterr().out.count("No space left") == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_ending", [False, True])
def test_what_never_comes_home_is_named_and_stays_on_the_node(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    is_ending: bool,
) -> None:
    node.write("outputs/model_1.pt", b"x" * 3000)
    node.write("attempts/002/outcome.json", b"{}")
    node.write("secrets.json", b"{}")
    fill_disk(monkeypatch, 1000)
    apart = apart_on(node, lambda: is_ending)
    apart._bring_rest()
    apart._clear()
    assert node.asked.count("list") == 3 if is_ending else node.asked.count("list") > 4
    assert (node.job / "attempts/002/outcome.json").exists()
    told = capfd.readouterr().out
    assert "NOT brought home from its node: outputs/model_1.pt\n" in told
    top = node.stand_in.parent.parent.parent
    (kept,) = top.iterdir()
    assert f"stays for a day on 10.0.0.4, in {kept}\n" in told
    Host().open(str(top.parent), "r", "t2")
    assert (kept / "jobs/j-1/outputs/model_1.pt").exists()
    assert not (kept / "jobs/j-1/secrets.json").exists()
    os.utime(kept, (1, 1))
    Host().open(str(top.parent), "r", "t3")
    assert not kept.exists()


# -- what means ill -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/./b", "a\0b", "\ud800", "x" * 300, 7]
)
def test_paths_that_may_lead_elsewhere_are_refused(path: Any) -> None:
    with pytest.raises(Unsafe):
        parts_of(path)
    row = (path if not isinstance(path, str) else "jobs/j-1/" + path, "f", 1, 1, 1, "")
    assert checked([row], "jobs/j-1/")[0] == []


@given(st.lists(st.sampled_from(["..", ".", "", "a", "outputs", "/"]), max_size=6))
def test_no_path_leads_out(parts: list[str]) -> None:
    path = "/".join(parts)
    try:
        found = parts_of(path)
    except Unsafe:
        return
    assert os.path.normpath(os.path.join("/top", *found)).startswith("/top/")


def test_a_link_in_the_way_is_replaced_and_not_followed(node: Node, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    for name in ("runs", "file"):
        (node.job / "outputs" / name).symlink_to(outside / ("kept" if name == "file" else ""))
    node.write("outputs/runs/x", b"new")
    node.write("outputs/file", b"new")
    node.mirror().bring_outputs()
    assert {one.name for one in outside.iterdir()} == {"kept"}
    assert (outside / "kept").read_text() == "kept"
    assert (node.job / "outputs/runs/x").read_bytes() == b"new"
    assert not (node.job / "outputs/file").is_symlink()


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        ("latest", "runs/1", "runs/1"),
        ("a/latest", "../runs", "../runs"),
        ("a/latest", "/node/outputs/runs", "../runs"),
        ("latest", "/etc", ""),
        ("latest", "../job.json", ""),
        ("a/latest", "b/../../../x", ""),
        ("latest", "/node/outputs/../job.json", ""),
        ("latest", "", ""),
    ],
)
def test_links_are_kept_that_stay_inside(path: str, target: str, expected: str) -> None:
    assert link_inside(path, target, "/node/outputs") == expected


def test_a_folder_that_becomes_a_file_and_back_is_followed(node: Node) -> None:
    mirror = node.mirror()
    node.write("outputs/a/b/c", b"1")
    mirror.bring_outputs()
    for one in ("a/b/c", "a/b", "a"):
        path = node.there / "outputs" / one
        path.rmdir() if path.is_dir() else path.unlink()
    node.write("outputs/a", b"file")
    mirror.bring_outputs()
    assert node.here() == {"a"}
    (node.there / "outputs/a").unlink()
    node.write("outputs/a/b", b"2")
    mirror.bring_outputs()
    assert node.here() == {"a/b"}


def test_other_files_of_the_job_are_nobodys_to_change(node: Node) -> None:
    for path in (
        "job.json",
        "end.json",
        "secrets.json",
        "attempts/1/log",
        "attempts/002/x",
        "alive",
    ):
        assert sort_of(path, 2) == ""
    assert sort_of("attempts/002/../../job.json", 2) == ""


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 300)), max_size=20))
def test_pieces_are_all_of_it_and_bounded(files: list[tuple[int, int]]) -> None:
    wanted = [(str(at), start, size) for at, (start, size) in enumerate(files)]
    found: dict[str, int] = {}
    for batch in batches(wanted, 100):
        assert sum(length for _, _, length in batch) <= 100
        for path, offset, length in batch:
            assert offset == wanted[int(path)][1] + found.get(path, 0)
            found[path] = found.get(path, 0) + length
    assert found == {path: size for path, _, size in wanted}


# -- what is sent -------------------------------------------------------------------------------


def test_a_node_gets_what_it_needs_and_old_checkpoints_stay(node: Node) -> None:
    root = node.root
    (root / "node").mkdir()
    (root / "node/dray-1.pyz").write_bytes(b"program")
    (node.job / "batch.sh").write_text('exec python "$root/node/dray-1.pyz" node x\n')
    (node.job / "outputs/notes").write_text("notes")
    (node.job / "outputs/latest").symlink_to("notes")
    for number in range(5):
        path = node.job / f"outputs/model_{number}.pt"
        path.write_bytes(b"checkpoint")
        os.utime(path, (1000 + number,) * 2)
    (node.job / "attempts/001/outcome.json").write_text("{}")
    (node.job / "attempts/001/log").write_text("long")
    job: Any = {"id": "j-1", "snapshot": "", "resume": RULES, "after": {"other-1": "ok"}}
    parcel = sending.parcel_of(JobDir(str(node.job)), job)
    base = str(node.stand_in.parent.parent)
    stamps = sending.send(parcel, base, str(node.stand_in), node.ask)
    found = {str(one.relative_to(node.there)) for one in node.there.rglob("*")}
    assert found >= {"batch.sh", "job.json", "attempts/001/outcome.json", "outputs/latest"}
    assert {one for one in found if "model" in one} == {"outputs/model_3.pt", "outputs/model_4.pt"}
    assert "attempts/001/log" not in found
    assert "after" not in json.loads((node.there / "job.json").read_text())
    assert (node.stand_in / "node/dray-1.pyz").read_bytes() == b"program"
    sent = node.there / "outputs/notes"
    assert stamps["jobs/j-1/outputs/notes"][1] == sent.stat().st_mtime_ns
    node.asked.clear()
    sending.send(sending.Parcel(str(root)), base, str(node.stand_in), node.ask)
    assert "put" not in node.asked


def test_what_was_sent_and_is_removed_there_is_removed_here(node: Node) -> None:
    (node.job / "batch.sh").touch()
    (node.job / "outputs/notes").write_text("notes")
    (node.job / "outputs/kept").write_text("kept")
    job: Any = {"id": "j-1", "snapshot": "", "resume": RULES}
    parcel = sending.parcel_of(JobDir(str(node.job)), job)
    base = str(node.stand_in.parent.parent)
    mirror = node.mirror()
    for path, stamp in sending.send(parcel, base, str(node.stand_in), node.ask).items():
        mirror.remember(path.replace("jobs/j-1/", ""), stamp)
    node.asked.clear()
    mirror.bring_outputs()
    assert "read" not in node.asked
    (node.there / "outputs/notes").unlink()
    mirror.bring_outputs()
    assert node.here() == {"kept"}


# -- the folder that stands in ------------------------------------------------------------------


def test_the_last_turn_takes_all_away_and_others_stay(tmp_path: Path) -> None:
    first, second = Host(), Host()
    one = Path(first.open(str(tmp_path), "r", "t1"))
    two = Path(second.open(str(tmp_path), "r", "t2"))
    first.close(keep=False)
    assert not one.exists()
    assert two.exists()
    second.close(keep=False)
    assert not two.parent.parent.exists()


def test_what_a_killed_host_has_left_is_taken_away(tmp_path: Path) -> None:
    killed = Host()
    left = Path(killed.open(str(tmp_path), "r", "t1"))
    for fd in killed.locks:
        os.close(fd)
    Host().open(str(tmp_path), "r", "t2")
    assert [one.name for one in left.parent.iterdir()] == ["t2"]
    assert left.parent.name == TURNS


def test_who_comes_while_a_folder_is_taken_away_has_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Host(), Host()
    base = Path(first.open(str(tmp_path), "r", "t1")).parent.parent
    (base / "packs/code").write_text("x")
    came: list[Path] = []
    remove = host.remove_tree

    def come_before(folder: str) -> None:
        if not base.exists():
            monkeypatch.setattr(host, "remove_tree", remove)
            came.append(Path(second.open(str(tmp_path), "r", "t2")))
        remove(folder)

    monkeypatch.setattr(host, "remove_tree", come_before)
    first.close(keep=False)
    assert len(came) == 1
    assert came[0].is_dir()
    assert (came[0].parent.parent / "packs").is_dir()
    assert not (base / "packs/code").exists()
    assert [one.name for one in base.parent.iterdir()] == ["r"]


def test_a_folder_that_goes_before_its_lock_is_there_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = host.make_private
    gone: list[str] = []

    def make_in_vain(folder: str) -> None:
        make(folder)
        if folder.endswith("/t1") and not gone:
            gone.append(folder)
            os.rmdir(folder)

    monkeypatch.setattr(host, "make_private", make_in_vain)
    assert Path(Host().open(str(tmp_path), "r", "t1"), "lock").exists()
    assert gone


def test_no_depth_and_no_mode_keeps_a_folder_from_being_removed(node: Node) -> None:
    make_deep(node.there / "outputs", 1200)
    (node.there / "outputs/closed/below").mkdir(parents=True)
    (node.there / "outputs/closed").chmod(0)
    (node.stand_in / "lock").unlink()
    node.host.close(keep=False)
    assert list(node.stand_in.parent.parent.parent.iterdir()) == []


@pytest.mark.parametrize("stands_in", [True, False])
def test_secrets_go_with_the_program_where_nobody_else_may_clear_up(
    node: Node, monkeypatch: pytest.MonkeyPatch, stands_in: bool
) -> None:
    """Where nodes see the root, they are the job's own, and may be needed again."""

    def end(*_: Any) -> int:
        raise RuntimeError

    if stands_in:
        monkeypatch.setenv(STAND_IN, str(node.stand_in))
    monkeypatch.setattr(program, "described", lambda _: {"id": "j-1"})
    monkeypatch.setattr(program, "RayNode", lambda *_: SimpleNamespace(run=end))
    secrets = node.write("secrets.json", b"{}")
    with pytest.raises(RuntimeError):
        program.make_attempts(str(node.there))
    assert secrets.exists() is not stands_in


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"dray-ray-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        Host().open(str(tmp_path), "r", "t1")


def test_a_landing_is_private(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    landing = Landing(str(top), str(tmp_path / "waiting"))
    name, fd = landing.new()
    os.close(fd)
    landing.put(name, "a/b")
    assert (top / "a").stat().st_mode & 0o777 == 0o700
    assert (top / "a/b").stat().st_mode & 0o777 == 0o600
