"""A thousand jobs in one call, and the state of ten thousand, over the link with 50 ms."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Figure, best_of, command
from bench.slurm import Laptop
from dray.config import loading as configuration
from dray.launcher import Launcher

JOBS = 1000
ARRAYS = 10


def run(_: Path) -> list[Figure]:
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))  # sockets need a short path
    short.chmod(0o755)
    try:
        with Laptop(short, extra=["--hold"]) as laptop:
            os.environ.update(laptop.env)
            return measure(laptop)
    finally:
        shutil.rmtree(short, ignore_errors=True)


def measure(laptop: Laptop) -> list[Figure]:
    """Within one process, as a sweep submits them: the connection is open, the tree known."""
    laptop.submit()
    laptop.submit()
    flags = {"job.on": "hpc"}
    script = laptop.root / "by-hand.sh"
    script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\n#SBATCH --hold\ntrue\n")
    by_hand = command("sbatch", f"--array=0-{JOBS - 1}", str(script), env=laptop.slurm.env)

    def submit() -> None:
        launcher = Launcher(configuration.load(laptop.tree, flags))
        launcher.run_many([["/bin/true", str(number)] for number in range(JOBS)])

    laptop.round_trip()
    times = best_of({"dray": submit, "sbatch": by_hand}, ARRAYS)
    subprocess.run(["scancel", "--name", script.name], env=laptop.slurm.env, check=True)

    def look() -> None:
        Launcher(configuration.load(laptop.tree, flags)).refresh()

    dray = [str(Path(sys.executable).parent / "dray"), "ps"]
    acts = {
        "refresh": look,
        "ps": command(*dray, env=laptop.env, stderr=subprocess.DEVNULL),
        "squeue": command("squeue", "-r", env=laptop.slurm.env),
    }
    states = best_of(acts, 5)
    return [
        against(
            f"{JOBS:,} jobs submitted in one call",
            times["dray"],
            f"one round trip + `sbatch --array=0-{JOBS - 1}`",
            laptop.trip + times["sbatch"],
        ),
        against(
            f"state of {JOBS * ARRAYS:,} jobs brought up to date",
            states["refresh"],
            "one round trip + `squeue -r` of the same",
            laptop.trip + states["squeue"],
        ),
        against(
            f"`dray ps` with these {JOBS * ARRAYS:,} jobs, listed",
            states["ps"],
            "the same",
            laptop.trip + states["squeue"],
        ),
    ]


def against(what: str, ours: float, theirs_name: str, theirs: float) -> Figure:
    ratio = ours / theirs
    name = f"{theirs_name} ({theirs * 1000:.0f} ms)"
    return Figure(what, ours * 1000, "ms", name, ratio, "≤ 1.5×", ratio <= 1.5)
