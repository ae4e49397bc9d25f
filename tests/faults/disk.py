"""What a disk holds after a power cut, rebuilt from the log of everything that was written.

A write is certain once its file was synced, and a name once its folder was. What was done since may
be there or not: of each file and of each folder some beginning of it, by chance. A rename is there
as a whole or not at all. Two kinds of disk differ in what a sync makes certain:

- ``strict`` promises what POSIX does: the file's data, or the folder's names, and nothing else.
- ``journal`` keeps all names in one order, as ext4 and XFS do: a sync makes certain every name that
  was made or removed before.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Call

MODELS = ("strict", "journal")
TOP = 0  # the inode of the folder that was there before


@dataclass
class Change:
    """One that concerns names: in each of these folders a name goes, or comes to mean an inode."""

    edits: tuple[tuple[int, str, int | None], ...]  # folder, name, inode

    @property
    def folders(self) -> set[int]:
        return {folder for folder, _, _ in self.edits}


@dataclass
class Inode:
    kind: str  # file, folder, link
    text: bytes = b""  # of a link
    mode: int | None = None
    certain: bytes = b""  # a file's content when it was last synced
    since: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut to that length
    changed: int = 0


class Disk:
    def __init__(self, top: Path, model: str) -> None:
        self.top = top
        self.model = model
        self.inodes = {TOP: Inode("folder")}
        # A file system gives a number again once its file has gone, whose name may still be on the
        # disk: here each new file gets one of its own.
        self.meaning: dict[int, int] = {}
        self.now: dict[int, dict[str, int]] = {TOP: {}}  # the names that programs see
        self.certain: dict[int, dict[str, int]] = {TOP: {}}
        self.pending: list[Change] = []

    # -- what programs do ---------------------------------------------------------------------

    def replay(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call.result >= 0 and call.what != "say":
                self._apply(call)

    def _apply(self, call: Call) -> None:
        act = getattr(self, f"_{call.name}", None)
        assert act is not None, f"the replay does not know {call.what}"
        act(call)

    def _place(self, path: str) -> tuple[int, str]:
        """The folder's inode and the name in it."""
        *folders, name = Path(path).relative_to(self.top).parts
        at = TOP
        for part in folders:
            at = self.now[at][part]
        return at, name

    def _find(self, path: str) -> int:
        if Path(path) == self.top:
            return TOP
        folder, name = self._place(path)
        return self.now[folder][name]

    def _change(self, *edits: tuple[tuple[int, str], int | None]) -> None:
        change = Change(tuple((folder, name, inode) for (folder, name), inode in edits))
        make(self.now, change)
        self.pending.append(change)

    def _new(self, call: Call, kind: str, text: bytes = b"") -> None:
        number = len(self.inodes)
        self.meaning[call.inode] = number
        self.inodes[number] = Inode(kind, text, changed=call.time)
        if kind == "folder":
            self.now[number], self.certain[number] = {}, {}
        self._change((self._place(call.path), number))

    def _mkdir(self, call: Call) -> None:
        self._new(call, "folder")

    def _symlink(self, call: Call) -> None:
        self._new(call, "link", call.data)

    def _open(self, call: Call) -> None:
        if call.created:
            self._new(call, "file")
        elif call.offset:
            self._file(call).since.append((0, None))

    def _file(self, call: Call) -> Inode:
        """By its number: it may have been renamed or removed since it was opened."""
        inode = self.inodes[self.meaning[call.inode]]
        inode.changed = call.time
        return inode

    def _write(self, call: Call) -> None:
        self._file(call).since.append((call.offset, call.data[: call.result]))

    _pwrite = _write

    def _ftruncate(self, call: Call) -> None:
        self._file(call).since.append((call.offset, None))

    def _rename(self, call: Call) -> None:
        gone, new = self._place(call.other), self._place(call.path)
        self._change((gone, None), (new, self.now[gone[0]][gone[1]]))

    def _link(self, call: Call) -> None:
        self._change((self._place(call.path), self._find(call.other)))

    def _unlink(self, call: Call) -> None:
        self._change((self._place(call.path), None))

    _rmdir = _unlink

    def _ignore(self, call: Call) -> None:
        """Modes and times are not what a cut is about; processes are gone anyway."""

    _chmod = _fchmod = _utimens = _futimens = _fork = _posix_spawn = _ignore

    def _fsync(self, call: Call) -> None:
        number = self.meaning.get(call.inode, TOP)
        inode = self.inodes[number]
        if inode.kind == "file":
            inode.certain, inode.since = content(inode.certain, inode.since), []
        if self.model == "journal":
            self._settle(self.pending)
        elif inode.kind == "folder":
            self._settle(needed_for(number, self.pending))

    _fdatasync = _fsync

    def _settle(self, changes: Sequence[Change]) -> None:
        for change in changes:
            make(self.certain, change)
        self.pending = [change for change in self.pending if change not in changes]

    # -- the cut ------------------------------------------------------------------------------

    def cut(self, chance: random.Random | None) -> None:
        """Decide what of the uncertain is there; without chance, all of it."""
        if chance is None:
            kept = self.pending
        elif self.model == "journal":
            kept = self.pending[: chance.randint(0, len(self.pending))]
        else:
            kept = beginning_of_each(self.pending, chance)
        for change in kept:
            make(self.certain, change)
        for inode in self.inodes.values():
            inode.certain = content(inode.certain, survivors(inode.since, chance))

    def write(self, newest: int, now: int) -> None:
        """Put it where it was. A file that changed when the log ended changes ``now``."""
        for name in os.listdir(self.top):
            if self._is_ours(name):
                shutil.rmtree(self.top / name)
        self._write_folder(TOP, self.top, now - newest)

    def _is_ours(self, name: str) -> bool:
        return name in self.now[TOP] or name in self.certain[TOP]

    def _write_folder(self, folder: int, path: Path, shift: int) -> None:
        for name, number in self.certain[folder].items():
            inode, place = self.inodes[number], path / name
            if inode.kind == "folder":
                place.mkdir(mode=0o700)
                self._write_folder(number, place, shift)
            elif inode.kind == "link":
                os.symlink(inode.text, place)
            else:
                place.write_bytes(inode.certain)
                place.chmod(0o600)
                os.utime(place, ns=(inode.changed + shift, inode.changed + shift))


