"""Folders that are kept from job to job, such as compiled shaders.

Each attempt works on a copy of its own. What it has made or changed goes back once it has ended,
each file whole (temp and rename) and nothing is ever removed; so any number of jobs can end at
once, and the last one that wrote a file wins. An attempt that was killed may have left half a file
behind, and brings back what nobody had touched for a while: a trainer that never ends by itself
would otherwise compile its shaders each time.
"""

import os
import shutil
import stat
import time

from ..formats import files
from ..formats.messages import print_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, Tuple

    Stamps = Dict[str, Tuple[int, int]]  # path → (size, time of the last change)

TEMPORARY = ".dray-new-"
SETTLED = 60.0  # seconds after which a file is taken for written
ABANDONED = 86400.0  # seconds after which a half-copied file is nobody's any more


def place_of(root: str) -> str:
    return os.path.join(root, "caches")


def fetch(shared: str, own: str) -> "Stamps":
    """Copy the cache for one attempt; return the stamps of its files."""
    files.make_folder(shared)
    files.make_folder(own)
    for path in _paths(shared):
        try:
            _copy(os.path.join(shared, path), os.path.join(own, path))
        except OSError as error:  # of somebody else's, or on a full disk: it costs time, no more
            print_message("the cache {} is not whole: {}".format(shared, error))
    return stamps(own)


def merge(own: str, shared: str, fetched: "Stamps", was_killed: bool = False) -> int:
    """Copy back what is new or changed; return how many files."""
    now = stamps(own)
    changed = [path for path in sorted(now) if now[path] != fetched.get(path)]
    if was_killed:
        since = (time.time() - SETTLED) * 1e9
        changed = [path for path in changed if now[path][1] < since]
    if not changed:
        return 0
    with files.Lock(os.path.join(os.path.dirname(shared), ".lock")):
        for path in changed:
            target = os.path.join(shared, path)
            temporary = os.path.join(os.path.dirname(target), TEMPORARY + os.urandom(6).hex())
            try:
                _copy(os.path.join(own, path), temporary)
                os.replace(temporary, target)
            finally:
                files.remove(temporary)
        _sweep(shared)
    return len(changed)


def stamps(folder: str) -> "Stamps":
    found = {}
    for path in _paths(folder):
        about = os.lstat(os.path.join(folder, path))
        found[path] = (about.st_size, about.st_mtime_ns)
    return found


def _paths(folder: str) -> "Iterator[str]":
    """Yield files and links below a folder: no sockets, no pipes, nothing that we are writing."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in names + links:
            path = os.path.join(place, name)
            if not name.startswith(TEMPORARY) and _is_file_or_link(path):
                yield os.path.relpath(path, folder)


def _is_file_or_link(path: str) -> bool:
    try:
        kind = os.lstat(path).st_mode
    except OSError:  # a temporary file of somebody's, gone by now
        return False
    return stat.S_ISREG(kind) or stat.S_ISLNK(kind)


def _copy(source: str, target: str) -> None:
    files.make_folder(os.path.dirname(target))
    shutil.copy2(source, target, follow_symlinks=False)


def _sweep(folder: str) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if name.startswith(TEMPORARY) and time.time() - os.lstat(path).st_mtime > ABANDONED:
                files.remove(path)  # nobody else is here: we have the lock
