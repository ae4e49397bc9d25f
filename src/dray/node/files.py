"""State files: written whole or not at all, private to the user."""

import errno
import fcntl
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional  # noqa: F401

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def encode(value: "Any") -> bytes:
    """JSON on indented lines, for people who look; any argument or file name survives it."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii")


def write_bytes(path: str, content: bytes, durable: bool = True) -> None:
    """Replace ``path`` atomically: a reader sees the old content or the new, never a part."""
    # Several machines may share the folder, so a process id would not be enough.
    temporary = "{}.{}.tmp".format(path, os.urandom(6).hex())
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path  # a full disk does not say which
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    if durable:
        sync_folder(os.path.dirname(path) or ".")


def write_json(path: str, value: "Any", durable: bool = True) -> None:
    write_bytes(path, encode(value), durable)


def read_json(path: str) -> "Optional[Any]":
    """The value, or None where there is no such file, or one that a power cut has left empty."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read().decode("ascii"))
    except ValueError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:  # some network file systems refuse to sync a folder
        pass
    finally:
        os.close(fd)


def make_folder(path: str) -> None:
    """Private, and so is every folder above it that has to be made."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make_folder(parent)
    try:
        os.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def names_in(folder: str) -> "List[str]":
    """In order, without hidden ones; none where there is no such folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if not name.startswith("."))


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def unlink_anyway(path: str) -> None:
    """Also from a folder that the command has made read-only."""
    try:
        os.unlink(path)
    except PermissionError:
        os.chmod(os.path.dirname(path), PRIVATE_FOLDER)
        os.unlink(path)


def remove_tree(path: str) -> "List[str]":
    """All of it, read-only folders too; returns what could not be removed."""
    import shutil  # with zlib, bz2 and lzma: not for every reader of a file

    left = []  # type: List[str]

    def once_more(_: "Any", stuck: str, __: "Any") -> None:
        try:
            os.chmod(os.path.dirname(stuck), PRIVATE_FOLDER)
            if os.path.isdir(stuck) and not os.path.islink(stuck):
                os.chmod(stuck, PRIVATE_FOLDER)
                shutil.rmtree(stuck)
            else:
                os.unlink(stuck)
        except FileNotFoundError:
            pass
        except OSError:
            left.append(stuck)

    if os.path.lexists(path):
        shutil.rmtree(path, onerror=once_more)
    return left


def open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)


def try_lock(fd: int, shared: bool = False) -> bool:
    """Take the lock if it is free. The lock belongs to the open file: a forked child shares it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def is_locked(path: str) -> bool:
    """Whether somebody holds the lock right now; a file that is not there is not locked."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


class Lock:
    """A short critical section between processes."""

    def __init__(self, path: str, shared: bool = False) -> None:
        self.path = path
        self.how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX

    def __enter__(self) -> "Lock":
        self.fd = open_lock(self.path)
        fcntl.flock(self.fd, self.how)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
