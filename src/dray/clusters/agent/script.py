"""The part of a batch script that every batch system gets: prepare, then be the attempt."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dray.job.options import shared
from dray.programs import shipping

# Slurm writes that word there itself; after exec the line has no effect.
TELL_OF_CANCELLING = "trap 'echo CANCELLED before the attempt; exit 143' TERM"
ROOT = "@ROOT@"  # the agent knows what the root's variables stand for there


def attempt_lines(folder: str, settings: Mapping[str, Any], entry: str = "attempt") -> list[str]:
    """Return the lines that run an attempt; ``folder`` is the job's directory, or an array's. With
    the ``entry`` task, those of all jobs that share the batch job."""
    preparing = preparing_lines(settings)
    return [
        *([TELL_OF_CANCELLING] if preparing else ()),
        *preparing,
        f"exec {node_program(settings)} {entry} '{folder}'",
    ]


def preparing_lines(settings: Mapping[str, Any]) -> list[str]:
    """Return the lines that load the modules and run the setup commands. A failure ends the
    script."""
    lines = module_lines(shared.MODULES.of(settings))
    return lines + [line for one in shared.SETUP.of(settings) for line in setup_lines(one)]


def node_program(settings: Mapping[str, Any], flags: str = "-I -S") -> str:
    """Return the command that starts dray's program there."""
    python = shlex.quote(shared.PYTHON.of(settings))
    return f"{python} {flags} '{ROOT}/node/{shipping.name()}'"


def module_lines(modules: Sequence[str]) -> list[str]:
    """Return the lines that load modules. The last line of output becomes the job's reason, so a
    failure is printed last."""
    if not modules:
        return []
    load = "module load " + " ".join(map(shlex.quote, modules))
    complaint = shlex.quote(f"{load} failed: see the setting modules")
    return [f"{load} || {{", f"    echo {complaint}", "    exit 1", "}"]


def setup_lines(line: str) -> list[str]:
    """Return a setup command that ends the script if it fails: without it, the command would fail
    later, and less plainly."""
    complaint = shlex.quote(f"setup failed: {line} (where that is fine, add: || true)")
    return [line, f"[ $? = 0 ] || {{ echo {complaint}; exit 1; }}"]
