"""The git repository that a tree lies in: its ignore rules around the tree, and what it tracks
there."""

from __future__ import annotations

import errno
import os
from functools import cached_property
from pathlib import Path

from dray import plain_files
from dray.errors import SnapshotError
from dray.node.code.packs import hash_of
from dray.project import searched
from dray.snapshot import index
from dray.snapshot.stamps import Stamp, stamp_of_file, to_remember

Remembered = tuple[list[tuple[str, str]], Stamp, str]  # of a repository: rules, index, identity

# Characters of all names together that are kept in memory: far more than any project's own, but
# an index can be made to name a folder of thousands of levels in a few bytes.
MOST_NAMES = 1 << 28


class Repository:
    """What git says of a tree: rules from around it, and the files that it tracks, which are code
    whatever its ignore files say of them. Its index is read when they are first needed; its stamp
    tells whether they may have changed."""

    def __init__(self, root: str, dot_git: str | None) -> None:
        self.notes: list[str] = []
        self.outer = outer_files(root, dot_git) if dot_git else []
        self._index = os.path.join(git_folder(dot_git), "index") if dot_git else ""
        self.stamp = stamp_of_file(self._index)

    @cached_property
    def _listed(self) -> bytes:
        """Return the tracked files below the tree's root, each path followed by NUL."""
        place = os.fsencode(self.outer[-1][1]) if self.outer else b""
        try:
            paths = index.tracked(self._index) if self._index else []
        except index.Unreadable as error:
            self.notes.append(f"which files git tracks is not known: {self._index}: {error}")
            return b""
        return b"".join(path[len(place) :] + b"\0" for path in paths if path.startswith(place))

    @cached_property
    def identity(self) -> str:
        """Return a hash of what is tracked: git rewrites its index for other reasons, too."""
        return hash_of(self._listed)

    @cached_property
    def tracked(self) -> frozenset[str]:
        """Return the tracked files and the folders they are in. A repository within this one is
        listed by its place alone, if it is a submodule."""
        found: set[str] = set()
        room = MOST_NAMES
        for path in os.fsdecode(self._listed).split("\0"):
            while path and path not in found and room > 0:
                found.add(path)
                room -= len(path)
                path = path.rpartition("/")[0]
        return frozenset(found)

    def seen(self, fresh: int) -> Remembered:
        """Return what to remember for the next snapshot."""
        return self.outer, to_remember(self.stamp, fresh), self.identity

    def recall(self, outer: list[tuple[str, str]], stamp: Stamp, identity: str) -> bool:
        """Return whether git would say the same as when this was remembered."""
        if stamp == self.stamp:
            self.identity = identity
        return self.outer == outer and self.identity == identity


def find_dot_git(root: str) -> str | None:
    places = (os.path.join(folder, ".git") for folder in searched(Path(root)))
    return next(filter(os.path.lexists, places), None)


def outer_files(root: str, dot_git: str) -> list[tuple[str, str]]:
    """Return git's ignore files above the tree, nearest first: (file, the tree's place below
    it)."""
    found = []
    folder, prefix = root, ""
    while folder != os.path.dirname(dot_git):
        prefix = f"{os.path.basename(folder)}/{prefix}"
        folder = os.path.dirname(folder)
        found.append((os.path.join(folder, ".gitignore"), prefix))
    return [*found, (exclude_file(dot_git), prefix)]


def git_folder(dot_git: str) -> str:
    """Return the folder of git's own files. In a submodule or a second work tree, .git is a file
    that points to it."""
    pointer = read_bytes(dot_git)
    if pointer is None:
        return dot_git
    return pointed(os.path.dirname(dot_git), pointer.removeprefix(b"gitdir:"))


def exclude_file(dot_git: str) -> str:
    """Return where git keeps the rules of one clone, which all its work trees share."""
    place = git_folder(dot_git)
    common = read_bytes(os.path.join(place, "commondir"))
    if common is not None:
        place = pointed(place, common)
    return os.path.join(place, "info", "exclude")


def pointed(folder: str, pointer: bytes) -> str:
    return os.path.join(folder, os.fsdecode(pointer.strip().partition(b"\0")[0]))


def read_bytes(file: str) -> bytes | None:
    """Return the file's content; None if there is no such file, or it is no regular one."""
    try:
        return plain_files.read(file)[0]
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise SnapshotError(f"{file} cannot be read: {error.strerror}") from error
        return None
