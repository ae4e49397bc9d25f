"""An image from the laptop's podman to a real Slurm with a real Apptainer, over a 50 ms link."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.rigs.containers import BASE, Apptainer, Podman

from bench.measure import Figure, seconds
from bench.slurm import Laptop

LIBRARY = 200 << 20  # bytes of the layer that is the same in both images
CHANGED = 5 << 20  # and of the top one
NAME = "localhost/bench"


def run(_: Path) -> list[Figure]:
    short = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))  # sockets need a short path
    short.chmod(0o755)
    podman, apptainer = Podman(short / "podman"), Apptainer(short / "apptainer")
    setup = [f"export PATH={apptainer.bin}:$PATH"]
    try:
        with Laptop(short, setup=setup) as laptop:
            laptop.env["PATH"] = f"{podman.bin}:{laptop.env['PATH']}"
            return measure(laptop, podman, apptainer, short)
    finally:
        podman.remove()
        shutil.rmtree(short, ignore_errors=True)


def measure(laptop: Laptop, podman: Podman, apptainer: Apptainer, folder: Path) -> list[Figure]:
    make_images(podman, folder / "context")
    laptop.submit()  # the agent is there, and the connection stands
    by_hand = seconds(lambda: bring_by_hand(laptop, podman, apptainer, folder))
    by_dray = seconds(lambda: laptop.dray("image", "push", f"{NAME}:1", "--on", "hpc"))
    before = laptop.link.sent_up
    laptop.dray("image", "push", f"{NAME}:2", "--on", "hpc")
    sent = laptop.link.sent_up - before
    plain = turns(laptop)
    contained = turns(laptop, "--image", f"{NAME}:1")
    return [
        Figure(
            "`dray image push` of an image of 230 MB until it can be run",
            by_dray,
            "s",
            f"`podman save`, `apptainer build`, `scp` by hand ({by_hand:.1f} s)",
            by_dray / by_hand,
            "≤ 1×",
            by_dray <= by_hand,
        ),
        Figure(
            "sent for an image whose top layer changed",
            sent / 2**20,
            "MB",
            f"that layer ({CHANGED / 2**20:.0f} MB)",
            sent / CHANGED,
            "the layer only",
            sent < 1.1 * CHANGED,
        ),
        Figure(
            "round trips of a `dray run` with an image that is there",
            contained,
            "",
            f"without an image ({plain})",
            None,
            "≤ 1 more",
            contained <= plain + 1,
        ),
    ]


def turns(laptop: Laptop, *flags: str) -> int:
    """Return the fewest round trips of several runs: packets may come in two halves."""
    found = []
    for _ in range(5):
        before = laptop.link.turns
        laptop.submit(*flags)
        found.append(laptop.link.turns - before)
    return min(found)


def make_images(podman: Podman, context: Path) -> None:
    """Two with a library of programs and Python modules, and something of their own on top."""
    podman.make_base()
    context.mkdir()
    size, files = 0, []
    for path in sorted(Path("/usr/lib/x86_64-linux-gnu").iterdir()):
        if path.is_file() and not path.is_symlink() and size < LIBRARY:
            size += path.stat().st_size
            files.append(path.name)
    words = ["tar", "-C", "/usr/lib/x86_64-linux-gnu", "-cf", str(context / "lib.tar"), *files]
    subprocess.run(words, check=True)
    (context / "Dockerfile").write_text(
        f"FROM {BASE}\nADD lib.tar /opt/lib/\nCOPY weights /opt/weights\n"
    )
    for number in (1, 2):
        (context / "weights").write_bytes(os.urandom(CHANGED))
        podman("build", "--quiet", "--tag", f"{NAME}:{number}", str(context))
    shutil.rmtree(context)


def bring_by_hand(laptop: Laptop, podman: Podman, apptainer: Apptainer, folder: Path) -> None:
    archive, sif = folder / "image.tar", folder / "image.sif"
    podman("save", "--quiet", "--output", str(archive), f"{NAME}:1")
    apptainer("build", "--disable-cache", str(sif), f"docker-archive:{archive}")
    there = f"hpc:{laptop.root}/by-hand.sif"
    words = ["scp", "-q", "-O", "-S", f"{laptop.sshd.bin}/ssh", str(sif), there]
    subprocess.run(words, env=laptop.env, check=True)
    archive.unlink()
    sif.unlink()
