"""What is left out of a snapshot."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dray.snapshot.globs import Patterns
from dray.snapshot.repository import Ask, Tracked, find_dot_git, outer_files, read_bytes
from dray.snapshot.stamps import Stamp, doubted, stamp_of_file

ALWAYS_OUT = frozenset(
    [
        ".DS_Store",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        "__pycache__",
    ]
)
# A folder that holds one of these is not code: a virtual environment, or outputs pulled home.
TELLTALES = frozenset(["pyvenv.cfg", "conda-meta", ".dray-outputs"])

Level = tuple[Patterns, bytes]  # rules, and the place of the folder they judge below them


class Rules:
    """The ignore files of one tree: read when first needed, deeper ones before shallower ones."""

    def __init__(self, root: Path, left_out: tuple[str, ...], ask: Ask) -> None:
        self.root = str(root)
        self.left_out = frozenset(left_out)
        self.file_name = ".drayignore" if (root / ".drayignore").exists() else ".gitignore"
        dot_git = find_dot_git(self.root) if self.file_name == ".gitignore" else None
        self.outer = outer_files(self.root, dot_git) if dot_git else []
        self.tracked = Tracked(self.root, dot_git, ask)
        # path → stamp, of every ignore file that has a say
        self.files: dict[str, Stamp] = {}
        self._read: dict[str, Patterns | None] = {}
        self._outer_levels: list[Level] | None = None
        self._ignored: dict[str, bool] = {"": False}  # folders
        for path, _ in self.outer:
            self.note(path)

    def note(self, path: str) -> None:
        self.files[path] = stamp_of_file(path)

    def still_hold(self) -> bool:
        return all(stamp_of_file(path) == stamp for path, stamp in self.files.items())

    def stamps(self, fresh: int) -> dict[str, Stamp]:
        """The stamps to remember."""
        return {path: doubted(one, fresh) for path, one in self.files.items()}

    def inside(self, folder: str) -> FolderRules:
        """What applies to the names in ``folder``, a path relative to the tree."""
        levels = []
        below = b""
        for place in ancestors(folder):
            patterns = self._patterns(os.path.join(self.root, place, self.file_name))
            if patterns is not None:
                levels.append((patterns, below))
            below = os.fsencode(os.path.basename(place)) + b"/" + below
        levels += [(patterns, outer + below[1:]) for patterns, outer in self._outside()]
        return FolderRules(self, folder, levels)

    def ignores(self, folder: str) -> bool:
        """Whether the folder, or one that it lies in, is ignored: nothing in it can be taken back
        by a rule, only by being tracked."""
        if folder not in self._ignored:
            parent, _, name = folder.rpartition("/")
            ignored = self.inside(parent).ignores(name, is_folder=True)
            self._ignored[folder] = ignored
        return self._ignored[folder]

    def _outside(self) -> list[Level]:
        """The levels above the tree, unless they leave out all of it: then it is not git's."""
        if self._outer_levels is None:
            found = [(self._patterns(file), os.fsencode(prefix)) for file, prefix in self.outer]
            levels = [(patterns, prefix) for patterns, prefix in found if patterns is not None]
            self._outer_levels = [] if leave_out_all(levels) else levels
        return self._outer_levels

    def _patterns(self, file: str) -> Patterns | None:
        if file not in self._read:
            self._read[file] = read_rules(file)
        return self._read[file]


class FolderRules:
    """The rules for the names in one folder."""

    def __init__(self, rules: Rules, folder: str, levels: list[Level]) -> None:
        self._rules = rules
        self._folder = folder
        self._prefix = f"{folder}/" if folder else ""
        self._levels = levels  # the nearest first

    def leaves_out(self, name: str, is_folder: bool) -> bool:
        path = self._prefix + name
        if name in ALWAYS_OUT or path in self._rules.left_out:
            return True
        return self.ignores(name, is_folder) and path not in self._rules.tracked.paths

    def ignores(self, name: str, is_folder: bool) -> bool:
        if self._rules.ignores(self._folder):
            return True
        return bool(first_verdict(self._levels, os.fsencode(name), is_folder))


def first_verdict(levels: list[Level], path: bytes, is_folder: bool) -> bool | None:
    for patterns, below in levels:
        verdict = patterns.verdict(below + path, is_folder)
        if verdict is not None:
            return verdict
    return None


def leave_out_all(levels: list[Level]) -> bool:
    """Whether rules above the tree leave out the tree itself, or a folder that it lies in."""
    depth = max((below.count(b"/") for _, below in levels), default=0)
    for up in range(depth):
        heard = []
        for patterns, below in levels:
            parts = below.split(b"/")[: -1 - up]
            if parts:
                heard.append((patterns, b"/".join(parts)))
        if first_verdict(heard, b"", is_folder=True):
            return True
    return False


def ancestors(folder: str) -> list[str]:
    """The folder itself first, the top of the tree ("") last."""
    found = [folder]
    while folder:
        folder = folder.rpartition("/")[0]
        found.append(folder)
    return found


def read_rules(file: str) -> Patterns | None:
    if os.path.basename(file) == ".gitignore" and os.path.islink(file):
        return None  # as git does
    content = read_bytes(file)
    return None if content is None else Patterns(content)


def as_rule(path: str) -> str:
    """The line of an ignore file that leaves out this path and nothing else."""
    escaped = re.sub(r"([\\*?\[])", r"\\\1", path).replace("\n", "?")
    return "/" + re.sub(r" \Z", r"\\ ", escaped)
