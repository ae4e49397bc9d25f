"""From Enter to queued on a real Slurm, over a link with 50 ms of round trip."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.link import Link
from tests.rigs.processes import until
from tests.rigs.slurm import Slurm
from tests.rigs.ssh import Sshd

from bench.measure import Figure, best_of, command, seconds
from bench.snapshots import make_tree

ONE_WAY = 0.025


class Laptop:
    """A dray that reaches a Slurm over the slow link."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.settings = settings
        self.slurm = Slurm(folder / "slurm")
        self.sshd = Sshd(folder / "ssh", {"SLURM_CONF": str(self.slurm.conf)})
        self.root = folder / "root"
        self.tree = folder / "tree"
        self.env = {
            **os.environ,
            "DRAY_HOME": str(folder / "dray"),
            "XDG_RUNTIME_DIR": str(folder / "s"),
        }
        for name in ("s", "dray"):
            (folder / name).mkdir(mode=0o700)

    def __enter__(self) -> Laptop:
        self.slurm.start()
        self.sshd.start()
        self.link = Link(self.sshd.port, ONE_WAY)
        self.sshd.write_client_config(self.link.port)
        self.env["PATH"] = f"{self.sshd.bin}:{self.env['PATH']}"
        settings = {
            "kind": "slurm",
            "host": "hpc",
            "root": str(self.root),
            "python": sys.executable,
            "setup": [f"export SLURM_TMPDIR={self.slurm.scratch}"],
            **self.settings,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        config = Path(self.env["DRAY_HOME"]) / "config.toml"
        config.write_text("\n".join(["[clusters.hpc]", *lines, ""]))
        make_tree(self.tree)
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()
        self.sshd.stop()
        self.slurm.stop()

    def submit(self, *flags: str) -> None:
        self.dray("run", "--on", "hpc", *flags, "--", "/bin/true")

    def dray(self, *words: str) -> None:
        dray = str(Path(sys.executable).parent / "dray")
        command(dray, *words, cwd=self.tree, env=self.env, stderr=subprocess.DEVNULL)()

    def rsync(self) -> None:
        """How the tree would be brought there by hand, into a new folder."""
        words = ["rsync", "-az", "--exclude=.git", f"{self.tree}/", f"hpc:{self.root}-by-hand/"]
        command(*words, env=self.env)()

    def edit(self) -> None:
        file = self.tree / "package0/module0/file0.py"
        file.write_bytes(random.randbytes(12_000))

    def files_of_one_submission(self) -> int:
        """Inodes in the folder of a job that has run, and its pack; the snapshot is linked."""
        job = next((self.root / "jobs").iterdir())
        number = json.loads((job / "scheduler.json").read_text())["id"]
        subprocess.run(["scontrol", "release", number], env=self.slurm.env, check=True)
        until((job / "end.json").exists, 60)
        return len({path.stat().st_ino for path in job.rglob("*") if path.is_file()}) + 1

    def round_trip(self) -> None:
        """One byte there and back, on a connection that is open already."""
        echo = socket.create_server(("127.0.0.1", 0))
        relay = Link(echo.getsockname()[1], ONE_WAY)
        near = socket.create_connection(("127.0.0.1", relay.port))
        far, _ = echo.accept()
        try:
            self.trip = seconds(
                lambda: (near.send(b"x"), far.recv(1), far.send(b"x"), near.recv(1))
            )
        finally:
            for one in (near, far, echo):
                one.close()
            relay.close()

    def sbatch(self) -> None:
        words = ["sbatch", "--parsable", "--output=/dev/null", "--wrap=true"]
        subprocess.run(words, env=self.slurm.env, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder with a short path: sockets need one."""
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))
    short.chmod(0o755)
    try:
        yield short
    finally:
        shutil.rmtree(short, ignore_errors=True)


def run(_: Path) -> list[Figure]:
    # Jobs that run would take the laptop's time: here it is the cluster, too.
    with short_folder() as short, Laptop(short, extra=["--hold"]) as laptop:
        return measure(laptop)


def measure(laptop: Laptop) -> list[Figure]:
    time.sleep(1.2)  # the tree is settled
    by_hand = seconds(laptop.rsync)
    first = seconds(laptop.submit)
    laptop.round_trip()
    floor = laptop.trip + best_of({"sbatch": laptop.sbatch}, rounds=5)["sbatch"]
    times = []
    for _ in range(8):
        laptop.edit()
        times.append(seconds(laptop.submit))
    queued = min(times)
    left = laptop.files_of_one_submission()
    return [
        Figure(
            "Enter → queued on Slurm, 50 ms link, one file of 5,000 changed",
            queued * 1000,
            "ms",
            f"one round trip + `sbatch` ({floor * 1000:.0f} ms)",
            queued / floor,
            "≤ 1.5×",
            queued / floor <= 1.5,
        ),
        Figure(
            "the same with the whole tree to send (60 MB) and the connection to open",
            first,
            "s",
            f"`rsync -az` of the tree alone ({by_hand:.2f} s)",
            first / by_hand,
            "≤ 0.67×",
            first / by_hand <= 0.67,
        ),
        Figure(
            "files left on the cluster by one submission",
            left,
            "files",
            "",
            None,
            "≤ 10",
            left <= 10,
        ),
    ]
