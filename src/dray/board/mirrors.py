"""Where copies of jobs' event files are kept, so that only what is new is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dray.home import Home


def mirror_of(home: Home, job_id: str) -> Path:
    return home.cache / "board" / job_id


def forget(home: Home, ids: Sequence[str]) -> None:
    """Remove the copies of these jobs' event files."""
    for job_id in ids:
        shutil.rmtree(mirror_of(home, job_id), ignore_errors=True)
