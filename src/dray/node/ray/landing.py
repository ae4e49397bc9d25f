"""A folder on the head that files of a job's nodes are put into.

What a node tells decides nothing about where outside of this folder something is written: no path
leads up, and no link on the way is followed. A file appears whole, or grows at its end.
"""

import errno
import os
import stat

from ..formats import links
from ..formats.files import MOST_PARTS
from .host import digest, read_at, write_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple  # noqa: F401

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
LONGEST_NAME = 255


class Unsafe(Exception):
    """A path that no file may have."""


def parts_of(path: "object") -> "List[str]":
    """Split a path that somebody else tells; raise Unsafe where it may lead elsewhere."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise Unsafe(repr(path)[:200])
    parts = path.split("/")
    if len(parts) > MOST_PARTS or any(one in ("", ".", "..") for one in parts):
        raise Unsafe(repr(path)[:200])
    try:
        is_long = any(len(os.fsencode(one)) > LONGEST_NAME for one in parts)
    except UnicodeError:
        is_long = True
    if is_long:
        raise Unsafe(repr(path)[:200])
    return parts


def link_inside(path: str, target: str, top: str) -> str:
    """Return where a link below a folder leads, from its own place, if that is below the folder as
    well; '' where it may not be. ``top``: the folder's own path on the node."""
    if os.path.isabs(target) and os.path.normpath(target).startswith(os.path.join(top, "")):
        target = os.path.relpath(target, os.path.join(top, os.path.dirname(path)))
    try:
        is_out = links.leads_out(os.fsencode(path), os.fsencode(target)) or "\0" in target
    except UnicodeError:
        is_out = True
    return "" if is_out else target


class Landing:
    """``top`` is there. ``waiting``: a folder on the same disk for files that are not whole yet.
    ``placed`` says where a file goes that is elsewhere on its node."""

    def __init__(
        self, top: str, waiting: str, placed: "Optional[Callable[[str], str]]" = None
    ) -> None:
        self.placed = placed
        self.top = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        os.makedirs(waiting, mode=0o700, exist_ok=True)
        self.waiting = os.open(waiting, FOLDER)

    def close(self) -> None:
        os.close(self.top)
        os.close(self.waiting)

    def _parts(self, path: str) -> "List[str]":
        return parts_of(self.placed(path) if self.placed is not None else path)

    def _folder(self, parts: "List[str]", make: bool) -> int:
        """Open a folder below the top; a link or file in its place is replaced by a folder."""
        at = os.dup(self.top)
        try:
            for part in parts:
                below = self._step(at, part, make)
                os.close(at)
                at = below
            return at
        except BaseException:
            os.close(at)
            raise

    def _step(self, at: int, part: str, make: bool) -> int:
        for _ in range(3):
            try:
                return os.open(part, FOLDER, dir_fd=at)
            except OSError as error:
                if not make or error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                if error.errno != errno.ENOENT:
                    os.unlink(part, dir_fd=at)
            os.mkdir(part, 0o700, dir_fd=at)
        return os.open(part, FOLDER, dir_fd=at)

    def make_folder(self, path: str) -> None:
        os.close(self._folder(self._parts(path), make=True))

    def new(self) -> "Tuple[str, int]":
        """Open a file for what is not whole yet; return its name, too."""
        name = os.urandom(8).hex()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return name, os.open(name, flags, 0o600, dir_fd=self.waiting)

    def drop(self, name: str) -> None:
        os.unlink(name, dir_fd=self.waiting)

    def put(self, name: str, path: str) -> None:
        """Put a file that is whole now in its place."""
        parts = self._parts(path)
        at = self._folder(parts[:-1], make=True)
        try:
            if self._is_folder(at, parts[-1]):
                self._clear(at, parts[-1])
            os.rename(name, parts[-1], src_dir_fd=self.waiting, dst_dir_fd=at)
        finally:
            os.close(at)

    def append(self, path: str, content: bytes, offset: "Optional[int]" = None) -> None:
        """Write at the end of a file, or where it was known to end."""
        parts = self._parts(path)
        at = self._folder(parts[:-1], make=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(parts[-1], flags, 0o600, dir_fd=at)
        finally:
            os.close(at)
        try:
            end = os.fstat(fd).st_size if offset is None else offset
            write_at(fd, content, end)
        finally:
            os.close(fd)

    def set_time(self, path: str, changed: int) -> None:
        fd = self._open(path)
        try:
            os.utime(fd, ns=(changed, changed))
        finally:
            os.close(fd)

    def probe(self, path: str, size: int, whole: bool) -> bytes:
        """Return a digest as the node makes it: see Host.probe."""
        try:
            fd = self._open(path)
        except OSError:
            return b"none"
        try:
            return digest(fd, size, whole)
        finally:
            os.close(fd)

    def read(self, path: str, offset: int, most: int) -> bytes:
        fd = self._open(path)
        try:
            return read_at(fd, offset, most)
        finally:
            os.close(fd)

    def _open(self, path: str) -> int:
        parts = self._parts(path)
        at = self._folder(parts[:-1], make=False)
        try:
            return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        finally:
            os.close(at)

    def link(self, path: str, target: str) -> None:
        parts = self._parts(path)
        at = self._folder(parts[:-1], make=True)
        try:
            if self._is_folder(at, parts[-1]):
                self._clear(at, parts[-1])
            new = ".{}.tmp".format(os.urandom(6).hex())
            os.symlink(target, new, dir_fd=at)
            os.rename(new, parts[-1], src_dir_fd=at, dst_dir_fd=at)
        finally:
            os.close(at)

    def remove(self, path: str) -> None:
        """Remove what is there of this name; a folder only once it is empty."""
        parts = self._parts(path)
        try:
            at = self._folder(parts[:-1], make=False)
        except OSError:
            return
        try:
            if self._is_folder(at, parts[-1]):
                os.rmdir(parts[-1], dir_fd=at)
            else:
                os.unlink(parts[-1], dir_fd=at)
        except OSError:
            pass
        finally:
            os.close(at)

    def _is_folder(self, at: int, name: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def _clear(self, at: int, name: str) -> None:
        """Take away a folder that has become something else on the node."""
        folder = os.open(name, FOLDER, dir_fd=at)
        try:
            for one in os.listdir(folder):
                if self._is_folder(folder, one):
                    self._clear(folder, one)
                else:
                    os.unlink(one, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=at)
