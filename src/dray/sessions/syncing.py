"""Sends what is edited here into the work tree of a session, over the connection that is open.

The session's side decides what is replaced: see dray.node.sessions.edits.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dray.job.quantities import show_size
from dray.node.code.packs import entries, hash_of
from dray.node.code.worktree import passes_link
from dray.node.sessions.edits import told
from dray.node.sessions.frames import BadFrame
from dray.node.sessions.link import Channel, End, Link
from dray.node.sessions.messages import LARGEST_CONTENT, Reader, packed
from dray.node.sessions.ready import READ, Interests
from dray.records import NamedTuple
from dray.snapshot.watching import TreeWatch

LONGEST = 300  # characters of what the session's side says
MOST_TOLD = 200  # times that something is said
NOT_SENT = "not sent"  # how a note begins that says that an edit has failed
FIRST_PAUSE, LAST_PAUSE = 4.0, 300.0  # seconds until it is tried again; twice as many each time
UNKNOWN = "?"  # what is there is not as it is here
MOST_GONE = 200_000  # paths that the session's side has too much
LARGEST_GONE = 16 << 20  # bytes of their names
Tree = Mapping[bytes, str]  # path: kind and hash


class Edit:
    """A path that is to be sent, or removed there."""

    def __init__(self, path: bytes, is_gone: bool) -> None:
        self.path = path
        self.is_gone = is_gone


class Failed(NamedTuple):
    """An edit that is tried again at ``due``, after a pause of so many seconds."""

    due: float
    pause: float


# -- pure ---------------------------------------------------------------------------------------


def tree_of(manifest: bytes) -> dict[bytes, str]:
    return {one.path: told(one.kind, one.hash) for one in entries(manifest)}


def edits_between(before: Tree, after: Tree) -> list[Edit]:
    """Return what leads from one tree to another: removals first, as a folder may take the place of
    a file; and what is deepest first among them."""
    gone = sorted((path for path in before if path not in after), reverse=True)
    new = sorted(path for path in after if before.get(path) != after[path])
    return [*(Edit(path, True) for path in gone), *(Edit(path, False) for path in new)]


def edits_asked_for(listed: bytes, ours: Tree) -> list[Edit]:
    """Read which paths the session's side lacks (+) and has too much (-). What it asks for and is
    not in our tree stays here, whatever it says; nor is anything removed that is in it."""
    if listed.count(b"\0") > len(ours) + MOST_GONE:
        raise BadFrame("it asks for more edits than there can be")
    asked = {line for line in listed.split(b"\0") if line}
    gone = {line[1:] for line in asked if line[:1] == b"-"} - ours.keys()
    new = {line[1:] for line in asked if line[:1] == b"+"} & ours.keys()
    removals = [Edit(path, True) for path in sorted(gone, reverse=True)]
    return removals + [Edit(path, False) for path in sorted(new)]


# -- acting -------------------------------------------------------------------------------------


class Syncing:
    """Sends edits over as many connections as it takes: see ``join``."""

    def __init__(self, watch: TreeWatch, top: Path, tell: Callable[[str], None]) -> None:
        self.watch = watch
        self.top = os.fsencode(top)
        self.tell_by = tell
        self._told: dict[str, str] = {}  # what was last said, by what it is about
        self._left = MOST_TOLD  # times

    def join(self, link: Link) -> None:
        """Send over this connection from now on."""
        link.open({"what": "sync"}, lambda channel: Sending(channel, self))

    def tell(self, about: str, text: str) -> None:
        """Say something that is to be known, until it changes; and not without end, whatever the
        session's side says."""
        if self._told.get(about) == text or not self._left:
            return
        self._told[about] = text
        self._left -= 1
        self.tell_by(text)
        if not self._left:
            self.tell_by("edits: what else there is to know is left out from now on")

    def is_well(self, about: str) -> None:
        """Know that there is no trouble any more with what something was said about."""
        self._told.pop(about, None)

    def read(self, path: bytes) -> tuple[str, bytes] | None:
        """Return the kind and the content of something in the tree; None where it is not to be
        sent, such as what has gone meanwhile."""
        full = os.path.join(self.top, path)
        name = os.fsdecode(path)
        try:
            if passes_link(os.fsdecode(self.top), name):  # it was a folder when it was looked at
                return None
            about = os.lstat(full)
            if stat.S_ISLNK(about.st_mode):
                return "l", os.readlink(full)
            if stat.S_ISDIR(about.st_mode):
                return "d", b""
            if not stat.S_ISREG(about.st_mode):
                return None
            if about.st_size > LARGEST_CONTENT:
                most = show_size(LARGEST_CONTENT)
                self.tell(name, f"{name} is not sent: it has more than {most}")
                return None
            fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                content = file.read(LARGEST_CONTENT)
            return ("x" if about.st_mode & 0o111 else "f"), content
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.tell(name, f"{name} is not sent: {error.strerror}")
            return None


