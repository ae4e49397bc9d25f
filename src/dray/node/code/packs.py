"""Snapshots and packs: how code is stored on a cluster, and how it becomes a work tree again.

A snapshot is a manifest: one line per file, link or folder without files, each ended by NUL;
its name is the hash of its content. What the lines point to lies in packs: few, big, immutable
files that several snapshots share. A pack found damaged while unpacking gets a mark beside it: the
next staging does not rely on it, and writes its contents again.

    manifest line   <kind> <hash> <size> <path>\\0      kind: f file, x executable, l link, d folder
    pack            magic, contents one after another, index, footer
    index           for each content: hash (20 bytes), offset and length (8 bytes each)
    footer          hash of the index (20 bytes), its length (8 bytes), magic
    snapshots/<id>  a JSON line {"packs": [...]} and the manifest
"""

import hashlib
import json
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Dict, Iterator, List, Tuple

MAGIC = b"DRAYPCK1"
INDEX_ROW = struct.Struct(">20sQQ")
FOOTER = struct.Struct(">20sQ8s")
CHUNK = 1 << 20


class Damaged(Exception):
    """A snapshot or pack is not what its name or footer says."""


def new_hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=20)


def hash_of(content: bytes) -> str:
    hasher = new_hash()
    hasher.update(content)
    return hasher.hexdigest()


class Entry:
    """One line of a manifest."""

    __slots__ = ("hash", "kind", "path", "size")

    def __init__(self, line: bytes) -> None:
        kind, digest, size, self.path = line.split(b" ", 3)
        self.kind = kind.decode()
        self.hash = digest.decode()
        self.size = int(size)


def entries(manifest: bytes) -> "Iterator[Entry]":
    for line in manifest.split(b"\0"):
        if line:
            yield Entry(line)


class Packs:
    """The packs and snapshots below a root."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.packs = os.path.join(root, "packs")
        self.snapshots = os.path.join(root, "snapshots")

    def has_snapshot(self, snapshot: str) -> bool:
        return os.path.exists(os.path.join(self.snapshots, snapshot))

    def read_snapshot(self, snapshot: str) -> "Tuple[List[str], bytes]":
        """Return the names of the packs that a snapshot needs, and its manifest."""
        path = os.path.join(self.snapshots, snapshot)
        try:
            with open(path, "rb") as file:
                header = file.readline()
                manifest = file.read()
        except FileNotFoundError:
            raise Damaged("snapshot {} is missing at {}".format(snapshot, path))
        try:
            names = [str(name) for name in json.loads(header.decode())["packs"]]
        except (ValueError, KeyError, TypeError):
            names = None
        if names is None or hash_of(manifest) != snapshot:
            raise Damaged("snapshot {} is damaged at {}".format(snapshot, path))
        return names, manifest

    def names(self) -> "List[str]":
        try:
            return sorted(name for name in os.listdir(self.packs) if name.endswith(".pack"))
        except OSError:
            return []

    def contents(self, names: "List[str]") -> "Dict[str, Tuple[str, int, int]]":
        """Map each content hash to its place: (pack, offset, length)."""
        found = {}  # type: Dict[str, Tuple[str, int, int]]
        for name in names:
            for digest, offset, length in self.read_index(name):
                found.setdefault(digest, (name, offset, length))
        return found

    def read_index(self, name: str) -> "List[Tuple[str, int, int]]":
        index = self.whole_index(name)
        return [(row[0].hex(), row[1], row[2]) for row in INDEX_ROW.iter_unpack(index)]

    def whole_index(self, name: str) -> bytes:
        """Return the bytes of a pack's index. Raise Damaged if the pack is cut short or something
        else."""
        path = os.path.join(self.packs, name)
        try:
            with open(path, "rb") as file:
                end = file.seek(-FOOTER.size, os.SEEK_END)
                digest, length, magic = FOOTER.unpack(file.read(FOOTER.size))
                if magic != MAGIC or length > end:
                    raise ValueError
                file.seek(end - length)
                index = file.read(length)
        except FileNotFoundError:
            raise Damaged("pack {} is missing at {}".format(name, path))
        except (ValueError, OSError):
            raise Damaged("pack {} is damaged or cut short at {}".format(name, path))
        hasher = new_hash()
        hasher.update(index)
        if hasher.digest() != digest:
            raise Damaged("the index of pack {} is damaged at {}".format(name, path))
        return index

    def mark_damaged(self, name: str) -> None:
        """Mark this pack as damaged, for whoever can write its contents again."""
        try:
            os.close(os.open(self.mark(name), os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:  # read-only here: the next reader will find the damage as we did
            pass

    def is_marked_damaged(self, name: str) -> bool:
        return os.path.exists(self.mark(name))

    def mark(self, name: str) -> str:
        return os.path.join(self.packs, name + ".damaged")

    def unpack(self, snapshot: str, target: str) -> int:
        """Write the snapshot's tree into the empty folder ``target``; every content is verified."""
        names, manifest = self.read_snapshot(snapshot)
        where = self.contents(names)
        files = []
        listed = list(entries(manifest))
        refuse_paths_through_files(listed)
        for entry in listed:
            destination = inside(os.fsencode(target), entry.path)
            if entry.kind == "d":
                os.makedirs(destination, exist_ok=True)
            elif entry.hash not in where:
                raise Damaged("no pack holds {}".format(os.fsdecode(entry.path)))
            else:
                files.append((where[entry.hash], entry, destination))
        files.sort(key=lambda one: one[0])  # one pass over each pack
        self._write_files(files)
        return len(files)

    def _write_files(self, files: "List[Tuple[Tuple[str, int, int], Entry, bytes]]") -> None:
        made = set()
        current, pack = "", None
        try:
            for (name, offset, length), entry, destination in files:
                if name != current or pack is None:
                    if pack is not None:
                        pack.close()
                    current, pack = name, open(os.path.join(self.packs, name), "rb")
                folder = os.path.dirname(destination)
                if folder not in made:
                    os.makedirs(folder, exist_ok=True)
                    made.add(folder)
                write_entry(pack, offset, length, entry, destination)
        except Damaged:
            self.mark_damaged(current)
            raise
        finally:
            if pack is not None:
                pack.close()


