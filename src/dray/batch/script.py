"""The part of a batch script that every batch system gets: prepare, then be the attempt."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from dray.transport import zipapp

ROOT = "@ROOT@"  # the agent knows what the root's variables stand for there


def attempt_lines(folder: str, settings: Mapping[str, Any]) -> list[str]:
    """``folder`` is the job's directory, or an array's."""
    modules = " ".join(shlex.quote(name) for name in settings.get("modules", ()))
    python = shlex.quote(settings.get("python", "python3"))
    return [
        *([f"module load {modules}"] if modules else ()),
        *settings.get("setup", ()),
        f"exec {python} -I -S '{ROOT}/node/{zipapp.name()}' attempt '{folder}'",
    ]
