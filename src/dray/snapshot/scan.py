"""Walks and hashes the tree. An unchanged one costs a stat per file and nothing else."""

from __future__ import annotations

import errno
import marshal
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dray import background
from dray.errors import SnapshotError
from dray.job.model import Snapshot
from dray.job.quantities import show_size
from dray.node.code.packs import CHUNK, hash_of, new_hash
from dray.node.formats import files
from dray.plain_files import special_kind
from dray.snapshot.ignore import TELLTALES, Rules, ancestors, as_rule
from dray.snapshot.stamps import UNSURE, Stamp, stamp_of, to_remember

Progress = Callable[[int, int], None]

CACHE_VERSION = (4, sys.version_info[:2], sys.getfilesystemencoding())
# A change within the file system's tick of our reading would not show in the stamp.
UNSURE_NS = 1_000_000_000
DAY = 86400.0
KEPT_CONTENT = 64 << 20  # contents kept in memory between hashing and packing
SMALL = 4 << 20
TRIES = 3
GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ESTALE)


class _Vanished(Exception):
    """Something was removed or replaced between two looks."""


class Folder:
    """One folder as last seen. ``lines`` are the manifest's, one per name."""

    __slots__ = ("folders", "is_code", "lines", "names", "notes", "path", "size", "stamp", "stamps")

    def __init__(self, path: str, stamp: Stamp) -> None:
        self.path = path
        self.stamp = stamp
        self.names: list[str] = []
        self.stamps: list[Stamp] = []
        self.lines: list[bytes] = []
        self.folders: list[str] = []
        self.notes: list[str] = []
        self.size = 0  # of the files right in it
        self.is_code = True  # False: looked at, and left out for what it holds

    @classmethod
    def from_record(cls, record: tuple[Any, ...]) -> Folder:
        folder = cls.__new__(cls)
        for name, value in zip(cls.__slots__, record, strict=True):
            setattr(folder, name, value)
        return folder

    def record(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def below(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def restamp(self, index: int, stamp: Stamp) -> None:
        self.size += stamp[1] - self.stamps[index][1]
        self.stamps[index] = stamp


class Scanner:
    """Takes snapshots of one tree, remembering in ``cache`` what it has read. ``left_out`` is never
    code, whatever the rules say: outputs, and dray's own folders."""

    def __init__(self, root: Path, left_out: tuple[str, ...], cache: Path, max_size: int) -> None:
        self.root = root
        self.left_out = left_out
        self.max_size = max_size
        name = hash_of(os.fsencode(root) + b"\0" + os.fsencode("\0".join(left_out)))
        self.cache = cache / "trees" / name
        self._last: tuple[_Scan, str] | None = None  # the last walk, and what it has found

    def take(
        self, progress: Progress = lambda done, total: None, remember: bool = True
    ) -> Snapshot:
        """Take a snapshot of the tree as it is now. ``remember=False`` leaves no trace on disk."""
        refuse_unusable_root(self.root)
        for attempt in range(TRIES):
            scan = _Scan(self.root, Rules(self.root, self.left_out), self.max_size)
            scan.recall(self._seen(), trust_listings=attempt == 0)
            self._last = None  # this walk changes what it has listed
            try:
                snapshot = scan.run(progress)
            except _Vanished:
                continue
            self._last = (scan, snapshot.id)
            if remember and scan.changed:
                background.after_reply(lambda: self._save(scan, snapshot))  # noqa: B023
            return snapshot
        raise SnapshotError(
            f"files in {self.root} come and go faster than they can be read",
            hint="Add what another program writes there to .drayignore, or declare it as --output.",
        )

    def _seen(self) -> list[Any]:
        """Return what the last walk has seen: of this scanner, or of one before it."""
        return self._last[0].seen(self._last[1]) if self._last else self._load()

    def _load(self) -> list[Any]:
        """Return what was remembered; nothing if it is missing or cannot be read."""
        try:
            version, *record = marshal.loads(self.cache.read_bytes())
        except (OSError, ValueError, EOFError, TypeError):
            return []
        return record if version == CACHE_VERSION else []

    def _save(self, scan: _Scan, snapshot: Snapshot) -> None:
        record = (CACHE_VERSION, *scan.seen(snapshot.id))
        with suppress(OSError):  # no room to remember is no reason not to run
            files.make_folder(str(self.cache.parent))
            files.write_bytes(str(self.cache), marshal.dumps(record), durable=False)
            files.sweep_temporaries(str(self.cache.parent), time.time() - DAY)


class _Scan:
    """One walk over the tree."""

    def __init__(self, root: Path, rules: Rules, max_size: int) -> None:
        self.root = str(root)
        self.rules = rules
        self.max_size = max_size
        # Before the first look: what is read now and changed right after must not be trusted, even
        # if the rest takes long to read.
        self.fresh = time.time_ns() - UNSURE_NS
        self.changed = False  # something is to be remembered
        self.trust_listings = True
        self.folders: list[Folder] = []
        self.to_read: list[tuple[Folder, int]] = []
        self.contents: dict[str, bytes] = {}
        self.kept = 0
        self.old: dict[str, Folder] = {}
        self.old_id = ""

    def seen(self, snapshot: str) -> list[Any]:
        """Return what the next walk may reuse."""
        folders = [folder.record() for folder in self.folders]
        return [self.rules.seen(self.fresh), snapshot, folders]

    def recall(self, record: list[Any], trust_listings: bool) -> None:
        """Reuse what an earlier walk read, and what it listed if its rules still hold."""
        if not record:
            return
        seen, self.old_id, folders = record
        self.old = {one.path: one for one in map(Folder.from_record, folders)}
        self.trust_listings = trust_listings and self.rules.recall(seen)

    def run(self, progress: Progress) -> Snapshot:
        self._walk()
        size = sum(folder.size for folder in self.folders)
        if size > self.max_size:
            raise too_big(self.folders, size, self.max_size, self.rules)
        self._read_changed(progress)
        manifest = b"".join(self._lines())
        unchanged = self.old_id and not self.changed
        snapshot = self.old_id if unchanged else hash_of(manifest)
        self._doubt_fresh_stamps()
        return Snapshot(
            id=snapshot,
            project=self.root,
            manifest=manifest,
            size=sum(folder.size for folder in self.folders),
            files=sum(len(folder.names) for folder in self.folders),
            warnings=(
                *self.rules.notes,
                *(note for folder in self.folders for note in folder.notes),
            ),
            contents=self.contents,
        )

    def _lines(self) -> list[bytes]:
        lines = []
        for folder in self.folders:
            lines.extend(folder.lines)
            if folder.path and not folder.names and folder.is_code:
                lines.append(b"d - 0 %s\0" % os.fsencode(folder.path))
        return lines

    # -- listing ------------------------------------------------------------------------------

    def _walk(self) -> None:
        todo = [""]
        while todo:
            folder = self._visit(todo.pop())
            self.folders.append(folder)
            if folder.folders:
                todo.extend(map(folder.below, reversed(folder.folders)))
        if len(self.folders) != len(self.old):
            self.changed = True

    def _visit(self, path: str) -> Folder:
        with reading(path):
            fd = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                return self._look(path, fd)
            finally:
                os.close(fd)

    def _look(self, path: str, fd: int) -> Folder:
        stamp = stamp_of(os.fstat(fd))
        old = self.old.get(path)
        if old is None or old.stamp != stamp or not self.trust_listings:
            self.changed = True
            return self._list(Folder(path, stamp), fd, old)
        self._compare(old, fd)
        return old

    def _compare(self, folder: Folder, fd: int) -> None:
        """Find the files that changed since they were last read. This is the hot loop."""
        lstat = os.lstat
        found = [lstat(name, dir_fd=fd) for name in folder.names]
        stamps = [(now.st_ctime_ns, now.st_size, now.st_ino) for now in found]
        if stamps == folder.stamps:
            return
        for index, stamp in enumerate(stamps):
            if stamp != folder.stamps[index]:
                folder.restamp(index, stamp)
                self.to_read.append((folder, index))

    def _list(self, folder: Folder, fd: int, old: Folder | None) -> Folder:
        with os.scandir(fd) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        names = {name for name, _ in found}
        if folder.path and not names.isdisjoint(TELLTALES):
            folder.is_code = False
            return folder
        if self.rules.file_name in names:
            self._add_rules(f"{self.root}/{folder.below(self.rules.file_name)}")
        if ".git" in names and self.rules.uses_git:
            self._add_repository(folder.path)
        rules = self.rules.inside(folder.path)
        seen = (
            dict(zip(old.names, zip(old.stamps, old.lines, strict=True), strict=True))
            if old
            else {}
        )
        for name, is_folder in found:
            if rules.leaves_out(name, is_folder):
                continue
            if is_folder:
                folder.folders.append(name)
            else:
                self._add(folder, name, fd, seen.get(name))
        return folder

    def _add_rules(self, path: str) -> None:
        if path not in self.rules.files:
            self.rules.add_file(path)
            self.trust_listings = False  # what is below was judged without this file

    def _add_repository(self, place: str) -> None:
        if place not in self.rules.repositories:
            self.rules.add_repository(place, f"{self.root}/{place}/.git")
            self.trust_listings = False  # what is below was judged by the rules above

    def _add(self, folder: Folder, name: str, fd: int, seen: tuple[Stamp, bytes] | None) -> None:
        path = folder.below(name)
        try:
            status = os.lstat(name, dir_fd=fd)
            note, is_taken = judge(path, status.st_mode, fd)
        except FileNotFoundError:
            return  # a file that comes and goes: the tree as it is now has none
        folder.notes.extend(note)
        if not is_taken:
            return
        stamp = stamp_of(status)
        folder.names.append(name)
        folder.stamps.append(stamp)
        folder.size += stamp[1]
        if seen is not None and seen[0] == stamp:
            folder.lines.append(seen[1])
        else:
            folder.lines.append(b"")
            self.to_read.append((folder, len(folder.names) - 1))

    # -- reading ------------------------------------------------------------------------------

    def _read_changed(self, progress: Progress) -> None:
        total = sum(folder.stamps[index][1] for folder, index in self.to_read)
        done = 0
        for folder, index in self.to_read:
            path = folder.below(folder.names[index])
            line, stamp = self._read(path)
            self.changed = True
            folder.lines[index] = line
            folder.restamp(index, stamp)
            done += stamp[1]
            progress(done, total)

    def _read(self, path: str) -> tuple[bytes, Stamp]:
        full = f"{self.root}/{path}"
        for attempt in range(TRIES):
            with reading(path):
                before = os.lstat(full)
                if stat.S_ISLNK(before.st_mode):
                    kind, digest = "l", self._keep(os.fsencode(os.readlink(full)))
                else:
                    kind = "x" if before.st_mode & 0o111 else "f"
                    digest = self._hash_file(full, before.st_size)
                after = os.lstat(full)
            if stamp_of(before) == stamp_of(after):
                size = after.st_size
                line = f"{kind} {digest} {size} ".encode() + os.fsencode(path) + b"\0"
                return line, stamp_of(after)
            time.sleep(0.05 * (attempt + 1))
        raise SnapshotError(
            f"{path} changes while it is read",
            hint=f"If a program writes to it, declare it as --output or add it to .drayignore: "
            f"{as_rule(path)}",
        )

    def _hash_file(self, path: str, size: int) -> str:
        with open(path, "rb", buffering=0) as file:
            if size <= SMALL:
                return self._keep(file.read())
            hasher = new_hash()
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
            return hasher.hexdigest()

    def _keep(self, content: bytes) -> str:
        digest = hash_of(content)
        if digest not in self.contents and self.kept + len(content) <= KEPT_CONTENT:
            self.contents[digest] = content
            self.kept += len(content)
        return digest

    def _doubt_fresh_stamps(self) -> None:
        """Forget the stamps of what changed a moment ago: it may change again without its stamp
        moving."""
        if not self.changed:
            return
        for folder in self.folders:
            folder.stamp = to_remember(folder.stamp, self.fresh)
            for index, stamp in enumerate(folder.stamps):
                if stamp[0] > self.fresh:
                    folder.stamps[index] = (UNSURE[0], stamp[1], UNSURE[2])


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn errors of the operating system on the way to ``path`` into dray's."""
    try:
        yield
    except PermissionError:
        raise unreadable(path) from None
    except OSError as error:
        if error.errno in GONE:
            raise _Vanished from None
        raise


def refuse_unusable_root(root: Path) -> None:
    if os.path.realpath(root) in ("/", os.path.realpath(os.path.expanduser("~"))):
        raise SnapshotError(
            f"{root} is not a project: all of it would be taken as code",
            hint="Change into the project's folder, or use --no-snapshot for a command that needs "
            "no code.",
        )
    if not os.path.isdir(root):
        raise SnapshotError(f"{root} is not a folder: there is no code to take")


def unreadable(path: str) -> SnapshotError:
    if not path:
        return SnapshotError("the project's folder cannot be read (permission denied)")
    return SnapshotError(
        f"{path} cannot be read (permission denied)",
        hint=f"Change its permissions, or leave it out with a line in .drayignore: {as_rule(path)}",
    )


def too_big(folders: list[Folder], size: int, max_size: int, rules: Rules) -> SnapshotError:
    parts = biggest_parts(folders)
    listing = "\n".join(f"  {show_size(amount):>9}  {path}" for path, amount in parts)
    replaces = ""
    if rules.file_name == ".gitignore" and rules.files:
        replaces = " (which takes the place of .gitignore: copy its lines)"
    return SnapshotError(
        f"the tree has {show_size(size)}, more than the {show_size(max_size)} that a snapshot may "
        f"have. The biggest parts:\n{listing}",
        hint=f"Leave data out with a line in .drayignore{replaces}, such as "
        f"{as_rule(parts[0][0])} — or raise max_size under [snapshot] in dray.toml.",
    )


def biggest_parts(folders: list[Folder]) -> list[tuple[str, int]]:
    """Return the folders and files to leave out, as deep as one part holds most of its
    surroundings."""
    sizes: dict[str, int] = {}
    for folder in folders:
        for name, stamp in zip(folder.names, folder.stamps, strict=True):
            sizes[folder.below(name)] = stamp[1]
        for path in ancestors(folder.path)[:-1]:
            sizes[f"{path}/"] = sizes.get(f"{path}/", 0) + folder.size
    around = {
        f"{os.path.dirname(path.rstrip('/'))}/"
        for path, amount in sizes.items()
        if 2 * amount > sizes.get(f"{os.path.dirname(path.rstrip('/'))}/", 0)
    }
    chosen: dict[str, int] = {}
    for path, amount in sorted(sizes.items(), key=lambda item: -item[1]):
        inside_chosen = any(one.endswith("/") and path.startswith(one) for one in chosen)
        if path not in around and not inside_chosen and len(chosen) < 5:
            chosen[path] = amount
    return list(chosen.items())


def judge(path: str, mode: int, fd: int) -> tuple[list[str], bool]:
    """Return what to say about something that is not a folder, and whether it is taken."""
    if stat.S_ISREG(mode):
        return [], True
    if stat.S_ISDIR(mode):
        raise _Vanished  # it was no folder when it was listed
    if not stat.S_ISLNK(mode):
        return [f"left out: {path} is a {special_kind(mode)}, not a file"], False
    target = os.readlink(os.path.basename(path), dir_fd=fd)
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if target.startswith("/") or place == ".." or place.startswith("../"):
        note = f"{path} is a link out of the tree (to {target}): it may lead nowhere in the job"
        return [note], True
    return [], True
