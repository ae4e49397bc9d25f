"""Edits of the laptop, put into the work tree of a session.

What dray itself has put there (the snapshot, and edits since) may be replaced by the next edit, or
removed. All else is the session's own: an edit of the same name takes its place, and the session's
file stays beside it under another name; a removal leaves it. Nothing is written through a link, and
no link is made that leads out of the tree: what is edited may be a repository of anybody's.
"""

import errno
import os
import stat

from ..code.packs import CHUNK, Damaged, Packs, entries, hash_of, new_hash
from ..formats import files
from ..formats.links import leads_out
from .messages import LARGEST_CONTENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple  # noqa: F401

    from ..code.packs import Entry

KINDS = ("f", "x", "l", "d")
MODES = {"f": 0o644, "x": 0o755}
OURS = b".dray-"  # how dray's own files in a work tree begin
ASIDE = b".session"  # what the session's own file is called afterwards
MOST_ASIDE = 1000
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
TOO_LARGE = "-"  # in place of a hash
ODD = "?"  # neither a file, a link nor a folder


class Refused(Exception):
    """An edit is not carried out. Says why."""


class Edits:
    """``known`` is what dray has put into the tree, by path: its kind and hash. What differs from
    the snapshot is written down in ``record``, for the next server and for the attempt's end."""

    def __init__(self, work: str, root: str, snapshot: "Optional[str]", record: str) -> None:
        self.work = work
        self.snapshot = snapshot
        self._record = record
        self._is_written = True
        self.known = {}  # type: Dict[bytes, str]
        self._large = {}  # type: Dict[bytes, int]  # what is larger than any edit, with its size
        for one in entries_of(root, snapshot):
            self.known[one.path] = told(one.kind, one.hash)
            if one.size > LARGEST_CONTENT:
                self._large[one.path] = one.size
        self.changed = read(record)
        for path, now in self.changed.items():
            if now is None:
                self.known.pop(path, None)
            else:
                self.known[path] = now

    def is_at(self, snapshot: str) -> bool:
        """Return whether the tree is as dray has put it there from this snapshot."""
        return snapshot == self.snapshot and not self.changed

    def differing(self, manifest: bytes) -> "Tuple[List[bytes], List[bytes]]":
        """Return what has to be put there, and removed, so that the tree is as a manifest says."""
        wanted = {one.path: told(one.kind, one.hash) for one in entries(manifest)}
        gone = [path for path in self.known if path not in wanted]
        return [path for path in wanted if self.known.get(path) != wanted[path]], gone

    def put(self, path: bytes, kind: str, content: bytes) -> str:
        """Put a file, link or folder there. Return what the user has to know, or ''."""
        require_inside(path)
        if kind not in KINDS:
            raise Refused("it is of no kind that is known")
        if kind == "l":
            require_link_inside(path, content)
        new = told(kind, hash_of(content) if kind != "d" else "-")
        note = ""
        with Parent(self.work, path, make=True) as parent:
            now = parent.state(self._most(path))
            if now is None:
                parent.write(kind, content, keep=False)
            elif now != new:
                if now == ODD or now.startswith("d") or kind == "d":
                    raise Refused("there is something else of that name in the session")
                is_own = not is_same(now, self.known.get(path))
                note = parent.write(kind, content, keep=is_own)
        self._remember(path, new)
        return note

    def remove(self, path: bytes) -> str:
        """Remove what dray has put there. Return what the user has to know, or ''."""
        require_inside(path)
        before, note = self.known.get(path), ""
        try:
            with Parent(self.work, path, make=False) as parent:
                now = parent.state(self._most(path))
                if now is not None and is_same(now, before):
                    parent.remove(now)
                    self._remove_empty(path)
                elif now is not None and not now.startswith("d"):
                    note = "it was changed in the session, and stays there"
        except FileNotFoundError:  # the session has removed its folder
            pass
        self._remember(path, None)
        return note

    def _most(self, path: bytes) -> int:
        """Return how large what dray has put there can be."""
        return max(LARGEST_CONTENT, self._large.get(path, 0))

    def _remove_empty(self, path: bytes) -> None:
        """Remove the folders above what was removed, as far as nothing else is in them: an empty
        one can still be imported."""
        folder = path.rpartition(b"/")[0]
        while folder:
            with Parent(self.work, folder, make=False) as parent:
                if not parent.remove("d"):
                    return
            folder = folder.rpartition(b"/")[0]

    def _remember(self, path: bytes, now: "Optional[str]") -> None:
        if now is None:
            self.known.pop(path, None)
        else:
            self.known[path] = now
        self.changed[path] = now
        self._is_written = False

    def write_down(self) -> None:
        if self._is_written:
            return
        written = {os.fsdecode(path): now for path, now in self.changed.items()}
        files.write_json(self._record, written, durable=False)
        self._is_written = True


