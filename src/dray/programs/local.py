"""Starts dray's own programs on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dray import tracing
from dray.errors import ClusterError

# The keeper needs nothing of the user's environment; the command's comes from its description.
# A UTF-8 locale lets Python 3.6 speak of files with any name.
KEEPER_ENV = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}


def keeper_command(app: str, job_dir: str) -> list[str]:
    """Return the words that start it; the last two stand for the locks that it inherits."""
    return [sys.executable, "-I", "-S", app, "keep", job_dir, "ALIVE", "TICKET"]


def start_keeper(
    command: Sequence[str], alive: int, ticket: int, log: str, extra_env: dict[str, str]
) -> None:
    """Start a job's keeper, detached, and return once it is running. It inherits the two locks.

    ``alive``: the job's lock. ``ticket``: its place in the queue.
    """
    import subprocess  # only for a submission

    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    argv = [*command[:-2], str(alive), str(ticket)]
    tracing.trace_program(argv)
    with os.fdopen(os.open(log, flags, 0o600), "ab") as output:
        ended = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(alive, ticket),
            start_new_session=True,
            cwd="/",
            env={**KEEPER_ENV, **extra_env},
            check=False,
        )
    if ended.returncode != 0:
        raise ClusterError(
            f"the job's keeper did not start (exit code {ended.returncode})",
            hint=f"What it said is in {log}",
        )


def count_gpus() -> int:
    """Return how many GPUs nvidia-smi lists; 0 if it is missing or does not answer."""
    import shutil  # only where GPUs are asked for
    import subprocess

    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listing = subprocess.run(
            [program, "--list-gpus"], capture_output=True, text=True, timeout=20, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
