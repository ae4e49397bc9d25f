"""What is left out of a snapshot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

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
TELLTALES = ("pyvenv.cfg", "conda-meta", ".dray-outputs")

Stamp = tuple[int, int, int]


class RulesChanged(Exception):
    """An ignore file was found that the remembered walk did not know."""


class Rules:
    """The ignore files of one tree: read when first needed, deeper ones before shallower ones."""

    def __init__(self, root: Path, outputs: tuple[str, ...]) -> None:
        self.root = str(root)
        self.outputs = frozenset(outputs)
        self.file_name = ".drayignore" if (root / ".drayignore").exists() else ".gitignore"
        # path → stamp, of every ignore file that has a say
        self.files: dict[str, Stamp] = {}
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        for path, _ in self._outer():
            self.note(path)

    def _outer(self) -> list[tuple[str, str]]:
        """Ignore files of git above the tree, nearest first: (file, the tree's place below it)."""
        if self.file_name == ".drayignore":
            return []
        found = []
        folder, prefix = self.root, ""
        while True:
            if os.path.isdir(os.path.join(folder, ".git")):
                found.append((os.path.join(folder, ".git", "info", "exclude"), prefix))
                return found
            parent = os.path.dirname(folder)
            if parent == folder:  # not in a repository at all: files above do not count
                return []
            prefix = f"{os.path.basename(folder)}/{prefix}"
            folder = parent
            found.append((os.path.join(folder, ".gitignore"), prefix))

    def note(self, path: str) -> None:
        self.files[path] = stamp_of_file(path)

    def still_hold(self) -> bool:
        return all(stamp_of_file(path) == stamp for path, stamp in self.files.items())

    def leaves_out(self, path: str, is_folder: bool) -> bool:
        """``path`` is relative to the tree, with '/' between its parts."""
        name = path.rpartition("/")[2]
        if name in ALWAYS_OUT or path in self.outputs:
            return True
        if is_folder and self._has_telltale(path):
            return True
        asked = f"{path}/" if is_folder else path
        for spec, relative in self._levels(asked):
            verdict = spec.check_file(relative).include
            if verdict is not None:
                return verdict
        return False

    def _has_telltale(self, path: str) -> bool:
        folder = os.path.join(self.root, path)
        return any(os.path.lexists(os.path.join(folder, mark)) for mark in TELLTALES)

    def _levels(self, path: str) -> list[tuple[GitIgnoreSpec, str]]:
        """The rules that apply, the nearest to the file first, with the path as they see it."""
        levels = []
        parts = path.rstrip("/").split("/")
        for depth in range(len(parts) - 1, -1, -1):
            folder = "/".join(parts[:depth])
            file = os.path.join(self.root, folder, self.file_name)
            spec = self._spec(file)
            if spec is not None:
                levels.append((spec, path[len(folder) + 1 :] if folder else path))
        for file, prefix in self._outer_once():
            spec = self._spec(file)
            if spec is not None:
                levels.append((spec, prefix + path))
        return levels

    def _outer_once(self) -> list[tuple[str, str]]:
        if not hasattr(self, "_outer_found"):
            self._outer_found = self._outer()
        return self._outer_found

    def _spec(self, file: str) -> GitIgnoreSpec | None:
        if file not in self._specs:
            self._specs[file] = read_spec(file)
        return self._specs[file]


def read_spec(file: str) -> GitIgnoreSpec | None:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            lines = opened.read().splitlines()
    except OSError:
        return None
    from pathspec import GitIgnoreSpec  # 40 ms: only when rules are really read

    return GitIgnoreSpec.from_lines(lines)


def stamp_of_file(path: str) -> Stamp:
    """What changes when the file does; zeros where there is none."""
    try:
        return stamp_of(os.lstat(path))
    except OSError:
        return (0, 0, 0)


def stamp_of(status: os.stat_result) -> Stamp:
    # The change time moves with every write, chmod and rename, and cannot be set back.
    return (status.st_ctime_ns, status.st_size, status.st_ino)
