"""Files from elsewhere, put into a folder: nothing outside of it is ever touched."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.checks import Malformed
from dray.landing import Incoming, Landing, is_unwanted, leads_out, split
from dray.node.formats.files import MOST_PARTS

NAMES = st.sampled_from(["a", "b", ".", "..", "", "...", "a b", "\udcff", "x" * 255])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
LINKS = st.one_of(st.none(), PATHS, PATHS.map(lambda path: f"/{path}"))


def file(path: str, content: bytes = b"new", mode: int = 0o644, mtime: int = 7) -> Incoming:
    return Incoming(path, len(content), mtime, mode)


def bring(landing: Landing, one: Incoming, content: bytes = b"new") -> None:
    if landing.wants(one):
        landing.put(one, () if one.link is not None else (content,))


def outside(top: Path) -> list[tuple[str, int, bytes]]:
    return sorted(
        (str(path), path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in top.rglob("*")
        if "inside" not in path.parts
    )


@given(st.lists(st.tuples(PATHS, LINKS), max_size=8))
def test_nothing_outside_is_touched(
    tmp_path_factory: pytest.TempPathFactory, offered: list[tuple[str, str | None]]
) -> None:
    """Files and links in any order, over one another."""
    top = tmp_path_factory.mktemp("top")
    (top / "a").write_text("mine")
    (top / "b").mkdir()
    (top / "inside").mkdir()
    before = outside(top)
    with Landing(top / "inside") as landing:
        for path, link in offered:
            try:
                bring(landing, file(path)._replace(link=link))
            except (Malformed, OSError):
                continue
    assert outside(top) == before
    for path in (top / "inside").rglob("*"):
        # Of a link to itself as "a//a" realpath says "/a"; nobody can follow it anywhere.
        assert leads_to_itself(path) or os.path.realpath(path).startswith(f"{top}/inside"), path


def leads_to_itself(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@pytest.mark.parametrize(
    "path", ["", ".", "..", "a/..", "../a", "/a", "a//b", "a/", "a\0b", "\ud800", "x" * 256]
)
def test_such_a_path_is_refused(path: str) -> None:
    with pytest.raises(Malformed):
        split(path)


@pytest.mark.parametrize(
    ("path", "link", "out"),
    [
        ("a", "b", False),
        ("a", "..", True),
        ("a/b", "..", False),
        ("a/b", "../..", True),
        ("a/b", "../c/../../d", True),
        ("a/b", "c/..", True),  # c may be a link to the top
        ("a/b", "./c//d", False),
        ("a", "/etc/passwd", True),
        ("a", "", True),
    ],
)
def test_links_that_lead_out(path: str, link: str, out: bool) -> None:
    assert leads_out(path, link) is out
    assert is_unwanted(Incoming(path, 0, 0, 0o777, link)) is out


def test_a_link_that_another_process_puts_in_the_way_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "victim").mkdir()
    with Landing(tmp_path / "inside") as landing:
        one = file("d/x")
        assert landing.wants(one)
        (tmp_path / "inside/d").symlink_to(tmp_path / "victim")
        landing.put(one, (b"new",))
    assert list((tmp_path / "victim").iterdir()) == []
    assert (tmp_path / "inside/d/x").read_bytes() == b"new"


def test_a_file_arrives_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> object:
        yield b"ne"
        raise RuntimeError

    with Landing(tmp_path) as landing:
        bring(landing, file("a", b"old"), b"old")
        with pytest.raises(RuntimeError):
            landing.put(file("a"), broken())  # type: ignore[arg-type]
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_it_is_brought_once(tmp_path: Path) -> None:
    with Landing(tmp_path) as landing:
        bring(landing, file("a"))
        assert not landing.wants(file("a"))
        assert landing.wants(file("a", mtime=8))
        assert landing.wants(file("a", b"longer"))
        link = file("l")._replace(link="a")
        bring(landing, link)
        assert not landing.wants(link)
        assert landing.wants(link._replace(link="b"))


@pytest.mark.parametrize(("mode", "got"), [(0o7777, 0o755), (0, 0o600), (0o4711, 0o711)])
def test_its_mode_is_masked(tmp_path: Path, mode: int, got: int) -> None:
    mask = os.umask(0o022)
    try:
        with Landing(tmp_path) as landing:
            bring(landing, file("a", mode=mode))
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == got


def test_a_pipe_in_the_place_of_the_mark_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mark")
    with Landing(tmp_path) as landing:
        assert landing.read("mark", 10) is None
        assert landing.read("none", 10) is None


def test_one_bad_name_stops_no_other_file(tmp_path: Path) -> None:
    with Landing(tmp_path) as landing:
        assert not landing.wants(file("../x"))
        assert not landing.wants(file("/".join("d" * (MOST_PARTS + 1))))
        assert landing.wants(file("good"))
        assert len(landing.unwanted) == 2
