"""The code as it is on disk, frozen: walked, hashed, packed."""

from __future__ import annotations

from dray.snapshot.pack import ChangedSince, prune, write_snapshot
from dray.snapshot.scan import Scanner

__all__ = ["ChangedSince", "Scanner", "prune", "write_snapshot"]
