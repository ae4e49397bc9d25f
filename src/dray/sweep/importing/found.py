"""What an importer returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from dray.config.reading import Document
from dray.records import NamedTuple
from dray.sweep import file
from dray.sweep.study import Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Imported(NamedTuple):
    """A sweep as it would be written to a file, and a note for all that is different now."""

    source: str
    parameters: tuple[Parameter, ...]
    settings: Mapping[str, Any] = MappingProxyType({})  # by key, such as sweep.trials, as in TOML
    notes: tuple[str, ...] = ()

    def as_file(self) -> file.SweepFile:
        """Return what ``dray sweep start`` reads of it, once it is written."""
        return file.read_sweep(Document(Path(self.source), self.toml().encode()))

    def toml(self) -> str:
        """Write it as a sweep's file."""
        notes = [f"from {self.source}", *self.notes]
        return file.written(self.settings, self.parameters, notes)
