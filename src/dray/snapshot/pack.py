"""Writes a snapshot's contents into a pack below a root on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dray.errors import SnapshotError
from dray.job.model import Snapshot
from dray.node.code.pack_store import lock_of, make, register
from dray.node.code.packs import CHUNK, FOOTER, INDEX_ROW, MAGIC, Entry, Packs, entries, new_hash
from dray.node.formats import files
from dray.snapshot.ignore import as_rule
from dray.snapshot.scan import Progress


class ChangedSince(SnapshotError):
    """A file has changed since it was hashed; the snapshot must be taken again."""

    transient = True


def write_snapshot(root: str, snapshot: Snapshot, progress: Progress) -> None:
    """Store the snapshot below ``root``. Only what no pack there holds yet is written."""
    packs = Packs(root)
    make(packs)
    with files.Lock(lock_of(packs)):
        add_snapshot(packs, snapshot, progress)


def add_snapshot(packs: Packs, snapshot: Snapshot, progress: Progress) -> None:
    missing = register(packs, snapshot.id, snapshot.manifest)
    if missing:
        wanted = {entry.hash: entry for entry in entries(snapshot.manifest)}
        write_pack(packs, snapshot, [wanted[digest] for digest in missing], progress)
        register(packs, snapshot.id, snapshot.manifest)


def write_pack(packs: Packs, snapshot: Snapshot, missing: list[Entry], progress: Progress) -> str:
    temporary = os.path.join(packs.packs, f"new-{os.getpid()}.tmp")
    pack = Pack(snapshot, missing, progress)
    try:
        with open(temporary, "wb", buffering=CHUNK) as file:
            os.fchmod(file.fileno(), files.PRIVATE_FILE)
            file.writelines(pack.pieces())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.join(packs.packs, pack.name))
        files.remove(packs.mark(pack.name))
        files.sync_folder(packs.packs)
    finally:
        files.remove(temporary)
    return pack.name


class Pack:
    """A pack in the making. Its name and size are known before its contents are read, so that it
    can be sent while they are."""

    def __init__(self, snapshot: Snapshot, contents: list[Entry], progress: Progress) -> None:
        self.snapshot = snapshot
        self.contents = contents
        self.progress = progress
        rows, offset = [], len(MAGIC)
        for entry in contents:
            length = length_of(snapshot, entry)
            rows.append(INDEX_ROW.pack(bytes.fromhex(entry.hash), offset, length))
            offset += length
        index = b"".join(rows)
        hasher = new_hash()
        hasher.update(index)
        self.name = f"{hasher.hexdigest()}.pack"  # the hash of the index
        self.end = index + FOOTER.pack(hasher.digest(), len(index), MAGIC)
        self.size = offset + len(self.end)

    def pieces(self) -> Iterator[bytes]:
        total = sum(entry.size for entry in self.contents)
        done = 0
        yield MAGIC
        for entry in self.contents:
            yield from verified(self.snapshot, entry)
            done += entry.size
            self.progress(done, total)
        yield self.end


def length_of(snapshot: Snapshot, entry: Entry) -> int:
    """Return the length of the content. Some file systems do not tell a link's size, but small
    contents are kept in memory."""
    kept = snapshot.contents.get(entry.hash)
    if kept is None and entry.kind == "l":
        kept = b"".join(read_content(snapshot, entry))
    return entry.size if kept is None else len(kept)


def verified(snapshot: Snapshot, entry: Entry) -> Iterator[bytes]:
    """Yield the content. Raise ChangedSince if it is no longer what was hashed."""
    hasher = new_hash()
    for chunk in read_content(snapshot, entry):
        hasher.update(chunk)
        yield chunk
    if hasher.hexdigest() != entry.hash:
        path = os.fsdecode(entry.path)
        raise ChangedSince(
            f"{path} changed while the snapshot was taken",
            hint=f"If a program writes to it, declare it as --output or add it to .drayignore: "
            f"{as_rule(path)}",
        )


def read_content(snapshot: Snapshot, entry: Entry) -> Iterator[bytes]:
    if entry.hash in snapshot.contents:
        yield snapshot.contents[entry.hash]
        return
    path = os.path.join(os.fsencode(snapshot.project), entry.path)
    try:
        if entry.kind == "l":
            yield os.readlink(path)
            return
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise ChangedSince(f"{os.fsdecode(entry.path)}: {error.strerror}") from error