def make(names: dict[int, dict[str, int]], change: Change) -> None:
    for folder, name, inode in change.edits:
        if inode is None:
            names[folder].pop(name, None)
        else:
            names[folder][name] = inode


def content(before: bytes, changes: Iterable[tuple[int, bytes | None]]) -> bytes:
    text = bytearray(before)
    for offset, data in changes:
        if len(text) < offset:
            text += bytes(offset - len(text))
        if data is None:
            del text[offset:]
        else:
            text[offset : offset + len(data)] = data
    return bytes(text)


def survivors(
    changes: list[tuple[int, bytes | None]], chance: random.Random | None
) -> list[tuple[int, bytes | None]]:
    """A beginning; of the last one maybe only a part."""
    if chance is None or not changes:
        return changes
    kept = changes[: chance.randint(0, len(changes))]
    if kept and kept[-1][1] and chance.random() < 0.5:
        offset, data = kept[-1]
        kept = [*kept[:-1], (offset, data[: chance.randrange(len(data))] if data else data)]
    return kept


def needed_for(folder: int, pending: Sequence[Change]) -> list[Change]:
    """What has to be certain where this folder is: all that was done in it, and what was done
    before that in the folders from which something was moved to it."""
    needed: list[Change] = []
    folders = {folder}
    for change in reversed(pending):
        if change.folders & folders:
            folders |= change.folders
            needed.append(change)
    return needed[::-1]


def beginning_of_each(pending: Sequence[Change], chance: random.Random) -> list[Change]:
    """Of each folder some beginning of what was done in it; a move needs both of its folders."""
    over: set[int] = set()
    kept = []
    share = chance.random()
    for change in pending:
        if change.folders & over or chance.random() > share:
            over |= change.folders
        else:
            kept.append(change)
    return kept


def tree_of(top: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Every file and link below, for a comparison."""
    found = {}
    for name in names:
        for path in (top / name).rglob("*"):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[str(path.relative_to(top))] = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(mode):
                found[str(path.relative_to(top))] = path.read_bytes()
            else:
                found[str(path.relative_to(top))] = b""
    return found
