"""What is left out of a snapshot."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dray.snapshot.globs import Patterns

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

Stamp = tuple[int, int, int]
Level = tuple[Patterns, bytes]  # rules, and the place of the folder they judge below them

NO_FILE: Stamp = (0, 0, 0)
UNSURE: Stamp = (-1, -1, -1)  # never equal to a real one: looked at again next time


class Rules:
    """The ignore files of one tree: read when first needed, deeper ones before shallower ones."""

    def __init__(self, root: Path, outputs: tuple[str, ...]) -> None:
        self.root = str(root)
        self.outputs = frozenset(outputs)
        self.file_name = ".drayignore" if (root / ".drayignore").exists() else ".gitignore"
        self.outer = outer_files(self.root) if self.file_name == ".gitignore" else []
        # path → stamp, of every ignore file that has a say
        self.files: dict[str, Stamp] = {}
        self._read: dict[str, Patterns | None] = {}
        self._outer_levels: list[Level] | None = None
        for path, _ in self.outer:
            self.note(path)

    def note(self, path: str) -> None:
        self.files[path] = stamp_of_file(path)

    def still_hold(self) -> bool:
        return all(stamp_of_file(path) == stamp for path, stamp in self.files.items())

    def stamps(self, fresh: int) -> dict[str, Stamp]:
        """The stamps to remember; one that moved just now could miss the next change."""
        return {path: UNSURE if one[0] > fresh else one for path, one in self.files.items()}

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
        return FolderRules(folder, self.outputs, levels)

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

    def __init__(self, folder: str, outputs: frozenset[str], levels: list[Level]) -> None:
        self._prefix = f"{folder}/" if folder else ""
        self._outputs = outputs
        self._levels = levels  # the nearest first

    def leaves_out(self, name: str, is_folder: bool) -> bool:
        if name in ALWAYS_OUT or self._prefix + name in self._outputs:
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


def outer_files(root: str) -> list[tuple[str, str]]:
    """Ignore files of git above the tree, nearest first: (file, the tree's place below it)."""
    found: list[tuple[str, str]] = []
    folder, prefix = root, ""
    while True:
        dot_git = os.path.join(folder, ".git")
        if os.path.lexists(dot_git):
            return [*found, (exclude_file(dot_git), prefix)]
        parent = os.path.dirname(folder)
        if parent == folder:  # not in a repository at all: files above do not count
            return []
        prefix = f"{os.path.basename(folder)}/{prefix}"
        folder = parent
        found.append((os.path.join(folder, ".gitignore"), prefix))


def exclude_file(dot_git: str) -> str:
    """Where git keeps rules for one clone; in a submodule or second work tree .git points there."""
    place = dot_git
    pointer = read_bytes(dot_git)
    if pointer is not None:
        target = os.fsdecode(pointer.removeprefix(b"gitdir:").strip())
        place = os.path.join(os.path.dirname(dot_git), target)
        common = read_bytes(os.path.join(place, "commondir"))
        if common is not None:
            place = os.path.join(place, os.fsdecode(common.strip()))
    return os.path.join(place, "info", "exclude")


def read_rules(file: str) -> Patterns | None:
    if os.path.basename(file) == ".gitignore" and os.path.islink(file):
        return None  # as git does
    content = read_bytes(file)
    return None if content is None else Patterns(content)


def read_bytes(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return None


def as_rule(path: str) -> str:
    """The line of an ignore file that leaves out this path and nothing else."""
    escaped = re.sub(r"([\\*?\[])", r"\\\1", path).replace("\n", "?")
    return "/" + re.sub(r" \Z", r"\\ ", escaped)


def stamp_of_file(path: str) -> Stamp:
    """What changes when the file does."""
    try:
        return stamp_of(os.stat(path))
    except OSError:
        return NO_FILE


def stamp_of(status: os.stat_result) -> Stamp:
    # The change time moves with every write, chmod and rename, and cannot be set back.
    return (status.st_ctime_ns, status.st_size, status.st_ino)
