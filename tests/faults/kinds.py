"""The kinds of cluster whose processes are struck. A new kind is a class here and an entry in
KINDS: how it is made known to dray, how its processes come by the shim, who they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from tests.faults.pods import Pods
from tests.faults.site import Site

KUBECTL = Path(__file__).parent / "kubectl.py"
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
        "vary": ("sweep", "keeper", "supervisor"),
    }
    sample: ClassVar = {"kill": 3, "after": 2, "ENOSPC": 1, "EIO": 2, "ENOSPC+": 1, "EIO+": 1}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """It needs nothing but this machine."""

    def offer(self, site: Site) -> None:
        """It is always there."""


def wrapper(site: Site) -> Path:
    """Write the Python of a cluster."""
    python = site.outside / "python3"
    variables = " ".join(f"{key}={value}" for key, value in site.shim.env("node").items())
    python.write_text(WRAPPER.format(variables=variables))
    python.chmod(0o755)
    return python


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
        scratch = site.home / "scratch"
        scratch.mkdir()
        self.hpc.offer(
            site.dray,
            python=str(wrapper(site)),
            setup=[f"export SLURM_TMPDIR={scratch}"],
            resume_with="chain",  # a requeued job waits for seconds
        )


class Ssh:
    """A machine without a scheduler: the same queue as on this one, behind the agent. Without a
    host it is this machine, so that no sshd is needed."""

    name = "ssh"
    flags = ("--on", "box")
    way = "signal"
    python = "/usr/bin/python3"
    roles: ClassVar = {
        "train": ("agent-run", "starter", "keeper", "supervisor", "agent-rm"),
        "manage": ("agent-stop", "agent-resume", "keeper"),
    }
    sample: ClassVar = {"kill": 1, "EIO": 1}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """It needs nothing but this machine."""

    def offer(self, site: Site) -> None:
        python = wrapper(site)
        site.dray.configure(
            f"[clusters.box]\nkind = 'ssh'\nroot = '{site.home}/hpc-root'\npython = '{python}'\n"
        )


class Kubernetes:
    """Pods are processes of this machine, and a program of ours is the kubectl that tells of them:
    see pods.py. The helper's agent and the pods have the shim around them."""

    name = "kubernetes"
    flags = ("--on", "k8s")
    way = "signal"  # its pod is taken away, and the next one goes on
    python = "/usr/bin/python3"
    roles: ClassVar = {
        "train": ("agent-run", "pod", "agent-rm"),
        "manage": ("agent-stop", "agent-resume", "pod"),
    }
    sample: ClassVar = {"kill": 1}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """It needs nothing but this machine."""

    def offer(self, site: Site) -> None:
        python = wrapper(site)
        kubectl = site.outside / "kubectl"
        kubectl.write_text(f'#!/bin/sh\nexec /usr/bin/python3 -I -S {KUBECTL} "$@"\n')
        kubectl.chmod(0o755)
        pods = Pods(site.outside / "pods")
        site.at_end.append(pods.close)
        site.dray.env["PATH"] = f"{site.outside}:{site.dray.env['PATH']}"
        site.dray.env["KUBE_SOCKET"] = str(pods.socket)
        site.dray.env["KUBE_PATH"] = str(python.parent)
        lines = (
            "kind = 'kubernetes'",
            "namespace = 'sim'",
            "image = 'trainer'",
            f"volumes = ['host:{site.home}:{site.home}']",
            f"root = '{site.home}/hpc-root'",
            f"python = '{python}'",
        )
        site.dray.configure("\n".join(["[clusters.k8s]", *lines, ""]))


KINDS = {kind.name: kind for kind in (Local, Slurm, Ssh, Kubernetes)}
