"""Copies an image to the node's own disk, where that is faster to read. All jobs of a user on the
node share one copy, which is removed with the last that uses it."""

import errno
import glob
import os
import shutil
import stat

from ..formats import files
from ..formats.mounts import IN_MEMORY, OVER_THE_NETWORK, file_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple  # noqa: F401

SPARE = 2 << 30  # room that is left for what the job writes
PREFIX = "dray-images-"


def is_worth_it(image: str, scratch: str, wanted: str, mounts: "List[Tuple[str, str]]") -> bool:
    """Return whether to copy the image. ``wanted`` is yes, no or auto; auto copies a file, from a
    network file system, to a disk with room."""
    if wanted != "auto":
        return wanted == "yes"
    if not os.path.isfile(image) or file_system(image, mounts) not in OVER_THE_NETWORK:
        return False
    if file_system(scratch, mounts) in OVER_THE_NETWORK + IN_MEMORY:
        return False
    usage = os.statvfs(scratch)
    return usage.f_bavail * usage.f_frsize > os.path.getsize(image) + SPARE


class LocalCopy:
    def __init__(self, image: str, scratch: str) -> None:
        self.image = image
        self.folder = private_folder(scratch)
        about = os.stat(image)
        name = "{:x}-{:x}-{:x}".format(about.st_dev, about.st_ino, about.st_mtime_ns)
        ending = "" if os.path.isdir(image) else os.path.splitext(image)[1]
        self.path = os.path.join(self.folder, name + ending)
        self.lock = os.path.join(self.folder, name + ".lock")
        self.users = os.path.join(self.folder, name + ".users")
        self.held = None  # type: Optional[int]

    def take(self) -> str:
        """Make the copy, unless it is there, and hold a lock while it is used."""
        with files.Lock(self.lock):
            self.held = files.open_lock(self.users)
            files.try_lock(self.held, shared=True)
            if not os.path.exists(self.path):
                new = "{}.{}.tmp".format(self.path, os.getpid())
                try:
                    self._copy(new)
                    os.rename(new, self.path)
                finally:
                    _remove(new)
        return self.path

    def _copy(self, target: str) -> None:
        if os.path.isdir(self.image):
            shutil.copytree(self.image, target, symlinks=True)
        else:
            shutil.copyfile(self.image, target)

    def release(self) -> None:
        if self.held is not None:
            os.close(self.held)
            self.held = None
            _remove_unless_used([self.path], self.lock, self.users)
            _remove_if_empty(self.folder)


def folder_in(scratch: str) -> str:
    """Return this node's own folder: scratch may be shared with nodes that do not see its locks."""
    name = "{}{}-{}".format(PREFIX, os.getuid(), os.uname().nodename)
    return os.path.join(scratch, name)


def private_folder(scratch: str) -> str:
    """Make this node's own folder, and require that it is private: anybody may write to scratch,
    and what is in here is executed."""
    folder = folder_in(scratch)
    files.make_folder(folder)
    if not is_private(folder):
        raise OSError(errno.EPERM, "not private to you", folder)
    return folder


def is_private(folder: str) -> bool:
    try:
        about = os.lstat(folder)
    except OSError:
        return False
    is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return is_own and not about.st_mode & 0o077


def sweep(scratch: str) -> None:
    """Remove copies that killed jobs of this user have left here."""
    folder = folder_in(scratch)
    names = os.listdir(folder) if is_private(folder) else []
    for name in names:
        if name.endswith(".users"):
            base = os.path.join(folder, name[: -len(".users")])
            copies = glob.glob(glob.escape(base) + "*")
            _remove_unless_used(copies, base + ".lock", base + ".users")
    if names:
        _remove_if_empty(folder)


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass


def _remove_unless_used(paths: "List[str]", lock: str, users: str) -> None:
    with files.Lock(lock):
        fd = files.open_lock(users)
        try:
            if files.try_lock(fd):
                for path in paths + [users, lock]:
                    _remove(path)
        finally:
            os.close(fd)


def _remove(path: str) -> None:
    if os.path.isdir(path):
        files.remove_tree(path)
    else:
        files.remove(path)
