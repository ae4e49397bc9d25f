"""The git repository that a tree lies in: its rules around the tree, and what it tracks there."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

from dray.node.packs import hash_of
from dray.snapshot.stamps import Stamp, doubted, stamp_of_file

Ask = Callable[[str], bytes]  # a folder → what git tracks below it, each path with a NUL behind it


Remembered = tuple[list[tuple[str, str]], Stamp, str]  # of a repository: rules, index, identity


class Repository:
    """What git says of a tree: rules from around it, and the files that it tracks, which are code
    whatever its ignore files say of them. It is asked for these when they are first needed; a look
    at its index tells whether they may have changed."""

    def __init__(self, root: str, dot_git: str | None, ask: Ask) -> None:
        self._root = root
        self._ask = ask
        self.outer = outer_files(root, dot_git) if dot_git else []
        self._index = os.path.join(git_folder(dot_git), "index") if dot_git else ""
        self.stamp = stamp_of_file(self._index)

    @cached_property
    def _listed(self) -> bytes:
        return self._ask(self._root) if self._index else b""

    @cached_property
    def identity(self) -> str:
        """Of what is tracked: git writes its index anew for other reasons, too."""
        return hash_of(self._listed)

    @cached_property
    def tracked(self) -> frozenset[str]:
        """The files, and the folders that they are in; of a repository within this one its place
        alone, where it is a submodule."""
        found: set[str] = set()
        for path in os.fsdecode(self._listed).split("\0"):
            while path and path not in found:
                found.add(path)
                path = path.rpartition("/")[0]
        return frozenset(found)

    def seen(self, fresh: int) -> Remembered:
        """What to remember."""
        return self.outer, doubted(self.stamp, fresh), self.identity

    def recall(self, outer: list[tuple[str, str]], stamp: Stamp, identity: str) -> bool:
        """Whether git would say the same as when this was remembered."""
        if stamp == self.stamp:
            self.identity = identity
        return self.outer == outer and self.identity == identity


def find_dot_git(root: str) -> str | None:
    folder = root
    while True:
        dot_git = os.path.join(folder, ".git")
        if os.path.lexists(dot_git):
            return dot_git
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def outer_files(root: str, dot_git: str) -> list[tuple[str, str]]:
    """Ignore files of git above the tree, nearest first: (file, the tree's place below it)."""
    found = []
    folder, prefix = root, ""
    while folder != os.path.dirname(dot_git):
        prefix = f"{os.path.basename(folder)}/{prefix}"
        folder = os.path.dirname(folder)
        found.append((os.path.join(folder, ".gitignore"), prefix))
    return [*found, (exclude_file(dot_git), prefix)]


def git_folder(dot_git: str) -> str:
    """In a submodule or a second work tree .git is a file that points there."""
    pointer = read_bytes(dot_git)
    if pointer is None:
        return dot_git
    target = os.fsdecode(pointer.removeprefix(b"gitdir:").strip())
    return os.path.join(os.path.dirname(dot_git), target)


def exclude_file(dot_git: str) -> str:
    """Where git keeps rules for one clone, which all its work trees share."""
    place = git_folder(dot_git)
    common = read_bytes(os.path.join(place, "commondir"))
    if common is not None:
        place = os.path.join(place, os.fsdecode(common.strip()))
    return os.path.join(place, "info", "exclude")


def read_bytes(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return None
