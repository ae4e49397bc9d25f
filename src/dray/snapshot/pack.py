"""Writing a snapshot's contents into a pack below a root on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from dray.errors import SnapshotError
from dray.model import Snapshot
from dray.node import files
from dray.node.packs import (
    CHUNK,
    FOOTER,
    INDEX_ROW,
    MAGIC,
    Damaged,
    Entry,
    Packs,
    entries,
    new_hash,
)
from dray.snapshot.scan import Progress

YOUNG = 600.0
MOST_PACKS = 50  # a snapshot spread over more is packed anew, whole


class ChangedSince(SnapshotError):
    """A file is no longer what it was when it was hashed; the snapshot must be taken again."""

    transient = True


def write_snapshot(root: str, snapshot: Snapshot, progress: Progress) -> None:
    """Bring the snapshot below ``root``: only what no pack there holds yet is written."""
    packs = Packs(root)
    files.make_folder(packs.packs)
    files.make_folder(packs.snapshots)
    if is_usable(packs, snapshot.id):
        touch(packs, snapshot.id)
        return
    wanted = {entry.hash: entry for entry in entries(snapshot.manifest) if entry.kind != "d"}
    known = whole_packs(packs)
    needed = {known[digest] for digest in wanted if digest in known}
    if len(needed) >= MOST_PACKS:
        known, needed = {}, set()
    missing = [entry for digest, entry in wanted.items() if digest not in known]
    if missing:
        needed.add(write_pack(packs, snapshot, missing, progress))
    header = b'{"packs": [%s]}\n' % b", ".join(b'"%s"' % name.encode() for name in sorted(needed))
    files.write_bytes(os.path.join(packs.snapshots, snapshot.id), header + snapshot.manifest)
    touch(packs, snapshot.id)


def touch(packs: Packs, snapshot: str) -> None:
    """Show ``prune`` that this snapshot is about to be used."""
    names, _ = packs.read_snapshot(snapshot)
    for path in snapshot_files(packs, snapshot, names):
        os.utime(path)


def snapshot_files(packs: Packs, snapshot: str, names: list[str]) -> list[str]:
    return [
        os.path.join(packs.snapshots, snapshot),
        *(os.path.join(packs.packs, name) for name in names),
    ]


def prune(root: str) -> None:
    """Remove snapshots that no job links to, and packs that no snapshot names.

    What was touched a short while ago stays: a submission may be about to use it.
    """
    packs = Packs(root)
    young = time.time() - YOUNG
    needed: set[str] = set()
    for snapshot in os.listdir(packs.snapshots) if os.path.isdir(packs.snapshots) else []:
        path = os.path.join(packs.snapshots, snapshot)
        status = os.stat(path)
        if status.st_nlink == 1 and status.st_mtime < young:
            files.remove(path)
            continue
        with suppress(Damaged):
            needed.update(packs.read_snapshot(snapshot)[0])
    for name in packs.names():
        path = os.path.join(packs.packs, name)
        if name not in needed and os.stat(path).st_mtime < young:
            files.remove(path)


def is_usable(packs: Packs, snapshot: str) -> bool:
    """Whether the snapshot lies there with all its packs; a damaged one is written again."""
    if not packs.has_snapshot(snapshot):
        return False
    try:
        names, _ = packs.read_snapshot(snapshot)
        for name in names:
            packs.read_index(name)
    except Damaged:
        return False
    return True


def whole_packs(packs: Packs) -> dict[str, str]:
    """Content hash → pack, of the packs that are not damaged."""
    known: dict[str, str] = {}
    for name in packs.names():
        with suppress(Damaged):
            for digest, _, _ in packs.read_index(name):
                known[digest] = name
    return known


def write_pack(packs: Packs, snapshot: Snapshot, missing: list[Entry], progress: Progress) -> str:
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
        os.replace(temporary, os.path.join(packs.packs, name))
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
    pack.flush()
    os.fsync(pack.fileno())
    return f"{hasher.hexdigest()}.pack"


def copy_content(snapshot: Snapshot, entry: Entry, pack: BinaryIO) -> None:
    hasher = new_hash()
    for chunk in read_content(snapshot, entry):
        hasher.update(chunk)
        pack.write(chunk)
    if hasher.hexdigest() != entry.hash:
        raise ChangedSince(f"{os.fsdecode(entry.path)} changed while the snapshot was taken")


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
