"""Run every measurement and write the figures into docs/explanation/performance.md."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import (
    arrays,
    goodput,
    images,
    interruptions,
    kubernetes,
    labs,
    pages,
    sessions,
    slurm,
    snapshots,
    startup,
    supervision,
)
from bench.measure import Figure

SUITES = (
    startup,
    snapshots,
    supervision,
    slurm,
    sessions,
    labs,
    arrays,
    kubernetes,
    images,
    goodput,
    interruptions,
)


def main() -> None:
    figures: list[Figure] = []
    for suite in SUITES:
        with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
            print(f"{suite.__name__} …", flush=True)
            figures += suite.run(Path(folder))
    write(figures)


def write(figures: list[Figure]) -> None:
    lines = [
        f"{pages.measured()}; best of several runs.",
        "",
        "| what | measured | against | ratio | goal | met |",
        "|---|---|---|---|---|---|",
        *(figure.row() for figure in figures),
    ]
    pages.write("performance.md", lines)


if __name__ == "__main__":
    main()
