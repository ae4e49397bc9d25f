"""JupyterLab on a real Slurm, from Enter to a page that answers: by ``dray lab``, and by hand."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from contextlib import suppress
from pathlib import Path

from tests.conftest import environment
from tests.rigs.processes import free_ports, until

from bench.measure import Figure
from bench.sessions import Visitor
from bench.slurm import short_folder

ROUNDS = 3
TOKEN = "a" * 32  # by hand, it is in the list of processes for everybody


def run(_: Path) -> list[Figure]:
    jupyter = environment("sessions")
    dray, hand = [], []
    with short_folder() as folder, Visitor(folder) as laptop:
        for _round in range(ROUNDS):  # in turns, so that both meet the same load
            dray.append(by_dray(laptop, str(jupyter / "python")))
            hand.append(by_hand(laptop, str(jupyter / "jupyter")))
    return [
        Figure(
            "`dray lab` on an idle Slurm, from Enter to a page that answers",
            min(dray),
            "s",
            f"`srun jupyter lab` and `ssh -L` by a script: {min(hand):.2f} s",
            min(dray) / min(hand),
            "none",
            True,
        )
    ]


def by_dray(laptop: Visitor, python: str) -> float:
    begin = time.perf_counter()
    words = (laptop.program(), "lab", "--no-browser", "--on", "hpc", "--time", "10m", "--", python)
    with laptop.started(*words) as dray:
        assert dray.stdout is not None
        address = dray.stdout.readline().decode().strip()
        until(lambda: answers(address), 60)
        found = time.perf_counter() - begin
    stop_labs(laptop)
    return found


def stop_labs(laptop: Visitor) -> None:
    """End it, so that the next one is not the same."""
    for job in json.loads(laptop.said(laptop.program(), "ps", "--json")):
        if job["id"] != laptop.job and not job["ended"]:
            laptop.said(laptop.program(), "stop", "--now", job["id"])
            until((laptop.root / "jobs" / job["id"] / "end.json").exists, 60)


def by_hand(laptop: Visitor, jupyter: str) -> float:
    begin = time.perf_counter()
    near, far = free_ports(2)  # the login node is this machine here
    settings = f"--allow-root --no-browser --port {far} --IdentityProvider.token={TOKEN}"
    # The way of the guides: with a terminal, so that what runs there ends with it.
    started = laptop.started("ssh", "-tt", "hpc", f"srun -N1 -n1 {jupyter} lab {settings}")
    with started, laptop.started("ssh", "-N", "-L", f"{near}:127.0.0.1:{far}", "hpc"):
        until(lambda: answers(f"http://127.0.0.1:{near}/lab?token={TOKEN}"), 60)
        found = time.perf_counter() - begin
    time.sleep(1.0)
    return found


def answers(address: str) -> bool:
    url = urllib.parse.urlsplit(address)
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection(url.netloc, timeout=10)
        connection.request("GET", f"{url.path}?{url.query}")
        is_there = connection.getresponse().status == 200
        connection.close()
        return is_there
    return False