class Sending(End):
    """The channel of one connection."""

    def __init__(self, channel: Channel, owner: Syncing) -> None:
        self.channel = channel
        self.owner = owner
        self._reader = Reader(most=0)
        self._pending = bytearray()
        self._edits: OrderedDict[bytes, Edit] = OrderedDict()  # by path
        self._unanswered: deque[Edit] = deque()
        self._failed: dict[bytes, Failed] = {}
        self._there: dict[bytes, str] | None = None  # None: not known yet
        self._is_asked = False
        self._awaits = ""  # the answer that has to come next, besides those to edits
        self._offered = b""  # the manifest that was sent to be compared

    def refused(self, record: dict[str, Any]) -> None:
        why = str(record.get("error", ""))[:LONGEST]
        self.owner.tell("", f"edits are not sent: {why}")

    def data(self, piece: bytes) -> None:
        for record, content in self._reader.feed(piece):
            self._hear(record, content)
        self.channel.consumed(len(piece))

    def interests(self, wanted: Interests) -> None:
        wanted.add(self.owner.watch.wake, READ, self.owner.watch.hear)
        self._look()
        while self.channel.room() and (self._pending or self._fill()):
            piece = bytes(self._pending[: self.channel.room()])
            del self._pending[: len(piece)]
            self.channel.send(piece)

    def _look(self) -> None:
        """Find out what is to be sent now."""
        latest = self.owner.watch.latest
        if self.owner.watch.trouble:
            self.owner.tell("", f"edits are not sent: {self.owner.watch.trouble}")
        if latest is None:
            return
        if not self._is_asked:
            self._is_asked = True
            self._offered = latest.manifest
            self._awaits = "same"
            self._pending += packed({"do": "begin", "snapshot": latest.id})
        elif self._there is not None:
            self._try_again()
            now = tree_of(latest.manifest) if latest.manifest is not self._offered else self._there
            self._offered = latest.manifest
            if now is not self._there:
                self._queue(edits_between(self._there, now))
                self._there = now

    def _queue(self, edits: Iterable[Edit]) -> None:
        for edit in edits:
            self._edits.pop(edit.path, None)  # what waits is not up to date any more
            self._edits[edit.path] = edit

    def _fill(self) -> bool:
        """Make the next message ready; return whether there is one."""
        while self._edits:
            _, edit = self._edits.popitem(last=False)
            path = os.fsdecode(edit.path)
            if edit.is_gone:
                self._unanswered.append(edit)
                self._pending += packed({"do": "remove", "path": path})
                return True
            found = self.owner.read(edit.path)
            if found is None:
                continue
            kind, content = found
            if self._there is not None:  # it may have changed again since it was looked at
                self._there[edit.path] = told(kind, hash_of(content) if kind != "d" else "-")
            self._unanswered.append(edit)
            self._pending += packed({"do": "put", "path": path, "kind": kind}, content)
            return True
        return False

    def _hear(self, record: Mapping[str, Any], content: bytes) -> None:
        """Take an answer. There is one to each message, in their order: what nobody has asked for
        could go on without end."""
        if self._awaits:
            if self._awaits not in record:
                raise BadFrame(f"it does not answer what is {self._awaits}")
            self._take_comparison(record, content)
        elif not self._unanswered:
            raise BadFrame("it answers what nobody has asked")
        else:
            self._take_note(self._unanswered.popleft(), record)

    def _take_comparison(self, record: Mapping[str, Any], content: bytes) -> None:
        if self._awaits == "same" and record["same"] is not True:
            self._awaits = "differing"
            self._reader.most = len(self._offered) + LARGEST_GONE
            self._pending += packed({"do": "compare"}, self._offered)
            return
        self._awaits, self._reader.most = "", 0
        self._there = tree_of(self._offered)
        self._queue(edits_asked_for(content, self._there))

    def _take_note(self, edit: Edit, record: Mapping[str, Any]) -> None:
        path, note = os.fsdecode(edit.path), str(record.get("note", ""))[:LONGEST]
        if note:
            self.owner.tell(path, f"{path}: {note}")
        else:
            self.owner.is_well(path)
        if note.startswith(NOT_SENT):
            self._try_later(edit)
        else:
            self._failed.pop(edit.path, None)

    def _try_later(self, edit: Edit) -> None:
        assert self._there is not None
        if edit.is_gone == (edit.path in self._there):
            return  # it has changed since, and another edit follows
        if not edit.is_gone:
            self._there[edit.path] = UNKNOWN
        pause = min(self._failed.get(edit.path, Failed(0.0, FIRST_PAUSE / 2)).pause * 2, LAST_PAUSE)
        self._failed[edit.path] = Failed(time.monotonic() + pause, pause)

    def _try_again(self) -> None:
        """Queue what has failed a while ago."""
        assert self._there is not None
        now = time.monotonic()
        for path, failed in self._failed.items():
            if now >= failed.due:
                self._failed[path] = failed._replace(due=math.inf)  # until it is answered
                self._queue([Edit(path, path not in self._there)])
