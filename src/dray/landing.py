"""A folder on this machine into which files from elsewhere are written.

The other side chooses the names, so each one is checked, and every step from the folder down is
taken by a file descriptor that follows no link. So nothing outside of the folder can be reached,
even if an earlier file of the same transfer, or another process, put a link in the way.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dray.checks import Malformed, brief
from dray.errors import Refused
from dray.node.formats import links
from dray.node.formats.files import MOST_PARTS, lock_if_possible
from dray.records import NamedTuple

OUTPUTS_MARK = ".dray-outputs"  # in a folder that holds a job's outputs, and nothing else
LONGEST_PART = 255  # bytes
LONGEST_LINK = 4095
# No bits that make a program run as somebody else, nothing that others can write.
ALLOWED_MODE, LEAST_MODE = 0o755, 0o600
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)  # a link or a file, by system

Stamp = tuple[str | None, int, int]  # where a link leads, or a file's size and time
PART = re.compile(r"\.[0-9a-f]{12}\.part")  # a file on its way
ABANDONED = 60.0  # seconds without a write after which a partial file is abandoned
FOLDER_STAMP: Stamp = (None, -1, -1)


class Incoming(NamedTuple):
    """A file or link as the other side describes it; ``path`` is relative to its outputs."""

    path: str
    size: int
    mtime: int
    mode: int
    link: str | None = None

    @property
    def stamp(self) -> Stamp:
        """Return a value that differs once the file has changed."""
        return (self.link, 0, 0) if self.link is not None else (None, self.size, self.mtime)


def split(path: str) -> list[str]:
    """Return the names on the way to a file. Raise Malformed if they could lead anywhere else."""
    parts = path.split("/")
    if not is_encodable(path) or len(parts) > MOST_PARTS or "\0" in path:
        raise Malformed(f"{brief(path)} is not the name of a file")
    if max(len(os.fsencode(part)) for part in parts) > LONGEST_PART:
        raise Malformed(f"{brief(path)} is not the name of a file")
    if any(part in ("", ".", "..") for part in parts):
        raise Malformed(f"{brief(path)} leads out of the folder")
    return parts


def is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def leads_out(path: str, link: str) -> bool:
    """Return whether a link at this path may lead out of the folder."""
    if "\0" in link or not is_encodable(link) or len(os.fsencode(link)) > LONGEST_LINK:
        return True
    return links.leads_out(os.fsencode(path), os.fsencode(link))


def is_unwanted(file: Incoming) -> bool:
    """Return whether to skip the file: names that lead elsewhere, links out of the folder, dray's
    mark, and git's own files."""
    try:
        parts = [as_seen(part) for part in split(file.path)]
    except Malformed:
        return True
    if OUTPUTS_MARK in parts or ".git" in parts or parts[-1] == "head":
        return True
    return file.link is not None and leads_out(file.path, file.link)


def as_seen(name: str) -> str:
    """Return the name as a file system sees it that ignores case and invisible characters."""
    return "".join(one for one in name if one.isprintable()).casefold()


