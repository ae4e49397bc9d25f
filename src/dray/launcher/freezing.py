"""Freezes a project's code: once for all the jobs that are submitted together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dray.clusters import registry
from dray.job.model import Snapshot
from dray.launcher.context import Context

if TYPE_CHECKING:
    from dray.snapshot import Scanner


class Freezer:
    """``outputs`` are the folders that jobs write to, and that are no code."""

    def __init__(self, context: Context, project: Path, outputs: Sequence[str]) -> None:
        self.context = context
        self.project = project
        self.outputs = outputs
        self._code: Snapshot | None = None

    def take(self, *, only_look: bool = False) -> Snapshot:
        """Read the code, unless that was done already. With ``only_look``, nothing is kept."""
        if self._code is None:
            reading = self.context.reporter.progress("reading code")
            scanner = self._scanner
            self._code = scanner.take(remember=False) if only_look else scanner.take(reading)
        return self._code

    def thaw(self) -> None:
        """Have the code read again: it has changed before it could be sent."""
        self._code = None

    @cached_property
    def _scanner(self) -> Scanner:
        return code_scanner(self.context, self.project, self.outputs)


def code_scanner(context: Context, project: Path, outputs: Sequence[str]) -> Scanner:
    """Return what reads the code of a job with these outputs."""
    from dray.snapshot import Scanner  # with OpenSSL's hashes: only where code is frozen

    config = context.config
    roots = registry.roots_here(config.clusters.values(), config.home.data)
    left_out = (*outputs, *config.own_folders(project, roots))
    return Scanner(project, left_out, config.home.cache, config.snapshot_max)
