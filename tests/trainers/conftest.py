"""The real trainers, in an environment of their own, and the project that they train in."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Dray, environment

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def trainers() -> Path:
    """The bin folder of the environment."""
    return environment("trainers")


@pytest.fixture
def dray(dray: Dray, trainers: Path) -> Dray:
    """In that project; what it calls python has the trainers."""
    shutil.copytree(HERE / "project", dray.project, dirs_exist_ok=True)
    return dray


@pytest.fixture(scope="session")
def summarize(trainers: Path) -> Callable[[str, Path, Path], dict[str, Any]]:
    def summarize(tag: str, checkpoint: Path, folder: Path) -> dict[str, Any]:
        words = [trainers / "python", HERE / "summary.py", tag, checkpoint, folder]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    return summarize
