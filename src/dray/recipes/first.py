"""Suggests a first command for a project, so that a newcomer has one that works."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from dray.recipes import starting

SCRIPTS = ("train.py", "main.py", "scripts/train.py", "src/train.py")
WHOLE = ("generic", "torchrun", "lightning")  # recipes that are given a whole command
# Tasks that train in a minute on any GPU, where there is a choice.
EASY = ("Isaac-Cartpole-v0", "Isaac-Ant-v0")
TASK = re.compile(r"""\bid\s*=\s*["']([A-Za-z][\w-]*-v\d+)["']""")
MOST_FOLDERS = 5000


def first_command(recipe: str, project: Path, python: str) -> tuple[str, ...]:
    """Return what to put behind ``dray run --``; if nothing is known, the trainer's own help."""
    if recipe in WHOLE:
        script = next((one for one in SCRIPTS if (project / one).is_file()), "")
        return (python, script) if script else (python, "-c", 'print("it works")')
    task = easiest(tasks_in(project)) if recipe.startswith("isaaclab/") else ""
    return ("--task", task, "--headless", "--max_iterations", "100") if task else ("--help",)


def easiest(tasks: list[str]) -> str:
    found = [one for one in EASY if one in tasks]
    found += sorted(one for one in tasks if "Play" not in one)
    return found[0] if found else ""


def tasks_in(project: Path) -> list[str]:
    """Return the tasks that an Isaac Lab checkout or extension registers, by the look of its
    files."""
    modules = (Path(folder, "__init__.py") for folder in islice(folders(project), MOST_FOLDERS))
    return [task for one in modules for task in TASK.findall(starting.content(one))]


def folders(project: Path) -> Iterator[str]:
    for top in ("source", "exts"):
        for folder, _, names in os.walk(project / top):
            if "__init__.py" in names:
                yield folder
