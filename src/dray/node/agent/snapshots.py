"""Stores code and checkpoints that the laptop sends, as snapshots."""

import os

from ..code import pack_store, packs
from ..formats import files
from ..formats.wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple  # noqa: F401

    from ..formats.records import ManifestChange, Request
    from .agent import Agent


def stage(agent: "Agent", request: "Request") -> "List[str]":
    """Store the pack, if there is one; return what the snapshot still lacks."""
    store = packs.Packs(agent.root.path)
    pack_store.make(store)
    pack = request.get("pack")
    if agent.payload:
        if not pack:
            raise Refusal("ClusterError", "a pack has come without its name")
        agent.receive(os.path.join(store.packs, pack))
        store.read_index(pack)
        files.remove(store.mark(pack))
    snapshot = request["job"]["snapshot"]
    if not snapshot or "manifest" not in request:
        return []
    change = request["manifest"]
    with files.Lock(pack_store.lock_of(store)):
        names, manifest = read_manifest(store, change)
        needed = pack_store.packs_after(store, names, middle_of(change), pack or "")
        return pack_store.register(store, snapshot, manifest, needed)


def read_manifest(store: packs.Packs, change: "ManifestChange") -> "Tuple[List[str], bytes]":
    """Rebuild a manifest, which is sent as its difference from one that is stored here. Returns the
    packs of that one, too."""
    names, base = [], b""  # type: List[str], bytes
    if change["base"]:
        try:
            names, base = store.read_snapshot(change["base"])
        except packs.Damaged:
            raise Refusal("BaseMissing", "the snapshot that this one builds on is not here")
    return names, base[: change["head"]] + middle_of(change) + base[len(base) - change["tail"] :]


def middle_of(change: "ManifestChange") -> bytes:
    return bytes(change["middle"].encode("utf-8", "surrogateescape"))
