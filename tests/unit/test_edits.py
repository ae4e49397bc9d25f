"""Edits of the laptop in the work tree of a session: what is replaced, kept and refused."""

from __future__ import annotations

import errno
import json
import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.code.packs import hash_of
from dray.node.sessions import edits
from dray.node.sessions.commands import command_of_session, is_held, is_session
from dray.node.sessions.edits import Edits, Parent, Refused, told
from dray.node.sessions.frames import BadFrame
from dray.node.sessions.messages import HEAD, Reader, packed
from dray.sessions.syncing import edits_between


class Session:
    def __init__(self, place: Path, snapshot: str | None = None) -> None:
        self.tree = place / "work"
        self.tree.mkdir()
        self.record = place / "edits.json"
        self.edits = Edits(str(self.tree), str(place), snapshot, str(self.record))

    def put(self, path: str, text: str, kind: str = "f") -> str:
        return self.edits.put(path.encode(), kind, text.encode())

    def remove(self, path: str) -> str:
        return self.edits.remove(path.encode())

    def text(self, path: str) -> str:
        return (self.tree / path).read_text()

    def names(self) -> list[str]:
        return sorted(str(one.relative_to(self.tree)) for one in self.tree.rglob("*"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_what_dray_has_put_there_is_replaced_and_removed(session: Session) -> None:
    assert session.put("a/b.py", "one") == ""
    assert session.put("a/b.py", "two", "x") == ""
    assert session.text("a/b.py") == "two"
    assert os.access(session.tree / "a/b.py", os.X_OK)
    assert session.put("a/link", "b.py", "l") == ""
    assert session.text("a/link") == "two"
    assert session.remove("a/b.py") == ""
    assert session.remove("a/link") == ""
    assert session.names() == [], "nor the folder, which could still be imported"
    session.put("b/c/d.py", "one")
    (session.tree / "b/mine").write_text("the session's")
    assert session.remove("b/c/d.py") == ""
    assert session.names() == ["b", "b/mine"]


def test_what_the_session_has_changed_stays_beside_the_edit(session: Session) -> None:
    session.put("a.py", "one")
    for mine in ("first", "second"):
        (session.tree / "a.py").write_text(mine)
        assert "changed in the session" in session.put("a.py", f"edit after {mine}")
    assert session.names() == ["a.py", "a.py.session", "a.py.session-2"]
    assert session.text("a.py") == "edit after second"
    assert [session.text(f"a.py.session{end}") for end in ("", "-2")] == ["first", "second"]


def test_what_the_session_has_made_stays_too(session: Session) -> None:
    (session.tree / "new.py").write_text("the session's")
    assert "new.py.session" in session.put("new.py", "the laptop's")
    assert session.text("new.py.session") == "the session's"


def test_a_full_disk_leaves_the_sessions_file_where_it_was(session: Session) -> None:
    session.put("a.py", "one")
    (session.tree / "a.py").write_text("mine")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # writing fails, renaming does not
    try:
        with pytest.raises(OSError, match="large"):
            session.put("a.py", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (session.names(), session.text("a.py")) == (["a.py"], "mine")


def test_an_edit_that_cannot_be_put_in_place_gives_the_name_back(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session.tree / "a.py").write_text("mine")
    rename = Parent._rename

    def fail(self: Parent, name: bytes, new: bytes) -> None:
        if name.startswith(b".dray-edit-"):
            raise OSError(errno.EIO, "Input/output error")
        rename(self, name, new)

    monkeypatch.setattr(Parent, "_rename", fail)
    with pytest.raises(OSError, match="Input"):
        session.put("a.py", "theirs")
    assert (session.names(), session.text("a.py")) == (["a.py"], "mine")


def test_a_removal_leaves_what_the_session_has_changed(session: Session) -> None:
    session.put("a.py", "one")
    (session.tree / "a.py").write_text("mine")
    assert "stays" in session.remove("a.py")
    assert session.text("a.py") == "mine"
    assert "a.py.session" in session.put("a.py", "again"), "it is the session's own from then on"


def test_the_same_on_both_sides_is_no_conflict(session: Session) -> None:
    (session.tree / "a.py").write_text("same")
    assert session.put("a.py", "same") == ""
    assert session.put("a.py", "next") == ""
    assert session.names() == ["a.py"]


def test_a_new_mode_is_no_change_of_the_sessions(session: Session) -> None:
    session.put("run.sh", "one")
    (session.tree / "run.sh").chmod(0o755)
    assert session.put("run.sh", "two") == ""
    assert session.names() == ["run.sh"]


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../out", "a//b", "./a", "", "a/", "."])
def test_a_path_that_leads_out_is_refused(session: Session, path: str) -> None:
    for act in (lambda: session.put(path, "x"), lambda: session.remove(path)):
        with pytest.raises(Refused):
            act()
    assert session.names() == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../../out", "a/../../..", ".."])
def test_a_link_that_leads_out_is_refused(session: Session, target: str) -> None:
    with pytest.raises(Refused, match="leads out"):
        session.put("link", target, "l")
    assert session.names() == []


def test_two_links_do_not_lead_out_together(session: Session) -> None:
    assert session.put("a/b/up", "../..", "l") == ""
    with pytest.raises(Refused, match="leads out"):
        session.put("a/out", "b/up/../../job.json", "l")


def test_a_huge_file_of_the_sessions_is_not_read(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.put("a.pt", "one")
    session.put("b.pt", "one")
    for name in ("a.pt", "b.pt"):
        os.truncate(session.tree / name, 1 << 40)
    monkeypatch.setattr(Parent, "_digest", lambda _: pytest.fail("it is read"))
    assert "a.pt.session" in session.put("a.pt", "two")
    assert (session.tree / "a.pt.session").stat().st_size == 1 << 40
    assert "stays there" in session.remove("b.pt")


def test_a_large_file_of_the_snapshot_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "LARGEST_CONTENT", 4)
    (tmp_path / "snapshots").mkdir()
    line = f"f {hash_of(b'12345')} 5 large\0"
    snapshot = hash_of(line.encode())
    (tmp_path / "snapshots" / snapshot).write_text('{"packs": []}\n' + line)
    session = Session(tmp_path, snapshot)
    (session.tree / "large").write_text("12345")
    assert session.remove("large") == ""
    assert session.names() == []


def test_nothing_is_written_or_removed_through_a_link(session: Session, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    (session.tree / "way").symlink_to(outside)
    for act in (
        lambda: session.put("way/precious", "theirs"),
        lambda: session.put("way/new", "theirs"),
        lambda: session.remove("way/precious"),
    ):
        with pytest.raises(Refused, match="way is a link"):
            act()
    assert [one.name for one in outside.iterdir()] == ["precious"]
    # A link in the file's own place is the session's: it gets another name, and is not followed.
    (session.tree / "file").symlink_to(outside / "precious")
    assert "file.session" in session.put("file", "edit")
    assert (outside / "precious").read_text() == "mine"
    assert not (session.tree / "file").is_symlink()


def test_drays_own_files_and_odd_ones_are_left_alone(session: Session) -> None:
    with pytest.raises(Refused, match="dray's own"):
        session.put(".dray-unpacked", "x")
    os.mkfifo(session.tree / "pipe")
    (session.tree / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(Refused, match="something else"):
            session.put(name, "x")
    assert session.remove("folder") == ""
    assert (session.tree / "folder").is_dir(), "a folder that dray has not made"


def test_what_was_put_there_is_known_to_the_next_server(session: Session, tmp_path: Path) -> None:
    session.put("a.py", "one")
    session.edits.write_down()
    again = Edits(str(session.tree), str(tmp_path), None, str(session.record))
    assert again.put(b"a.py", "f", b"two") == ""
    session.record.write_text(json.dumps({"a.py": 7, "b.py": ["f"], "c.py": "rm -rf"}))
    hostile = Edits(str(session.tree), str(tmp_path), None, str(session.record))
    assert hostile.known == {}


def test_what_differs_from_a_manifest(session: Session) -> None:
    session.put("same", "1")
    session.put("old", "1")
    session.put("gone", "1")
    lines = [f"f {hash_of(text)} 1 {path}\0" for path, text in (("same", b"1"), ("old", b"2"))]
    wanted, gone = session.edits.differing("".join(lines).encode())
    assert (wanted, gone) == ([b"old"], [b"gone"])


NAMES = st.sampled_from(("a", "b", "c", "a/b", "a/c", "c/d/e"))


@given(st.dictionaries(NAMES, st.sampled_from("12")), st.dictionaries(NAMES, st.sampled_from("12")))
def test_edits_lead_from_any_tree_to_any_other(
    before: dict[str, str], after: dict[str, str]
) -> None:
    trees = [
        {
            path.encode(): told("f", text)
            for path, text in one.items()
            if not is_below_file(path, one)
        }
        for one in (before, after)
    ]
    now = dict(trees[0])
    for edit in edits_between(*trees):
        if edit.is_gone:
            del now[edit.path]
        else:
            above = [edit.path.rsplit(b"/", up)[0] for up in range(1, edit.path.count(b"/") + 1)]
            assert not set(above) & set(now), "a folder takes the place of a file after that"
            now[edit.path] = trees[1][edit.path]
    assert now == trees[1]


def is_below_file(path: str, tree: dict[str, str]) -> bool:
    return any(path.startswith(other + "/") for other in tree)


@given(st.lists(st.tuples(st.integers(), st.binary(max_size=50))), st.integers(1, 30))
def test_messages_come_out_as_they_went_in(said: list[tuple[int, bytes]], step: int) -> None:
    whole = b"".join(packed({"number": number}, content) for number, content in said)
    reader = Reader()
    heard = [
        (record["number"], content)
        for at in range(0, len(whole), step)
        for record, content in reader.feed(whole[at : at + step])
    ]
    assert heard == said


def test_a_message_without_end_is_refused() -> None:
    for lengths in ((2 << 20, 0), (2, 1 << 30)):
        with pytest.raises(BadFrame):
            list(Reader().feed(HEAD.pack(*lengths)))


def test_sessions_are_known_by_their_commands() -> None:
    assert is_held(command_of_session(None))
    assert is_session([*command_of_session(60.0), "--what a project adds"])
    assert is_session(["/opt/python", "-m", "dray_node", "lab", "3600"])
    for job in (["python3", "train.py"], ["/bin/sh", "-c", "sleep 1", "dray-session"], []):
        assert not is_session(job)
