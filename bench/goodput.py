"""How much of what Slurm gives is training that counts, over ten limits of one minute."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.rigs.slurm import Slurm

from bench.measure import Figure
from dray import api

LIMITS = 10
LIMIT = 60.0
FIXED_TIMER = 0.875  # 3.5 of 4 hours, whatever the trainer does

SAVE = 0.3  # seconds

# Steps of a twentieth of a second. What counts is the time spent in
# steps that the next attempt, or the end, finds in a checkpoint.
TRAINER = """
import json, os, signal, sys, time
folder = os.environ["DRAY_OUTPUTS"]
every = float(sys.argv[1])
useful = 0.0
if "DRAY_CHECKPOINT" in os.environ:
    useful = json.load(open(os.environ["DRAY_CHECKPOINT"]))["useful"]
attempt = os.environ["DRAY_ATTEMPT"]
open(os.path.join(folder, "begun_" + attempt), "w").write(str(useful))
open(os.path.join(folder, "start_" + attempt), "w").write(str(time.time()))
reached = os.open(os.path.join(folder, "reached_" + attempt), os.O_CREAT | os.O_WRONLY)
wanted = []
if not every:
    signal.signal(signal.SIGUSR1, lambda *_: wanted.append("save"))
    signal.signal(signal.SIGTERM, lambda *_: wanted.append("end"))
saved = time.monotonic()
while int(attempt) <= int(sys.argv[2]):
    began = time.monotonic()
    time.sleep(0.05)
    useful += time.monotonic() - began
    os.pwrite(reached, b"%.3f\\n" % useful, 0)
    if "end" in wanted and time.monotonic() - saved < 1:
        sys.exit(1)
    if wanted or (every and time.monotonic() - saved >= every):
        time.sleep(float(sys.argv[3]))
        name = os.path.join(folder, "ckpt_%d.json" % (useful * 1000))
        open(name + ".tmp", "w").write(json.dumps({"useful": useful}))
        os.replace(name + ".tmp", name)
        saved = time.monotonic()
        if "end" in wanted:
            sys.exit(1)
        wanted.clear()
"""


class Goodput(NamedTuple):
    useful: float
    allocated: float
    attempts: int
    saves: int

    @property
    def share(self) -> float:
        return self.useful / self.allocated

    @property
    def best(self) -> float:
        """Of the time that it was given, all but what saving takes."""
        return 1 - self.saves * SAVE / self.allocated


def run(folder: Path) -> list[Figure]:
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))  # sockets need a short path
    short.chmod(0o755)
    slurm = Slurm(short / "slurm", accounting=True)
    slurm.start()
    try:
        on_request, periodic, unheeded = measure(slurm, folder)
    finally:
        slurm.stop()
        shutil.rmtree(short, ignore_errors=True)
    return [
        figure("that saves on request", on_request, "≥ 98 %", 0.98),
        figure("that saves every 10 s by itself", periodic, "≥ 98 %", 0.98),
        figure("the same, run into the limit", unheeded, "none", 0.0),
    ]


def figure(what: str, found: Goodput, goal: str, least: float) -> Figure:
    ratio = found.share / found.best
    return Figure(
        f"goodput over {found.attempts} limits of one minute, a trainer {what}",
        found.share * 100,
        "%",
        f"all but the saves ({found.best:.1%}); a fixed timer has {FIXED_TIMER:.1%} at best",
        ratio,
        goal,
        ratio >= least,
    )


def measure(slurm: Slurm, folder: Path) -> list[Goodput]:
    """All at once: they sleep most of the time."""
    os.environ["DRAY_HOME"] = str(folder / "dray")
    os.environ["SLURM_CONF"] = str(slurm.conf)
    (folder / "dray").mkdir(mode=0o700)
    (folder / "dray/config.toml").write_text(
        f'[clusters.here]\nkind = "slurm"\nroot = "{folder}/root"\npython = "{sys.executable}"\n'
    )
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAINER)
    jobs = [
        api.run(
            [sys.executable, "train.py", str(every), str(LIMITS), str(SAVE)],
            on="here",
            project=project,
            time="60s",
            checkpoint="ckpt_*.json",
            **more,
        )
        for every, more in (
            (0, {"checkpoint_signal": "USR1"}),
            (10, {"saves": "periodically"}),
            (10, {"saves": "on-request"}),  # which it does not
        )
    ]
    for job in jobs:
        job.wait(timeout=LIMITS * LIMIT * 2)
    time.sleep(2)  # for Slurm's own books
    return [goodput_of(slurm, job, folder) for job in jobs]


def goodput_of(slurm: Slurm, job: api.Job, folder: Path) -> Goodput:
    """Without the last attempt, which only finds that it is the last."""
    saved = list((folder / "root/jobs" / job.id / "outputs").glob("ckpt_*.json"))
    useful = max(json.loads(path.read_text())["useful"] for path in saved)
    spans = allocations(slurm, job.id)[:LIMITS]
    return Goodput(useful, sum(spans), len(spans), len(saved))


def allocations(slurm: Slurm, name: str) -> list[float]:
    """How long each batch job of this name had its node, by Slurm's books."""
    words = ("sacct", "--duplicates", "--allocations", "--noheader", "--name", name)
    return [float(one) for one in slurm.call(*words, "--format=ElapsedRaw").split()]
