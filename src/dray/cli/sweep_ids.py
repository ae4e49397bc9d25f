"""A sweep as an argument, with completion."""

from __future__ import annotations

import click

from dray.cli.output import age
from dray.cli.parameters import Completed, known_jobs


class SweepId(Completed):
    name = "sweep"

    def words(self, ctx: click.Context) -> list[tuple[str, str]]:
        with known_jobs() as store:
            found = store.sweeps() if store else []
        return [(one.id, f"{age(one.created)} ago on {one.cluster}") for one in found]
