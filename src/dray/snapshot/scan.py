"""Walking and hashing the tree; an unchanged one costs a stat per file and nothing else."""

from __future__ import annotations

import marshal
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dray.errors import SnapshotError
from dray.model import Snapshot
from dray.node import files
from dray.node.packs import CHUNK, hash_of, new_hash
from dray.quantities import show_size
from dray.snapshot.ignore import Rules, RulesChanged, Stamp, stamp_of

Progress = Callable[[int, int], None]

CACHE_VERSION = (1, sys.version_info[:2])
UNSURE: Stamp = (-1, -1, -1)  # never equal to a real one: looked at again next time
# A change within the file system's tick of our reading would not show in the stamp.
UNSURE_NS = 1_000_000_000
KEPT_CONTENT = 64 << 20  # contents kept in memory between hashing and packing
SMALL = 4 << 20
TRIES = 3


class _Vanished(Exception):
    """Something was removed between two looks."""


class Folder:
    """One folder as last seen. ``lines`` are the manifest's, one per name."""

    __slots__ = ("folders", "lines", "names", "notes", "path", "stamp", "stamps")

    def __init__(
        self,
        path: str,
        stamp: Stamp,
        names: list[str],
        stamps: list[Stamp],
        lines: list[bytes],
        folders: list[str],
        notes: list[str],
    ) -> None:
        self.path = path
        self.stamp = stamp
        self.names = names
        self.stamps = stamps
        self.lines = lines
        self.folders = folders
        self.notes = notes

    def record(self) -> tuple[object, ...]:
        return (
            self.path,
            self.stamp,
            self.names,
            self.stamps,
            self.lines,
            self.folders,
            self.notes,
        )


class Scanner:
    """Makes snapshots of one tree, remembering in ``cache`` what it has read."""

    def __init__(self, root: Path, outputs: tuple[str, ...], cache: Path, max_size: int) -> None:
        self.root = root
        self.outputs = outputs
        self.max_size = max_size
        name = hash_of(os.fsencode(root) + b"\0" + "\0".join(outputs).encode())
        self.cache = cache / "trees" / name

    def take(
        self, progress: Progress = lambda done, total: None, remember: bool = True
    ) -> Snapshot:
        """The tree as it is now. ``remember=False`` leaves no trace on disk."""
        refuse_hopeless_root(self.root)
        for _ in range(TRIES):
            scan = _Scan(self.root, Rules(self.root, self.outputs), self._load(), self.max_size)
            try:
                snapshot = scan.run(progress)
            except (RulesChanged, _Vanished):
                self.cache.unlink(missing_ok=True)
                continue
            if remember and scan.changed:
                self._save(scan, snapshot)
            return snapshot
        raise SnapshotError(
            f"files in {self.root} come and go faster than they can be read",
            hint="Add what another program writes there to .drayignore, or declare it as --output.",
        )

    def _load(self) -> tuple[object, ...] | None:
        try:
            version, *record = marshal.loads(self.cache.read_bytes())
        except (OSError, ValueError, EOFError, TypeError):
            return None
        return tuple(record) if version == CACHE_VERSION else None

    def _save(self, scan: _Scan, snapshot: Snapshot) -> None:
        folders = [folder.record() for folder in scan.folders]
        record = (
            CACHE_VERSION,
            scan.rules.file_name,
            scan.rules.files,
            snapshot.id,
            snapshot.manifest,
            folders,
        )
        files.make_folder(str(self.cache.parent))
        files.write_bytes(str(self.cache), marshal.dumps(record), durable=False)