class Landing:
    """A folder that files from elsewhere are put into. ``owns``: tells by path and stamp whether a
    file that is already there may be replaced."""

    def __init__(self, folder: Path, owns: Callable[[str, Stamp], bool] | None = None) -> None:
        self.folder = folder
        self._owns = owns or (lambda path, stamp: True)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.placed: dict[str, Stamp] = {}  # what is here now, of what was offered
        self.size = 0  # bytes that were put here
        self._swept: set[str] = set()
        self.refused: list[str] = []  # files of the user's own that were in the way
        self.unwanted: list[str] = []

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def wants(self, file: Incoming) -> bool:
        """Return whether to fetch the file: it is new or changed, and may be written here."""
        if is_unwanted(file):
            self.unwanted.append(file.path)
            return False
        parts = split(file.path)
        self._sweep(parts[:-1])
        here = self._stamp(parts)
        if here == file.stamp:
            if self._owns(file.path, here):
                self.placed[file.path] = file.stamp
            return False
        return self._is_free(parts)

    def _sweep(self, parts: list[str]) -> None:
        """Remove what a transfer that was killed has left in this folder."""
        folder = "/".join(parts)
        if folder in self._swept:
            return
        self._swept.add(folder)
        with suppress(OSError), self._opened(parts) as opened:
            for name in os.listdir(opened):
                if PART.fullmatch(name) and is_abandoned(opened, name):
                    os.unlink(name, dir_fd=opened)

    def _is_free(self, parts: list[str]) -> bool:
        """Return whether nothing of the user's own is in the way. What is, is listed as refused."""
        found = self._in_the_way(parts)
        return found is None or self._may_replace(*found)

    def _in_the_way(self, parts: list[str]) -> tuple[str, Stamp] | None:
        """Return what already has this name, or a file or link where a folder is needed. One pass
        down the path finds it: there may be many files, and deep ones."""
        fd = os.dup(self._fd)
        try:
            for depth, part in enumerate(parts, 1):
                here = stamp_at(fd, part)
                if here != FOLDER_STAMP or depth == len(parts):
                    return "/".join(parts[:depth]), here
                below = enter(fd, part, make=False)
                os.close(fd)
                fd = below
        except OSError as error:
            if error.errno not in (errno.ENOENT, *IN_THE_WAY):
                raise
        finally:
            os.close(fd)
        return None

    def _may_replace(self, path: str, stamp: Stamp) -> bool:
        if self._owns(path, stamp):
            return True
        self.refused.append(path)
        return False

    def _stamp(self, parts: list[str]) -> Stamp | None:
        """Return the stamp of what has this name; None if nothing does."""
        try:
            with self._opened(parts[:-1]) as folder:
                return stamp_at(folder, parts[-1])
        except OSError as error:
            if error.errno in (errno.ENOENT, *IN_THE_WAY):
                return None
            raise

    def put(self, file: Incoming, pieces: Iterable[bytes]) -> None:
        """Write the file whole or, if ``pieces`` fails, not at all."""
        parts = split(file.path)
        if not self._is_free(parts):  # somebody may have created it since it was requested
            for _ in pieces:
                pass
            return
        with self._opened(parts[:-1], make=True) as folder:
            temporary = f".{os.urandom(6).hex()}.part"
            try:
                if file.link is not None:
                    os.symlink(file.link, temporary, dir_fd=folder)
                else:
                    write_file(folder, temporary, file, pieces)
                if not self._is_free(parts):
                    return
                move_folder_aside(folder, parts[-1])
                os.replace(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
        self.placed[file.path] = file.stamp
        self.size += file.size

    @contextmanager
    def _opened(self, parts: list[str], make: bool = False) -> Iterator[int]:
        """Open the folder below this one, entering it step by step."""
        fd = os.dup(self._fd)
        try:
            for part in parts:
                below = enter(fd, part, make)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def read(self, name: str, most: int) -> bytes | None:
        """Return the beginning of a file directly in the folder; None if it is no plain file."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(name, flags, dir_fd=self._fd)
        except OSError:
            return None
        try:
            return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else None
        finally:
            os.close(fd)


def enter(folder: int, name: str, make: bool) -> int:
    """Open a folder inside this one. With ``make``, replace a link or file of that name: writing
    through an old link would change another file."""
    try:
        return os.open(name, FOLDER, dir_fd=folder)
    except OSError as error:
        if not make or error.errno not in (errno.ENOENT, *IN_THE_WAY):
            raise
        if error.errno != errno.ENOENT:
            os.unlink(name, dir_fd=folder)
    with suppress(FileExistsError):
        os.mkdir(name, ALLOWED_MODE, dir_fd=folder)
    return os.open(name, FOLDER, dir_fd=folder)


def stamp_at(folder: int, name: str) -> Stamp:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(name, dir_fd=folder), 0, 0
    if stat.S_ISDIR(status.st_mode):
        return FOLDER_STAMP
    return None, status.st_size, status.st_mtime_ns


def is_abandoned(folder: int, name: str) -> bool:
    """Return whether nobody writes to a partial file any more: a writer holds its lock, and changes
    it."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if time.time() - status.st_ctime < ABANDONED:
        return False
    if not stat.S_ISREG(status.st_mode):
        return True
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        return lock_if_possible(fd)
    finally:
        os.close(fd)


def write_file(folder: int, name: str, file: Incoming, pieces: Iterable[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = file.mode & ALLOWED_MODE | LEAST_MODE
    with os.fdopen(os.open(name, flags, mode, dir_fd=folder), "wb") as opened:
        lock_if_possible(opened.fileno())
        for piece in pieces:
            opened.write(piece)
        opened.flush()
        os.utime(opened.fileno(), ns=(file.mtime, file.mtime))


def move_folder_aside(folder: int, name: str) -> None:
    """Rename a folder that is in the place of a file, so that it is kept."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        aside = f"{name}.old-{os.urandom(3).hex()}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)


def raise_if_refused(landing: Landing) -> None:
    """Raise if files of the user's own were in the way."""
    if landing.refused:
        some = ", ".join(landing.refused[:3]) + (" …" if len(landing.refused) > 3 else "")
        raise Refused(
            f"{len(landing.refused)} files in {landing.folder} were not written by an earlier pull "
            f"and were not changed: {some}",
            hint="Move them away, or pull into a folder of its own: dray pull JOB FOLDER",
        )
