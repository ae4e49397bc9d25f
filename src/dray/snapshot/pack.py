"""Writing a snapshot's contents into a pack below a root on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from dray.errors import SnapshotError
from dray.model import Snapshot
from dray.node import files
from dray.node.packs import (
    CHUNK,
    FOOTER,
    INDEX_ROW,
    MAGIC,
    Entry,
    Packs,
    entries,
    new_hash,
)
from dray.node.shelf import enlist, lock_of, make
from dray.snapshot.ignore import as_rule
from dray.snapshot.scan import Progress


class ChangedSince(SnapshotError):
    """A file is no longer what it was when it was hashed; the snapshot must be taken again."""

    transient = True


def write_snapshot(root: str, snapshot: Snapshot, progress: Progress) -> None:
    """Bring the snapshot below ``root``: only what no pack there holds yet is written."""
    packs = Packs(root)
    make(packs)
    with files.Lock(lock_of(packs)):
        add_snapshot(packs, snapshot, progress)


def add_snapshot(packs: Packs, snapshot: Snapshot, progress: Progress) -> None:
    missing = enlist(packs, snapshot.id, snapshot.manifest)
    if missing:
        wanted = {entry.hash: entry for entry in entries(snapshot.manifest)}
        write_pack(packs, snapshot, [wanted[digest] for digest in missing], progress)
        enlist(packs, snapshot.id, snapshot.manifest)


def write_pack(
    packs: Packs,
    snapshot: Snapshot,
    missing: list[Entry],
    progress: Progress,
    *,
    durable: bool = True,
) -> str:
    """``durable=False`` for a pack that is only on its way elsewhere."""
    temporary = os.path.join(packs.packs, f"new-{os.getpid()}.tmp")
    total = sum(entry.size for entry in missing)
    done = 0
    index = []
    try:
        with open(temporary, "wb", buffering=CHUNK) as pack:
            os.fchmod(pack.fileno(), files.PRIVATE_FILE)
            pack.write(MAGIC)
            for entry in missing:
                offset = pack.tell()
                copy_content(snapshot, entry, pack)
                index.append(
                    INDEX_ROW.pack(bytes.fromhex(entry.hash), offset, pack.tell() - offset)
                )
                done += entry.size
                progress(done, total)
            name = finish_pack(pack, b"".join(index))
            if durable:
                pack.flush()
                os.fsync(pack.fileno())
        os.replace(temporary, os.path.join(packs.packs, name))
        files.remove(packs.mark(name))
        if durable:
            files.sync_folder(packs.packs)
    finally:
        files.remove(temporary)
    return name


def finish_pack(pack: BinaryIO, index: bytes) -> str:
    """Close the pack with its index and footer; its name is the hash of the index."""
    hasher = new_hash()
    hasher.update(index)
    pack.write(index)
    pack.write(FOOTER.pack(hasher.digest(), len(index), MAGIC))
    return f"{hasher.hexdigest()}.pack"


def copy_content(snapshot: Snapshot, entry: Entry, pack: BinaryIO) -> None:
    hasher = new_hash()
    for chunk in read_content(snapshot, entry):
        hasher.update(chunk)
        pack.write(chunk)
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
