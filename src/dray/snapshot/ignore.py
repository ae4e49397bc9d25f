"""Decides what is left out of a snapshot."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dray.errors import SnapshotError
from dray.snapshot.globs import MOST, Patterns, TooMany
from dray.snapshot.repository import Remembered as OfRepository
from dray.snapshot.repository import Repository, find_dot_git, read_bytes
from dray.snapshot.stamps import Stamp, stamp_of_file, to_remember

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
Remembered = tuple[str, dict[str, Stamp], dict[str, OfRepository]]


class Rules:
    """The ignore files of one tree: read when first needed, deeper ones before shallower ones. As
    with git, those above a repository within the tree (a submodule, a clone) end where it begins;
    those of .drayignore do not."""

    def __init__(self, root: Path, left_out: tuple[str, ...]) -> None:
        self.root = str(root)
        self.left_out = frozenset(left_out)
        self.file_name = ".drayignore" if (root / ".drayignore").exists() else ".gitignore"
        self.uses_git = self.file_name == ".gitignore"
        # path → stamp, of every ignore file that applies
        self.files: dict[str, Stamp] = {}
        # place in the tree → repository: the one around the tree, and those found within
        self.repositories: dict[str, Repository] = {}
        self._read: dict[str, Patterns | None] = {}
        self._outer_levels: dict[str, list[Level]] = {}
        self._ignored: dict[str, bool] = {}  # folders
        self.add_repository("", find_dot_git(self.root) if self.uses_git else None)

    def add_file(self, path: str) -> None:
        self.files[path] = stamp_of_file(path)

    def add_repository(self, place: str, dot_git: str | None) -> None:
        """Record which repository the folder at this place of the tree lies in; None: in none."""
        top = os.path.join(self.root, place) if place else self.root
        self.repositories[place] = Repository(top, dot_git)
        for path, _ in self.repositories[place].outer:
            self.add_file(path)

    @property
    def notes(self) -> list[str]:
        return [note for one in self.repositories.values() for note in one.notes]

    def seen(self, fresh: int) -> Remembered:
        """Return what to remember for the next snapshot."""
        files = {path: to_remember(one, fresh) for path, one in self.files.items()}
        repositories = {place: one.seen(fresh) for place, one in self.repositories.items()}
        return self.file_name, files, repositories

    def recall(self, seen: Remembered) -> bool:
        """Return whether the rules are still what they were when this was remembered. If so,
        everything that applied then is known again."""
        known = dict(self.files), dict(self.repositories)
        if self._still(*seen):
            return True
        self.files, self.repositories = known
        return False

    def _still(
        self, file_name: str, files: dict[str, Stamp], repositories: dict[str, OfRepository]
    ) -> bool:
        nested = {place: os.path.join(self.root, place, ".git") for place in repositories if place}
        if file_name != self.file_name or not all(map(os.path.lexists, nested.values())):
            return False
        for place, dot_git in nested.items():
            self.add_repository(place, dot_git)
        self.files.update(files)
        return all(stamp_of_file(path) == stamp for path, stamp in self.files.items()) and all(
            self.repositories[place].recall(*one) for place, one in repositories.items()
        )

    def inside(self, folder: str) -> FolderRules:
        """Return the rules for the names in ``folder``, a path relative to the tree."""
        levels = []
        below = b""
        repository = self._repository_of(folder)
        for place in ancestors(folder, repository):
            patterns = self._patterns(os.path.join(self.root, place, self.file_name))
            if patterns is not None:
                levels.append((patterns, below))
            if place != repository:
                below = os.fsencode(os.path.basename(place)) + b"/" + below
        levels += [(patterns, outer + below) for patterns, outer in self._outside(repository)]
        return FolderRules(self, repository, folder, levels)

    def ignores(self, folder: str) -> bool:
        """Return whether the folder, or one above it, is ignored.

        No rule can take back anything in it; only being tracked can. A repository within the tree
        starts afresh.
        """
        if folder in self.repositories:
            return False
        if folder not in self._ignored:
            parent, _, name = folder.rpartition("/")
            ignored = self.inside(parent).ignores(name, is_folder=True)
            self._ignored[folder] = ignored
        return self._ignored[folder]

    def _repository_of(self, folder: str) -> str:
        """Return the place of the repository that the folder belongs to."""
        return next(place for place in ancestors(folder) if place in self.repositories)

    def _outside(self, repository: str) -> list[Level]:
        """Return the levels above the tree, unless they leave out all of it: then git does not
        apply."""
        if repository not in self._outer_levels:
            outer = self.repositories[repository].outer
            found = [(self._patterns(file), os.fsencode(prefix)) for file, prefix in outer]
            levels = [(patterns, prefix) for patterns, prefix in found if patterns is not None]
            self._outer_levels[repository] = [] if leave_out_all(levels) else levels
        return self._outer_levels[repository]

    def _patterns(self, file: str) -> Patterns | None:
        if file not in self._read:
            self._read[file] = read_rules(file)
        return self._read[file]


class FolderRules:
    """The rules for the names in one folder."""

    def __init__(self, rules: Rules, repository: str, folder: str, levels: list[Level]) -> None:
        self._rules = rules
        self._repository = rules.repositories[repository]
        self._folder = folder
        self._prefix = f"{folder}/" if folder else ""
        self._inner_prefix = self._prefix.removeprefix(f"{repository}/")
        self._levels = levels  # the nearest first

    def leaves_out(self, name: str, is_folder: bool) -> bool:
        if name in ALWAYS_OUT or self._prefix + name in self._rules.left_out:
            return True
        if not self.ignores(name, is_folder):
            return False
        return self._inner_prefix + name not in self._repository.tracked

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
    """Return whether rules above the tree leave out the tree itself, or a folder that it lies
    in."""
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


def ancestors(folder: str, last: str = "") -> list[str]:
    """Return the folder and those above it, up to ``last`` ("": the top of the tree)."""
    found = [folder]
    while folder != last:
        folder = folder.rpartition("/")[0]
        found.append(folder)
    return found


def read_rules(file: str) -> Patterns | None:
    if os.path.basename(file) == ".gitignore" and os.path.islink(file):
        return None  # as git does
    content = read_bytes(file)
    try:
        return None if content is None else Patterns(content)
    except TooMany:
        raise SnapshotError(f"{file} has more than {MOST:,} patterns") from None


def as_rule(path: str) -> str:
    """Return the line of an ignore file that leaves out this path and nothing else."""
    escaped = re.sub(r"([\\*?\[])", r"\\\1", path).replace("\n", "?")
    return "/" + re.sub(r" \Z", r"\\ ", escaped)
