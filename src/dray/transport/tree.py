"""Copying a tree of outputs on this machine, only what is new or changed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[int, int], None]

GONE = (FileNotFoundError, NotADirectoryError)  # itself, or a folder on the way to it


def copy_tree(source: Path, target: Path, progress: Progress) -> tuple[int, int]:
    """Copy what differs in size or time: (files copied, files in all). Each file arrives whole; one
    that a running job removes meanwhile is none of them."""
    found = sorted(walk(source))
    changed = [path for path in found if differs(source / path, target / path)]
    total = sum(size_of(source / path) for path in changed)
    done = gone = 0
    for path in changed:
        make_way(target, path)
        if not copy_one(source / path, target / path):
            gone += 1
            continue
        done += (target / path).lstat().st_size
        progress(done, total)
    return len(changed) - gone, len(found) - gone


def walk(top: Path) -> list[Path]:
    """Files and links below ``top``, relative to it; a socket or pipe cannot be copied."""
    found: list[Path] = []
    for folder, folders, names in os.walk(top):
        paths = [Path(folder) / name for name in (*names, *folders)]
        found += [path.relative_to(top) for path in paths if path.is_symlink() or path.is_file()]
    return found


def differs(source: Path, target: Path) -> bool:
    try:
        there, here = source.lstat(), target.lstat()
        if stat.S_ISLNK(there.st_mode) and stat.S_ISLNK(here.st_mode):
            return source.readlink() != target.readlink()
    except GONE:
        return True
    if stat.S_ISLNK(there.st_mode) != stat.S_ISLNK(here.st_mode):
        return True
    return (there.st_size, there.st_mtime_ns) != (here.st_size, here.st_mtime_ns)


def size_of(path: Path) -> int:
    """0 if it is gone."""
    try:
        return path.lstat().st_size
    except GONE:
        return 0


def make_way(target: Path, path: Path) -> None:
    """The folders that ``path`` needs below ``target``. What used to be a link or a file there is
    replaced: writing through an old link would change another file."""
    for parent in reversed(path.parents[:-1]):
        here = target / parent
        if here.is_symlink() or (here.exists() and not here.is_dir()):
            here.unlink()
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    if (target / path).is_dir() and not (target / path).is_symlink():
        (target / path).rename((target / path).with_name(f"{path.name}.old-{os.urandom(3).hex()}"))


def copy_one(source: Path, target: Path) -> bool:
    """False: the source is gone."""
    temporary = target.with_name(f".{os.urandom(6).hex()}.part")
    try:
        shutil.copy2(str(source), temporary, follow_symlinks=False)
        temporary.replace(target)
    except GONE as error:
        if error.filename != str(source):  # a target that is gone is no small matter
            raise
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True
