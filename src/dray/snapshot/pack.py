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
from dray.snapshot.ignore import as_rule
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
    with files.Lock(lock_of(packs)):
        if not is_usable(packs, snapshot.id):
            add_snapshot(packs, snapshot, progress)
        touch(packs, snapshot.id)


def lock_of(packs: Packs) -> str:
    """Held while packs and snapshots are added or removed; reading needs no lock."""
    return os.path.join(packs.packs, "lock")


def add_snapshot(packs: Packs, snapshot: Snapshot, progress: Progress) -> None:
    wanted = {entry.hash: entry for entry in entries(snapshot.manifest) if entry.kind != "d"}
    known = whole_packs(packs)
    needed = {known[digest] for digest in wanted if digest in known}
    if len(needed) >= MOST_PACKS:
        known, needed = {}, set()
    missing = [entry for digest, entry in wanted.items() if digest not in known]
    if missing:
        needed.add(write_pack(packs, snapshot, missing, progress))
    header = b'{"packs": [%s]}\n' % b", ".join(b'"%s"' % name.encode() for name in sorted(needed))
    publish(os.path.join(packs.snapshots, snapshot.id), header + snapshot.manifest)


def publish(path: str, content: bytes) -> None:
    """A new snapshot appears whole. One that was of no use is mended in place: jobs link to it."""
    if not os.path.exists(path):
        files.write_bytes(path, content)
        return
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


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
    if not os.path.isdir(packs.packs) or not os.path.isdir(packs.snapshots):
        return
    with files.Lock(lock_of(packs)):
        young = time.time() - YOUNG
        needed = prune_snapshots(packs, young)
        prune_packs(packs, needed, young)


def prune_snapshots(packs: Packs, young: float) -> set[str]:
    """Returns the names of the packs that the remaining ones need."""
    needed: set[str] = set()
    for snapshot in os.listdir(packs.snapshots):
        path = os.path.join(packs.snapshots, snapshot)
        status = os.stat(path)
        if status.st_nlink == 1 and status.st_mtime < young:
            files.remove(path)
            continue
        with suppress(Damaged):
            needed.update(packs.read_snapshot(snapshot)[0])
    return needed


def prune_packs(packs: Packs, needed: set[str], young: float) -> None:
    for name in packs.names():
        path = os.path.join(packs.packs, name)
        if name not in needed and os.stat(path).st_mtime < young:
            files.remove(path)
    used = {"lock", *packs.names(), *map(os.path.basename, map(packs.mark, packs.names()))}
    for name in set(os.listdir(packs.packs)) - used:  # half a pack of a process that was killed
        files.remove(os.path.join(packs.packs, name))


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
    return not any(packs.is_doubted(name) for name in names)


def whole_packs(packs: Packs) -> dict[str, str]:
    """Content hash → pack, of the packs that are not damaged."""
    found: list[tuple[int, str, list[str]]] = []
    for name in packs.names():
        with suppress(Damaged):
            held = [digest for digest, _, _ in packs.read_index(name)]
            if not packs.is_doubted(name):
                found.append((len(held), name, held))
    # The pack that holds most comes last and wins: a snapshot then needs few.
    return {digest: name for _, name, held in sorted(found) for digest in held}


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
        files.remove(packs.mark(name))
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