class _Scan:
    """One walk."""

    def __init__(
        self, root: Path, rules: Rules, cached: tuple[object, ...] | None, max_size: int
    ) -> None:
        self.root = str(root)
        self.rules = rules
        self.max_size = max_size
        self.changed = False  # something is to be remembered
        self.folders: list[Folder] = []
        self.to_read: list[tuple[Folder, int]] = []
        self.contents: dict[str, bytes] = {}
        self.kept = 0
        self.old: dict[str, Folder] = {}
        self.old_id, self.old_manifest = "", b""
        if cached is not None:
            self._recall(cached)

    def _recall(self, cached: tuple[object, ...]) -> None:
        file_name, rule_files, snapshot, manifest, records = cached
        known = dict(self.rules.files)
        self.rules.files.update(rule_files)  # type: ignore[call-overload]
        if file_name != self.rules.file_name or not self.rules.still_hold():
            self.rules.files = known
            return
        self.old_id, self.old_manifest = snapshot, manifest  # type: ignore[assignment]
        self.old = {record[0]: Folder(*record) for record in records}  # type: ignore[attr-defined]

    def run(self, progress: Progress) -> Snapshot:
        self._walk()
        size = sum(stamp[1] for folder in self.folders for stamp in folder.stamps)
        count = sum(len(folder.names) for folder in self.folders)
        if size > self.max_size:
            raise too_big(self.folders, size, self.max_size)
        self._read_changed(progress)
        if self.old_id and not self.changed:
            snapshot, manifest = self.old_id, self.old_manifest
        else:
            manifest = b"".join(self._lines())
            snapshot = hash_of(manifest)
        self._doubt_fresh_stamps()
        return Snapshot(
            id=snapshot,
            project=self.root,
            manifest=manifest,
            size=size,
            files=count,
            warnings=tuple(note for folder in self.folders for note in folder.notes),
            contents=self.contents,
        )

    def _lines(self) -> list[bytes]:
        lines = []
        for folder in self.folders:
            lines.extend(folder.lines)
            if folder.path and not folder.names and not folder.folders:
                lines.append(b"d - 0 %s\0" % os.fsencode(folder.path))
        return lines

    # -- listing ------------------------------------------------------------------------------

    def _walk(self) -> None:
        todo = [""]
        while todo:
            folder = self._visit(todo.pop())
            self.folders.append(folder)
            prefix = f"{folder.path}/" if folder.path else ""
            todo.extend(prefix + name for name in reversed(folder.folders))
        if len(self.folders) != len(self.old):
            self.changed = True

    def _visit(self, path: str) -> Folder:
        old = self.old.get(path)
        try:
            fd = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except PermissionError:
            raise unreadable(path) from None
        except OSError:
            if path:
                raise _Vanished from None
            raise
        try:
            stamp = stamp_of(os.fstat(fd))
            if old is None or old.stamp != stamp:
                return self._list(path, stamp, fd, old)
            self._compare(old, fd)
            return old
        finally:
            os.close(fd)

    def _compare(self, folder: Folder, fd: int) -> None:
        """Find the files that changed since they were last read. This is the hot loop."""
        lstat, stamps = os.lstat, folder.stamps
        try:
            for index, name in enumerate(folder.names):
                now = lstat(name, dir_fd=fd)
                if (now.st_ctime_ns, now.st_size, now.st_ino) != stamps[index]:
                    stamps[index] = stamp_of(now)
                    self.to_read.append((folder, index))
        except FileNotFoundError:
            raise _Vanished from None

    def _list(self, path: str, stamp: Stamp, fd: int, old: Folder | None) -> Folder:
        self.changed = True
        seen = (
            dict(zip(old.names, zip(old.stamps, old.lines, strict=True), strict=True))
            if old
            else {}
        )
        folder = Folder(path, stamp, [], [], [], [], [])
        prefix = f"{path}/" if path else ""
        with os.scandir(fd) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        if any(entry.name == self.rules.file_name for entry in found):
            self._note_rules(f"{self.root}/{prefix}{self.rules.file_name}")
        for entry in found:
            is_folder = entry.is_dir(follow_symlinks=False)
            if self.rules.leaves_out(prefix + entry.name, is_folder):
                continue
            if is_folder:
                folder.folders.append(entry.name)
            else:
                self._add(folder, entry, fd, seen.get(entry.name))
        return folder

    def _note_rules(self, path: str) -> None:
        if path not in self.rules.files:
            self.rules.note(path)
            if self.old:  # what was remembered was judged without this file
                raise RulesChanged

    def _add(
        self, folder: Folder, entry: os.DirEntry[str], fd: int, seen: tuple[Stamp, bytes] | None
    ) -> None:
        path = f"{folder.path}/{entry.name}" if folder.path else entry.name
        try:
            status = os.lstat(entry.name, dir_fd=fd)
        except FileNotFoundError:
            raise _Vanished from None
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            folder.notes.append(f"left out: {path} is a {special_kind(status.st_mode)}, not a file")
            return
        stamp = stamp_of(status)
        folder.names.append(entry.name)
        folder.stamps.append(stamp)
        if seen is not None and seen[0] == stamp:
            folder.lines.append(seen[1])
        else:
            folder.lines.append(b"")
            self.to_read.append((folder, len(folder.names) - 1))
        if stat.S_ISLNK(status.st_mode):
            note = leads_out(self.root, path)
            if note:
                folder.notes.append(note)

    # -- reading ------------------------------------------------------------------------------

    def _read_changed(self, progress: Progress) -> None:
        total = sum(folder.stamps[index][1] for folder, index in self.to_read)
        done = 0
        for folder, index in self.to_read:
            path = f"{folder.path}/{folder.names[index]}" if folder.path else folder.names[index]
            line, stamp = self._read(path)
            self.changed = True
            folder.lines[index], folder.stamps[index] = line, stamp
            done += stamp[1]
            progress(done, total)

    def _read(self, path: str) -> tuple[bytes, Stamp]:
        full = f"{self.root}/{path}"
        for attempt in range(TRIES):
            try:
                before = os.lstat(full)
                if stat.S_ISLNK(before.st_mode):
                    kind, digest = "l", self._keep(os.fsencode(os.readlink(full)))
                else:
                    kind = "x" if before.st_mode & 0o111 else "f"
                    digest = self._hash_file(full, before.st_size)
                after = os.lstat(full)
            except FileNotFoundError:
                raise _Vanished from None
            except PermissionError:
                raise unreadable(path) from None
            if stamp_of(before) == stamp_of(after):
                size = after.st_size
                line = f"{kind} {digest} {size} ".encode() + os.fsencode(path) + b"\0"
                return line, stamp_of(after)
            time.sleep(0.05 * (attempt + 1))
        raise SnapshotError(
            f"{path} changes while it is read",
            hint=f"If a program writes to it, declare it as --output or add it to .drayignore: "
            f"/{path}",
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
        """What changed a moment ago may change again without its stamp moving."""
        if not self.changed:
            return
        fresh = time.time_ns() - UNSURE_NS
        for folder in self.folders:
            if folder.stamp[0] > fresh:
                folder.stamp = UNSURE
            for index, stamp in enumerate(folder.stamps):
                if stamp[0] > fresh:
                    folder.stamps[index] = (UNSURE[0], stamp[1], UNSURE[2])


def refuse_hopeless_root(root: Path) -> None:
    if root in (Path("/"), Path.home()):
        raise SnapshotError(
            f"{root} is not a project: all of it would be taken as code",
            hint="Change into the project's folder, or use --no-snapshot for a command that needs "
            "no code.",
        )


def unreadable(path: str) -> SnapshotError:
    return SnapshotError(
        f"{path} cannot be read (permission denied)",
        hint=f"Change its permissions, or leave it out with a line in .drayignore: /{path}",
    )


def too_big(folders: list[Folder], size: int, max_size: int) -> SnapshotError:
    """Name the folders to leave out: the biggest ones, as deep as one holds most of its parent."""
    sizes: dict[str, int] = {}
    for folder in folders:
        own = sum(stamp[1] for stamp in folder.stamps)
        for name, stamp in zip(folder.names, folder.stamps, strict=True):
            if stamp[1] > max_size // 10:
                sizes[f"{folder.path}/{name}".lstrip("/")] = stamp[1]
        path = folder.path
        while path:
            sizes[f"{path}/"] = sizes.get(f"{path}/", 0) + own
            path = path.rpartition("/")[0]
    biggest = sorted(sizes.items(), key=lambda item: (-item[1], -len(item[0])))
    chosen: list[tuple[str, int]] = []
    for path, amount in biggest:
        related = any(path.startswith(one) or one.startswith(path) for one, _ in chosen)
        if not related and len(chosen) < 5:
            chosen.append((path, amount))
    listing = "\n".join(f"  {show_size(amount):>9}  {path}" for path, amount in chosen)
    return SnapshotError(
        f"the tree has {show_size(size)}, more than the {show_size(max_size)} that a snapshot may "
        f"have. The biggest parts:\n{listing}",
        hint=f"Leave data out with a line in .drayignore, such as /{chosen[0][0]} — or raise "
        "max_size under [snapshot] in dray.toml.",
    )


def leads_out(root: str, path: str) -> str:
    target = os.readlink(f"{root}/{path}")
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if target.startswith("/") or place.startswith(".."):
        return f"{path} is a link out of the tree (to {target}): it may lead nowhere in the job"
    return ""


def special_kind(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISFIFO(mode):
        return "named pipe"
    return "device"
