"""Folders that are about to become a job's directory, or no longer are one: each appears and
disappears by one rename.

    .new-<name>-<random>/   being written; whoever writes it holds the lock of a file in it
    .gone-<name>-<random>/  being removed

Secrets are written last, just before the rename. What a kill leaves behind is removed by the next
process that looks at the jobs.
"""

import os

from ..formats import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional  # noqa: F401

NEW = ".new-"
GONE = ".gone-"
LOCK = ".lock-"  # of a submission: left behind if the submitting process was killed
LINK = ".link-"  # of a look whether a file can have two names
WRITING = ".writing"  # the locked file of a folder that is being written
ALIVE = "alive"  # the same for a local job, whose keeper continues to hold it
SECRETS = "secrets.json"
NOTIFY = "notify.json"  # addresses, which are secret too
PRIVATE = (NOTIFY, SECRETS)
ABANDONED = 120.0  # seconds; for other machines' files, whose locks may not be visible here


class New:
    """A folder that is being written. ``held`` is the open, locked file in it."""

    def __init__(self, folder: str, name: str, mark: str = WRITING) -> None:
        self.folder = folder
        self.name = name
        self.mark = mark
        self.path = ""
        self.held = -1

    def __enter__(self) -> "New":
        while not self._make():  # a process that sweeps here was quicker
            pass
        return self

    def _make(self) -> bool:
        self.path = hidden(NEW, os.path.join(self.folder, self.name))
        files.make_folder(self.path, durable=False)
        mark = os.path.join(self.path, self.mark)
        try:
            self.held = files.open_lock(mark)
        except FileNotFoundError:
            return False
        kept = False
        try:
            if files.lock_if_possible(self.held) and files.is_at(self.held, mark):
                os.write(self.held, os.uname().nodename.encode("utf-8", "replace"))
                kept = True
        finally:
            if not kept:  # what a living process holds is never swept
                os.close(self.held)
        return kept

    def write(self, contents: "Dict[str, bytes]", durable: bool = False) -> None:
        for name in secrets_last(contents):
            files.write_bytes(os.path.join(self.path, name), contents[name], durable)

    def become(self, path: str) -> None:
        os.rename(self.path, path)

    def move_into(self, path: str) -> None:
        """Move each file into ``path``, replacing the file of the same name."""
        for name in secrets_last(files.names_in(self.path)):
            files.put_in_place(os.path.join(self.path, name), os.path.join(path, name))

    def __exit__(self, *_: object) -> None:
        discard_secrets(self.path)
        files.remove_tree(self.path)
        os.close(self.held)


def hidden(prefix: str, path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, "{}{}-{}".format(prefix, name, os.urandom(6).hex()))


def secrets_last(names: "Iterable[str]") -> "List[str]":
    return sorted(names, key=lambda name: (name in PRIVATE, name))


def discard_secrets(folder: str) -> None:
    for name in PRIVATE:
        files.discard(os.path.join(folder, name))


def remove(path: str) -> "List[str]":
    """Remove a job's directory: from sight at once, then piece by piece. Return what could not be
    removed."""
    gone = hidden(GONE, path)
    try:
        os.rename(path, gone)
    except FileNotFoundError:
        return []
    except OSError:  # a place where nothing can be renamed
        return files.remove_tree(path)
    discard_secrets(gone)
    return files.remove_tree(gone)


def sweep(folder: str, names: "Iterable[str]", thoroughly: bool = True) -> None:
    """Remove what killed processes have left under these names in the folder. Unless
    ``thoroughly``, remove only what is small or secret: a job's outputs can take minutes."""
    for name in names:
        path = os.path.join(folder, name)
        try:
            if name.startswith(NEW):
                _remove_unless_written(path)
            elif name.startswith((files.CLOCK, LINK)) or _is_of_lease(name):
                if _age(path) > ABANDONED:
                    files.discard(path)
            elif thoroughly and (name.startswith(LOCK) or _is_left_lock(path)):
                _remove_unless_held(path)
            elif name.startswith(GONE):
                discard_secrets(path)
                if thoroughly:
                    files.remove_tree(path)
        except (OSError, RuntimeError):  # just put in place; otherwise the next process tries
            pass


def _remove_unless_written(path: str) -> None:
    """Remove the folder unless somebody writes it. The lock is held until all is gone, so that a
    process that has just created the folder notices."""
    held = _open_mark(path)
    try:
        if _is_abandoned(path, held):
            files.remove_tree(path)
    finally:
        if held is not None:
            os.close(held)


def _is_of_lease(name: str) -> bool:
    """Return whether this is a submission's lease, or a file that becomes or was one. No lock has
    such a name: an id ends in random letters or in a number."""
    return name.startswith(LOCK) and name.endswith((".lease", ".new", ".old", ".tmp"))


def _is_left_lock(path: str) -> bool:
    """Return whether this is the lock of an array whose submission was refused."""
    return path.endswith(".lock") and not files.exists(path[: -len(".lock")])


def _remove_unless_held(path: str) -> None:
    lock = files.Lock(path)
    if lock.take(wait=False):
        try:
            files.discard(path)
        finally:
            lock.__exit__()


def _is_abandoned(path: str, held: "Optional[int]") -> bool:
    """Return whether the writer is gone. A free lock proves it only for a process of this machine;
    otherwise the age decides."""
    if held is not None:
        if not files.lock_if_possible(held):
            return False
        if _is_from_here(held) and not _are_refused(held):
            return True
    return _age(path) > ABANDONED


def _are_refused(held: int) -> bool:
    """Return whether the file system has no locks, so that having taken one proves nothing."""
    try:
        files.try_lock(held)
    except OSError:
        return True
    return False


def _open_mark(path: str) -> "Optional[int]":
    for name in (WRITING, ALIVE):
        try:
            return os.open(os.path.join(path, name), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in files.NO_FILE:
                raise
    return None


def _is_from_here(held: int) -> bool:
    return os.pread(held, 256, 0) == os.uname().nodename.encode("utf-8", "replace")


def _age(path: str) -> float:
    return files.now_in(os.path.dirname(path)) - os.lstat(path).st_mtime