class Parent:
    """The folder of a path below the tree, reached without following a link."""

    def __init__(self, work: str, path: bytes, make: bool) -> None:
        self.path = path
        self.name = path.rpartition(b"/")[2]
        self.fd = os.open(work, FOLDER)
        try:
            for part in path.split(b"/")[:-1]:
                self._enter(part, make)
        except BaseException:
            os.close(self.fd)
            raise

    def _enter(self, part: bytes, make: bool) -> None:
        if make:
            try:
                os.mkdir(part, 0o755, dir_fd=self.fd)
            except FileExistsError:
                pass
        try:
            inner = os.open(part, FOLDER, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                name = os.fsdecode(part)
                raise Refused("{} is a link or a file in the session, no folder".format(name))
            raise
        os.close(self.fd)
        self.fd = inner

    def __enter__(self) -> "Parent":
        return self

    def __exit__(self, *_: "Any") -> None:
        os.close(self.fd)

    def state(self, most: int) -> "Optional[str]":
        """Return what is there, in the words of a manifest; None where nothing is. A file of more
        than ``most`` bytes is none that dray has put there, and reading it may take for ever."""
        try:
            about = os.lstat(self.name, dir_fd=self.fd)
            if stat.S_ISLNK(about.st_mode):
                return told("l", hash_of(os.readlink(self.name, dir_fd=self.fd)))
            if stat.S_ISDIR(about.st_mode):
                return told("d", "-")
            if not stat.S_ISREG(about.st_mode):
                return ODD
            digest = self._digest() if about.st_size <= most else TOO_LARGE
            return told("x" if about.st_mode & 0o100 else "f", digest)
        except FileNotFoundError:
            return None

    def _digest(self) -> str:
        fd = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd)
        hasher = new_hash()
        with os.fdopen(fd, "rb", 0) as file:
            piece = file.read(CHUNK)
            while piece:
                hasher.update(piece)
                piece = file.read(CHUNK)
        return hasher.hexdigest()

    def write(self, kind: str, content: bytes, keep: bool) -> str:
        """Put it there, whole or not at all; with ``keep``, what is there gets another name. Return
        what the user has to know."""
        if kind == "d":
            os.mkdir(self.name, 0o755, dir_fd=self.fd)
            return ""
        temporary = OURS + b"edit-" + os.urandom(6).hex().encode("ascii")
        try:
            if kind == "l":
                os.symlink(content, temporary, dir_fd=self.fd)
            else:
                self._write_file(temporary, MODES[kind], content)
            return self._put_in_place(temporary, keep)
        except BaseException:
            try:
                os.unlink(temporary, dir_fd=self.fd)
            except OSError:
                pass
            raise

    def _put_in_place(self, temporary: bytes, keep: bool) -> str:
        other = self._set_aside() if keep else b""
        try:
            self._rename(temporary, self.name)
        except BaseException:
            if other:
                self._rename(other, self.name)
            raise
        text = "it was changed in the session, too; the session's is {} there now"
        return text.format(os.fsdecode(other)) if other else ""

    def _set_aside(self) -> bytes:
        """Give the session's own file another name, and return that."""
        for number in range(1, MOST_ASIDE):
            other = self.name + ASIDE + (b"-%d" % number if number > 1 else b"")
            try:
                os.lstat(other, dir_fd=self.fd)
            except FileNotFoundError:
                self._rename(self.name, other)
                return other
        raise Refused("it was changed in the session, too, again and again")

    def _rename(self, name: bytes, new: bytes) -> None:
        os.rename(name, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def _write_file(self, name: bytes, mode: int, content: bytes) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=self.fd)
        with os.fdopen(fd, "wb") as file:
            file.write(content)

    def remove(self, now: str) -> bool:
        """Remove what is there; return False for a folder with something in it."""
        try:
            if now.startswith("d"):
                os.rmdir(self.name, dir_fd=self.fd)
            else:
                os.unlink(self.name, dir_fd=self.fd)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True


def told(kind: str, digest: str) -> str:
    return "{} {}".format(kind, digest)


def is_same(now: str, known: "Optional[str]") -> bool:
    """Return whether this is what dray has put there; a change of the mode alone is none."""
    return known is not None and now.replace("x", "f", 1) == known.replace("x", "f", 1)


def require_inside(path: bytes) -> None:
    parts = path.split(b"/")
    if path.startswith(b"/") or b"\0" in path or not {b"", b".", b".."}.isdisjoint(parts):
        raise Refused("it leads out of the work tree")
    if any(part.startswith(OURS) for part in parts):
        raise Refused("names that begin with .dray- are dray's own")


def require_link_inside(path: bytes, target: bytes) -> None:
    """Refuse a link that may lead out of the tree, by what it says."""
    if leads_out(path, target):
        raise Refused("it is a link that leads out of the work tree, or may")


def entries_of(root: str, snapshot: "Optional[str]") -> "Iterable[Entry]":
    if not snapshot:
        return ()
    try:
        return entries(Packs(root).read_snapshot(snapshot)[1])
    except (OSError, Damaged):  # all that is there counts as the session's own then
        return ()


def read(record: str) -> "Dict[bytes, Optional[str]]":
    """Read what was put there since the snapshot. The session itself can write it."""
    found = files.read_record(record, 64 << 20) or {}
    return {
        os.fsencode(path): now
        for path, now in found.items()
        if now is None or (isinstance(now, str) and now[:2] in ("f ", "x ", "l ", "d "))
    }
