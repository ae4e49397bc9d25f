"""A submission that travels in its job's own Secret, where the namespace has no room for a helper.

The pod carries it out itself: see dray.node.agent.carried. Nothing is sent here.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from dray.clusters.agent.upload import Change, change_of, pack_of
from dray.errors import Refused
from dray.job.model import Snapshot
from dray.job.quantities import show_size
from dray.node.code.packs import Entry, entries
from dray.node.formats.wire import VERSION
from dray.node.schedulers.kubernetes import PACK, REQUEST
from dray.programs import shipping
from dray.reporter import Progress

if TYPE_CHECKING:
    from dray.node.formats.records import Asked, Carried

NODE = "node.pyz"
MOST = 700 << 10  # bytes: with the node side, a Secret takes no more than 1 MiB
MOST_UNPACKED = 16 << 20  # bytes: more of it is not even tried


class Parcel(dict[str, bytes]):
    """The files of a submission, by their names in the Secret."""

    @property
    def size(self) -> int:
        return sum(map(len, self.values()))


def parcel(
    request: Asked, code: Snapshot | None, last: bytes, progress: Progress, why: str
) -> Mapping[str, bytes]:
    """Wrap a submission up with all of its code; where that is too much, with what has changed
    since the manifest that was sent last. Raise Refused where that is too much as well."""
    smallest = 0
    for change, lacking in ways(code, last) if code is not None else [(None, [])]:
        made = wrapped(request, code, change, lacking, progress)
        if made.size <= MOST:
            return {**made, NODE: shipping.lean()}
        smallest = made.size
    raise Refused(
        f"{why}. Without it a job can bring {show_size(MOST)} along, and this one has "
        f"{show_size(smallest)}",
        hint="Free room in the quota for a pod of a tenth of a CPU and 256 MB, once: code that is "
        "on the volume is not sent again. Or leave out large files, see .drayignore.",
    )


def ways(code: Snapshot, last: bytes) -> Iterator[tuple[Change, list[Entry]]]:
    """Yield what may be sent: all, or what the volume lacks as far as is known."""
    yield change_of(b"", code.manifest), list(entries(code.manifest))
    if last:
        change = change_of(last, code.manifest)
        yield change, list(entries(change.middle))


def wrapped(
    request: Asked,
    code: Snapshot | None,
    change: Change | None,
    lacking: list[Entry],
    progress: Progress,
) -> Parcel:
    carried = cast("Carried", {**request, "verb": "submit", "version": VERSION, "size": 0})
    files = Parcel()
    if code is not None and change is not None:
        carried["manifest"] = change.to_dict()
        pack = pack_of(code, lacking, progress)
        if pack is not None:
            carried["pack"], carried["size"] = pack.name, pack.size
            is_small = pack.size <= MOST_UNPACKED
            content = b"".join(pack.pieces()) if is_small else bytes(pack.size)
            files[PACK] = gzip.compress(content, mtime=0) if is_small else content
    files[REQUEST] = json.dumps(carried).encode("ascii")
    return files
