"""How a checkout starts Isaac Lab's training: by a script for each library, or (since 3.0) by one
program for all of them that is told the library. Found by what is there, as are the flags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from dray.recipes import Request, starting

SCRIPTS = "scripts/reinforcement_learning"
PER_LIBRARY = (
    SCRIPTS + "/{}/{}.py",
    "source/standalone/workflows/{}/{}.py",  # before Isaac Lab 2.0
    "scripts/{}/{}.py",  # a project made from its template
)
# Where the program for all libraries has its parts, and what else says which flags they know.
PARTS = (
    ("source/isaaclab_rl/isaaclab_rl/entrypoints/backends/", "cli_args_{}.py", "../common.py"),
    (SCRIPTS + "/{}/", "cli_args.py", "../common.py"),  # before 3.0 was released
)
COMMAND_LINE = "source/isaaclab/isaaclab/cli/__init__.py"  # that isaaclab.sh hands over to
LIBRARY = "--rl_library"
MODULE = "isaaclab"


class Program(NamedTuple):
    """One library's training or playing, as a checkout has it."""

    path: str  # where it is written, for people
    words: tuple[str, ...]  # what Python runs
    text: str = ""  # all that says which flags it knows; nothing where that is not to be seen
    told: tuple[str, ...] = ()  # what isaaclab.sh is told instead; nothing before 3.0

    def has(self, flag: str) -> bool:
        return starting.has_flag(self.text, flag)

    def lacks(self, flag: str) -> bool:
        """Whether that is to be seen: each of them has --max_iterations, whatever else."""
        return self.has("--max_iterations") and not self.has(flag)


def find(folder: Path, library: str, action: str = "train") -> Program | None:
    """What starts this library's training in this folder; or playing, which is the action."""
    for place, *others in PARTS:
        path = f"{place.format(library)}{action}_{library}.py"
        if (folder / path).is_file():
            told = (action, LIBRARY, library)
            script = f"{SCRIPTS}/{action}.py"
            has_script = (folder / script).is_file()
            words = (script, *told[1:]) if has_script else ("-m", MODULE, *told)
            beside = [one.format(library) for one in others]
            return Program(path, words, read(folder / path, beside), told)
    paths = (one.format(library, action) for one in PER_LIBRARY)
    path = next((one for one in paths if (folder / one).is_file()), "")
    return Program(path, (path,), read(folder / path, ["cli_args.py"])) if path else None


def named_in(request: Request, library: str) -> Program:
    """What a whole command starts, as far as it can be seen."""
    if starts_any(request.command):
        unseen = Program("", (), "", ("train", LIBRARY, library))
        return find(request.folder, library) or unseen
    script = starting.script_of(request)
    return Program("", (), read(script, ["cli_args.py"]) if script else "")


def hides_how_python_ended(folder: Path) -> bool:
    """Whether isaaclab.sh ends well even where Python failed, as in the first beta of 3.0."""
    text = starting.content(folder / COMMAND_LINE)
    return "run_python_command(args.python[0], args.python[1:])" in text


def starts_any(command: tuple[str, ...]) -> bool:
    """Whether this is the program for all libraries: it is told which."""
    return any(re.match(rf"{LIBRARY}(=|$)", word) for word in command)


def read(script: Path, beside: list[str]) -> str:
    files = [script, *(script.parent / one for one in beside)]
    return "\n".join(starting.content(path) for path in files)
