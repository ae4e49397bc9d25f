"""The code as it is on disk, frozen: walked, hashed, packed."""

from __future__ import annotations

from dray.snapshot.pack import ChangedSince, write_snapshot
from dray.snapshot.scan import Scanner

__all__ = ["ChangedSince", "Scanner", "write_snapshot"]