def inside(target: bytes, path: bytes) -> bytes:
    """Return the path below ``target``. Refuse one that would lead out of it."""
    if path.startswith(b"/") or b".." in path.split(b"/"):
        raise Damaged("{!r} leads out of the work tree".format(path))
    return os.path.join(target, path)


def refuse_paths_through_files(listed: "List[Entry]") -> None:
    """Refuse paths below a file or link: they would lead wherever the link leads."""
    taken = {entry.path for entry in listed if entry.kind != "d"}
    for folder in {entry.path.rpartition(b"/")[0] for entry in listed}:
        while folder:
            if folder in taken:
                raise Damaged("{!r} leads out of the work tree".format(folder))
            folder = folder.rpartition(b"/")[0]


def read_range(pack: "BinaryIO", offset: int, length: int) -> "Iterator[bytes]":
    pack.seek(offset)
    while length:
        chunk = pack.read(min(CHUNK, length))
        if not chunk:
            raise Damaged("pack {} is cut short".format(pack.name))
        length -= len(chunk)
        yield chunk


def write_entry(
    pack: "BinaryIO", offset: int, length: int, entry: Entry, destination: bytes
) -> None:
    if entry.kind == "l":
        link = b"".join(read_range(pack, offset, length))
        check(hash_of(link), pack, entry)
        os.symlink(link, destination)
        return
    hasher = new_hash()
    mode = 0o755 if entry.kind == "x" else 0o644
    fd = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        for chunk in read_range(pack, offset, length):
            hasher.update(chunk)
            file.write(chunk)
    check(hasher.hexdigest(), pack, entry)


def check(digest: str, pack: "BinaryIO", entry: Entry) -> None:
    if digest != entry.hash:
        raise Damaged(
            "{} in pack {} does not have the content it should have".format(
                os.fsdecode(entry.path), pack.name
            )
        )
