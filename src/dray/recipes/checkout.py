"""Finds how a checkout starts Isaac Lab's training: by a script for each library, or (since 3.0)
by one program that takes the library as an argument. Both this and the flags are read from the
files."""

from __future__ import annotations

import re
from pathlib import Path

from dray.recipes import Request, starting
from dray.records import NamedTuple

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
    """One library's program to train or play, as a checkout has it."""

    path: str  # where it is written, for people
    arguments: tuple[str, ...]  # what Python runs
    text: str = ""  # the sources that show which flags it knows; "" if not found
    told: tuple[str, ...] = ()  # arguments for isaaclab.sh instead; none before 3.0

    def has(self, flag: str) -> bool:
        return starting.has_flag(self.text, flag)

    def lacks(self, flag: str) -> bool:
        """Return whether the program is known to lack this flag. All of them have --max_iterations,
        so its text was found if that is in it."""
        return self.has("--max_iterations") and not self.has(flag)


def find(folder: Path, library: str, action: str = "train") -> Program | None:
    """Return what starts this library's training in this folder, or another ``action`` such as
    playing."""
    for place, *others in PARTS:
        path = f"{place.format(library)}{action}_{library}.py"
        if (folder / path).is_file():
            told = (action, LIBRARY, library)
            script = f"{SCRIPTS}/{action}.py"
            has_script = (folder / script).is_file()
            arguments = (script, *told[1:]) if has_script else ("-m", MODULE, *told)
            beside = [one.format(library) for one in others]
            return Program(path, arguments, read(folder / path, beside), told)
    paths = (one.format(library, action) for one in PER_LIBRARY)
    path = next((one for one in paths if (folder / one).is_file()), "")
    return Program(path, (path,), read(folder / path, ["cli_args.py"])) if path else None


def named_in(request: Request, library: str) -> Program:
    """Return the program that a whole command starts, as far as it can be seen."""
    if starts_any(request.command):
        unseen = Program("", (), "", ("train", LIBRARY, library))
        return find(request.folder, library) or unseen
    script = starting.script_of(request)
    return Program("", (), read(script, ["cli_args.py"]) if script else "")


def hides_how_python_ended(folder: Path) -> bool:
    """Return whether isaaclab.sh succeeds even if Python failed, as in the first beta of 3.0."""
    text = starting.content(folder / COMMAND_LINE)
    return "run_python_command(args.python[0], args.python[1:])" in text


def starts_any(command: tuple[str, ...]) -> bool:
    """Return whether this is the program for all libraries, which takes the library as an
    argument."""
    return any(re.match(rf"{LIBRARY}(=|$)", word) for word in command)


def read(script: Path, beside: list[str]) -> str:
    files = [script, *(script.parent / one for one in beside)]
    return "\n".join(starting.content(path) for path in files)
