"""Run every measurement and write the figures into docs/explanation/performance.md."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path

from bench import (
    arrays,
    goodput,
    images,
    interruptions,
    kubernetes,
    labs,
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
PAGE = Path(__file__).parent.parent / "docs/explanation/performance.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main() -> None:
    figures: list[Figure] = []
    for suite in SUITES:
        with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
            print(f"{suite.__name__} …", flush=True)
            figures += suite.run(Path(folder))
    write(figures)


def write(figures: list[Figure]) -> None:
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}"
    python = f"Python {platform.python_version()}"
    lines = [
        BEGIN,
        f"Measured on {time.strftime('%Y-%m-%d')}, {machine}, {python}; best of several runs.",
        "",
        "| what | measured | against | ratio | goal | met |",
        "|---|---|---|---|---|---|",
        *(figure.row() for figure in figures),
        END,
    ]
    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + "\n".join(lines) + tail, "utf-8")
    print("\n".join(lines[1:-1]))


if __name__ == "__main__":
    main()
