"""Finds out which part of the code has to be sent to a cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from dray.job.model import Snapshot
from dray.node.code.packs import Entry, hash_of
from dray.records import NamedTuple
from dray.reporter import Progress
from dray.snapshot.pack import Pack

if TYPE_CHECKING:
    from dray.node.formats.records import ManifestChange

BLOCK = 1 << 14


class Change(NamedTuple):
    """A manifest, as its difference from another one: most often a few lines in the middle."""

    base: str | None
    head: int
    tail: int
    middle: bytes

    def to_dict(self) -> ManifestChange:
        middle = self.middle.decode("utf-8", "surrogateescape")
        return {"base": self.base, "head": self.head, "tail": self.tail, "middle": middle}


def change_of(base: bytes, manifest: bytes) -> Change:
    most = min(len(base), len(manifest))
    head = common(most, lambda m, n: base[m:n] == manifest[m:n])
    head = manifest.rfind(b"\0", 0, head) + 1  # whole lines only
    most -= head
    old, new = len(base), len(manifest)
    tail = common(most, lambda m, n: base[old - n : old - m] == manifest[new - n : new - m])
    if tail < len(manifest):
        tail = len(manifest) - 1 - manifest.find(b"\0", len(manifest) - tail - 1)
    middle = manifest[head : len(manifest) - tail]
    return Change(hash_of(base) if base else None, head, tail, middle)


def common(most: int, same: Callable[[int, int], bool]) -> int:
    """Return the greatest length up to ``most`` over which two texts agree. ``same(m, n)`` compares
    them from m to n."""
    known = 0
    while known < most and same(known, min(known + BLOCK, most)):
        known += BLOCK
    rest = range(min(known, most), min(known + BLOCK, most) + 1)
    return rest[bisect_right(rest, False, key=lambda length: not same(known, length)) - 1]


def pack_of(code: Snapshot, lacking: list[Entry], progress: Progress) -> Pack | None:
    """Make a pack of what the cluster lacks; None where it has everything."""
    wanted = {entry.hash: entry for entry in lacking if entry.kind != "d"}
    return Pack(code, list(wanted.values()), progress) if wanted else None
