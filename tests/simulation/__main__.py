"""Run schedules: one by its seed, some by their number, or as many as there is time for.

The same seed does the same in every process: Python's own hashing must not differ between them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.schedule import Report, play

SHOWN = 10


def seeds(options: argparse.Namespace) -> Iterator[int]:
    """By number, or for so long."""
    until = time.monotonic() + options.minutes * 60 if options.minutes else None
    seed = options.first if options.seed is None else options.seed
    last = seed + (options.count if options.seed is None else 1)
    while (time.monotonic() < until) if until else (seed < last):
        yield seed
        seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?", help="play this schedule alone")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=0.0, help="go on for so long")
    parser.add_argument("--kind", default="", help="of this kind only, whatever the seed says")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    failed: list[Report] = []
    began = time.monotonic()
    for seed in seeds(options):
        report = play(seed, print if options.trace else None, options.kind)
        counts += report.counts
        counts["schedules"] += 1
        if report.violations:
            failed.append(report)
            if len(failed) <= SHOWN:
                print(report.line, flush=True)
    took = time.monotonic() - began
    print(f"{counts['schedules']} schedules in {took:.1f} s, {len(failed)} with violations")
    kinds = Counter(report.violations[0].invariant for report in failed)
    for name, count in [*kinds.most_common(), *sorted(counts.items())]:
        print(f"{count:10,}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
