"""The pack store: registers snapshots below a root, and removes packs that none of them needs."""

import json
import os
import time

from ..formats import files
from .packs import Damaged, Packs, entries, hash_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Set, Tuple  # noqa: F401

YOUNG = 600.0
FEW_PACKS = 16
MOST_PACKS = 50  # a snapshot spread over more packs is packed again as a whole


def make(packs: Packs) -> None:
    files.make_folder(packs.packs)
    files.make_folder(packs.snapshots)


def lock_of(packs: Packs) -> str:
    """Return the path of the lock that is held while packs and snapshots are added or removed.
    Reading needs no lock."""
    return os.path.join(packs.packs, "lock")


def register(
    packs: Packs, snapshot: str, manifest: bytes, needed: "Optional[Set[str]]" = None
) -> "List[str]":
    """Register the snapshot if all of its content is here; else return what is missing.

    ``needed``: packs known to hold all of it. The caller holds the lock, so that nothing it relies
    on is removed in the meantime.
    """
    if hash_of(manifest) != snapshot:
        raise Damaged("the manifest of snapshot {} is damaged".format(snapshot))
    names = usable_packs(packs, snapshot)
    if names is None and needed is not None:
        names = needed
        publish(packs, snapshot, manifest, names)
    elif names is None:
        known = whole_packs(packs)
        wanted = {entry.hash for entry in entries(manifest) if entry.kind != "d"}
        names = {known[digest] for digest in wanted if digest in known}
        if len(names) > MOST_PACKS:
            return sorted(wanted)
        missing = sorted(wanted - set(known))
        if missing:
            return missing
        publish(packs, snapshot, manifest, names)
    touch(packs, snapshot, names)
    return []


def packs_after(packs: Packs, before: "List[str]", middle: bytes, new: str) -> "Optional[Set[str]]":
    """Return the packs of a snapshot that is a small change of another one; None if that cannot be
    told.

    ``before``: the other one's packs. ``middle``: the part of the manifest that differs. ``new``:
    the pack that was sent with it. Packs that are no longer needed stay listed, so once there are
    many the answer is None as well.
    """
    found = set(before + [new] if new else before)
    if len(found) > FEW_PACKS or not are_whole(packs, found):
        return None
    brought = {digest for digest, _, _ in packs.read_index(new)} if new else set()
    wanted = {entry.hash for entry in entries(middle) if entry.kind != "d"}
    return found if wanted <= brought else None


def are_whole(packs: Packs, names: "Iterable[str]") -> bool:
    try:
        for name in names:
            packs.whole_index(name)
    except Damaged:
        return False
    return not any(packs.is_marked_damaged(name) for name in names)


def usable_packs(packs: Packs, snapshot: str) -> "Optional[Set[str]]":
    """Return the packs of a registered snapshot if all of them are whole; None if it has to be
    written again."""
    if not packs.has_snapshot(snapshot):
        return None
    try:
        names, _ = packs.read_snapshot(snapshot)
    except Damaged:
        return None
    return set(names) if are_whole(packs, names) else None


def whole_packs(packs: Packs) -> "Dict[str, str]":
    """Map each content hash to a pack that holds it and is not damaged."""
    found = []  # type: List[Tuple[int, str, List[str]]]
    for name in packs.names():
        try:
            held = [digest for digest, _, _ in packs.read_index(name)]
        except Damaged:
            continue
        if not packs.is_marked_damaged(name):
            found.append((len(held), name, held))
    # The pack that holds most comes last and wins: a snapshot then needs few.
    return {digest: name for _, name, held in sorted(found) for digest in held}


def publish(packs: Packs, snapshot: str, manifest: bytes, names: "Set[str]") -> None:
    """Write the snapshot's file, which appears whole. An unusable one is repaired in place, since
    jobs link to it."""
    path = os.path.join(packs.snapshots, snapshot)
    content = json.dumps({"packs": sorted(names)}).encode("ascii") + b"\n" + manifest
    if not os.path.exists(path):
        files.write_bytes(path, content)
        return
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def touch(packs: Packs, snapshot: str, names: "Set[str]") -> None:
    """Tell ``prune`` that this snapshot is about to be used."""
    os.utime(os.path.join(packs.snapshots, snapshot))
    for name in names:
        os.utime(os.path.join(packs.packs, name))


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
    for folder in ("", "queue", "node", "snapshots", "images"):
        files.sweep_temporaries(os.path.join(root, folder), young)


def prune_snapshots(packs: Packs, young: float) -> "Set[str]":
    """Remove unused snapshots. Return the names of the packs that the remaining ones need."""
    needed = set()  # type: Set[str]
    for snapshot in os.listdir(packs.snapshots):
        path = os.path.join(packs.snapshots, snapshot)
        status = os.stat(path)
        if status.st_nlink == 1 and status.st_mtime < young:
            files.remove(path)
            continue
        try:
            needed.update(packs.read_snapshot(snapshot)[0])
        except Damaged:
            pass
    return needed


def prune_packs(packs: Packs, needed: "Set[str]", young: float) -> None:
    for name in packs.names():
        path = os.path.join(packs.packs, name)
        if name not in needed and os.stat(path).st_mtime < young:
            files.remove(path)
    marks = [os.path.basename(packs.mark(name)) for name in packs.names()]
    used = set(["lock"] + packs.names() + marks)
    for name in set(os.listdir(packs.packs)) - used:
        # Half a pack: its writer was killed, or the upload is still under way.
        path = os.path.join(packs.packs, name)
        if os.stat(path).st_mtime < young:
            files.remove(path)
