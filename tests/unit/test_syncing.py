"""The laptop's side of --sync, towards a node that says what it likes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dray.node.code.packs import hash_of
from dray.node.sessions.frames import BadFrame
from dray.node.sessions.link import Channel
from dray.node.sessions.messages import Reader, packed
from dray.node.sessions.ready import Interests
from dray.sessions import syncing
from dray.sessions.syncing import Sending, Syncing, edits_asked_for


class Laptop:
    """A project and the channel that leads to a node, which the test speaks for."""

    def __init__(self, project: Path, wake: int) -> None:
        self.project = project
        self.said: list[str] = []
        self.sent = Reader()
        self.heard: list[tuple[dict[str, Any], bytes]] = []
        self.watch = SimpleNamespace(latest=None, trouble="", wake=wake, hear=lambda: None)
        channel = SimpleNamespace(
            room=lambda: 1 << 16,
            send=lambda piece: self.heard.extend(self.sent.feed(piece)),
            consumed=lambda count: None,
        )
        owner = Syncing(cast("Any", self.watch), project, self.said.append)
        self.sending = Sending(cast("Channel", channel), owner)

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.project / name).write_text(text)
        lines = [
            f"f {hash_of(one.read_bytes())} {one.stat().st_size} {one.name}\0"
            for one in sorted(self.project.iterdir())
        ]
        manifest = "".join(lines).encode()
        self.watch.latest = SimpleNamespace(id=hash_of(manifest), manifest=manifest)

    def turn(self) -> list[tuple[str, str]]:
        """Let it speak; return what it asked for, and of which path."""
        self.heard.clear()
        self.sending.interests(Interests())
        return [(one["do"], one.get("path", "")) for one, _ in self.heard]

    def answer(self, content: bytes = b"", **record: object) -> None:
        self.sending.data(packed(record, content))


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    woken, wake = os.pipe()
    (tmp_path / "project").mkdir()
    made = Laptop(tmp_path / "project", woken)
    made.write(a="1", b="2")
    yield made
    os.close(woken)
    os.close(wake)


def test_what_differs_is_sent_once(laptop: Laptop) -> None:
    assert laptop.turn() == [("begin", "")]
    laptop.answer(same=False)
    assert laptop.turn() == [("compare", "")]
    laptop.answer(b"+b\0-old\0+b\0+/etc/passwd\0-a\0", differing=5)
    assert laptop.turn() == [("remove", "old"), ("put", "b")]
    laptop.answer(path="old", note="")
    laptop.answer(path="b", note="odd")
    assert laptop.said == ["b: odd"]
    laptop.write(a="3")
    laptop.sending._look()
    laptop.write(a="4")
    assert laptop.turn() == [("put", "a")], "only as it is last"


SAYS: list[Callable[[Laptop], None]] = [
    lambda laptop: laptop.answer(same=True),
    lambda laptop: laptop.answer(same=False),
    lambda laptop: laptop.answer(b"+a\0", differing=1),
    lambda laptop: laptop.answer(differing=0),
    lambda laptop: laptop.answer(path="a", note="hello"),
]


@pytest.mark.parametrize("say", SAYS)
@pytest.mark.parametrize("is_compared", [False, True])
def test_what_was_not_asked_ends_the_connection(
    laptop: Laptop, say: Callable[[Laptop], None], is_compared: bool
) -> None:
    if is_compared:
        laptop.turn()
        laptop.answer(same=True)
    with pytest.raises(BadFrame):
        say(laptop)


def test_a_list_without_end_is_refused(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "MOST_GONE", 3)
    assert len(edits_asked_for(b"-x\0-y\0-z\0+a\0", {b"a": ""})) == 4
    with pytest.raises(BadFrame):
        edits_asked_for(b"+a\0" * 5, {b"a": ""})
    monkeypatch.setattr(syncing, "LARGEST_GONE", 10)
    laptop.turn()
    laptop.answer(same=False)
    with pytest.raises(BadFrame):
        laptop.answer(b"-" + b"x" * 1000, differing=1)


FULL = "not sent: No space left on device"


@pytest.fixture
def in_step(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """A laptop whose session has all that is here, and that pauses before nothing."""
    monkeypatch.setattr(syncing, "FIRST_PAUSE", 0.0)
    laptop.turn()
    laptop.answer(same=True)
    assert laptop.turn() == []
    return laptop


def test_an_edit_that_failed_is_tried_again(in_step: Laptop) -> None:
    in_step.write(a="3")
    for _ in range(2):
        assert in_step.turn() == [("put", "a")]
        assert in_step.turn() == [], "not before it is answered"
        in_step.answer(path="a", note=FULL)
    assert in_step.said == [f"a: {FULL}"], "once"
    assert in_step.turn() == [("put", "a")]
    in_step.answer(path="a", note="")
    assert in_step.turn() == []
    in_step.write(a="4")
    in_step.turn()
    in_step.answer(path="a", note=FULL)
    assert in_step.said == [f"a: {FULL}"] * 2, "it had gone well meanwhile"


def test_what_is_removed_here_after_it_failed_is_removed_there(in_step: Laptop) -> None:
    in_step.write(a="3")
    in_step.turn()
    in_step.answer(path="a", note=FULL)
    (in_step.project / "a").unlink()
    in_step.write()
    assert in_step.turn() == [("remove", "a")]
    in_step.answer(path="a", note=FULL)
    assert in_step.turn() == [("remove", "a")]
    in_step.answer(path="a", note="")
    assert in_step.turn() == []


def test_notes_have_an_end_and_that_is_said(in_step: Laptop) -> None:
    in_step.sending.owner._left = 2
    for text in "xyz":
        in_step.write(a=text)
        in_step.turn()
        in_step.answer(path="a", note=text)
    assert in_step.said[:2] == ["a: x", "a: y"]
    assert len(in_step.said) == 3
    assert "left out" in in_step.said[2]
