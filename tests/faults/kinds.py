"""The kinds of cluster whose processes are struck. A new kind is a class here and an entry in
KINDS: how it is made known to dray, how its processes come by the shim, who they are."""

from __future__ import annotations

import sys
from typing import ClassVar, Protocol

import pytest

from tests.faults.site import Site

WRAPPER = """\
#!/bin/sh
# The Python of the cluster: the agent and the batch jobs have the shim around them.
export {variables}
exec /usr/bin/python3 "$@"
"""


class Kind(Protocol):
    name: ClassVar[str]
    flags: ClassVar[tuple[str, ...]]  # of dray run
    way: ClassVar[str]  # how the trainer's first life ends: see trainer.py
    python: ClassVar[str]  # that runs the trainer
    roles: ClassVar[dict[str, tuple[str, ...]]]  # who is struck in which life
    sample: ClassVar[dict[str, int]]  # how many points of each role, where there is little time

    def offer(self, site: Site) -> None:
        """Make the cluster known to the dray of this site, with the shim on the way."""


class Local:
    """The keeper gets the shim from ``dray run``, and hands it down by forking."""

    name = "local"
    flags = ()
    way = "signal"
    python = sys.executable
    roles: ClassVar = {
        "train": ("run", "starter", "keeper", "supervisor", "child", "rm"),
        "manage": ("stop", "resume", "keeper", "supervisor"),
    }
    sample: ClassVar = {"kill": 3, "after": 2, "ENOSPC": 1, "EIO": 2, "ENOSPC+": 1, "EIO+": 1}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """It needs nothing but this machine."""

    def offer(self, site: Site) -> None:
        """It is always there."""


class Slurm:
    """The agent and the attempt are started by the cluster's Python, which is a script of ours."""

    name = "slurm"
    # A crash: a signal would be taken for Slurm's, whose next move is waited for.
    flags = ("--on", "hpc", "--retries", "3", "--backoff", "0.1s")
    way = "crash"
    python = "/usr/bin/python3"
    roles: ClassVar = {
        "train": ("run", "agent-run", "attempt", "child", "agent-rm"),
        "manage": ("agent-stop", "agent-resume", "attempt"),
    }
    sample: ClassVar = {"kill": 1, "after": 1, "EIO": 1}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.hpc = request.getfixturevalue("hpc")

    def offer(self, site: Site) -> None:
        python, scratch = site.outside / "python", site.home / "scratch"
        variables = " ".join(f"{key}={value}" for key, value in site.shim.env("node").items())
        python.write_text(WRAPPER.format(variables=variables))
        python.chmod(0o755)
        scratch.mkdir()
        self.hpc.offer(
            site.dray,
            python=str(python),
            setup=[f"export SLURM_TMPDIR={scratch}"],
            resume_with="chain",  # a requeued job waits for seconds
        )


KINDS = {kind.name: kind for kind in (Local, Slurm)}
