"""State files: written whole or not at all, private to the user."""

import errno
import fcntl
import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Iterable, Iterator, List, Optional, Tuple  # noqa: F401

    from . import leases  # noqa: F401
    from .records import Record

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
# Of file systems that were mounted without locks: see leases.py.
CLOCK = ".clock-"  # in the names of files that are made to learn the file system's time
LOCKS_REFUSED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
MOST_PARTS = 200  # names on the way from a job's outputs to one of its files
LARGEST = 16 << 20  # bytes of a state file: a job's own code may have written something else there
LAST_WORDS = 4096  # bytes at the end of a log in which its last line is looked for
# What may lie where a state file should: nothing, a folder, a link, a pipe nobody writes to, a file
# that was made unreadable. Other errors are the disk's, and say nothing about the file.
NO_FILE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EACCES,
    errno.EPERM,
    errno.ENXIO,
    errno.ENODEV,
    errno.ENAMETOOLONG,
)


def encode(value: "Any") -> bytes:
    """Encode a value as indented JSON, for people who look. Any argument or file name survives
    it."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii")


def write_all(fd: int, content: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part, and refuses only the rest."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def write_bytes(path: str, content: bytes, durable: bool = True) -> None:
    """Replace ``path`` atomically: a reader sees the old content or the new, never a part."""
    # Several machines may share the folder, so a process id would not be enough.
    temporary = "{}.{}.tmp".format(path, os.urandom(6).hex())
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            write_all(fd, content)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        put_in_place(temporary, path)
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


def put_in_place(new: str, path: str) -> None:
    """Rename ``new`` to ``path``, even if job code has made a folder of that name."""
    try:
        os.replace(new, path)
    except IsADirectoryError:
        os.rename(path, "{}.{}.aside".format(path, os.urandom(6).hex()))
        os.replace(new, path)


def append(path: str, content: bytes) -> None:
    """Append to a file. A new one is made private. Raises OSError where not all of it could be
    written."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
    try:
        write_all(fd, content)
    finally:
        os.close(fd)


def write_json(path: str, value: "Any", durable: bool = True) -> None:
    write_bytes(path, encode(value), durable)


def write_once(path: str, value: "Any") -> bool:
    """Write a file that nobody has written yet; return False where somebody has. It appears whole,
    by link(2), of which the first one wins, also over a network."""
    new = "{}/.once-{}".format(os.path.dirname(path), os.urandom(6).hex())
    write_bytes(new, encode(value))
    try:
        os.link(new, path)
    except OSError as error:
        if os.stat(new).st_nlink != 2:  # else it was made, and only the answer was lost
            if error.errno == errno.EEXIST:
                return False
            raise
    finally:
        discard(new)
    sync_folder(os.path.dirname(path))
    return True


def open_regular(path: str) -> "BinaryIO":
    """Open a file for reading. Raise OSError for a link, a pipe, or anything else that is no plain
    file. Never waits for somebody to write to a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENXIO, "not a regular file", path)
    return os.fdopen(fd, "rb")


def last_line(path: str) -> str:
    """Return the last line with anything in it; nothing where there is none, or no file."""
    return "".join(last_lines(path, 1))


def last_lines(path: str, most: int, since: int = 0) -> "List[str]":
    """Return the last lines with anything in them, of what was written behind ``since``."""
    try:
        with open_regular(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LAST_WORDS, since))
            lines = file.read(LAST_WORDS).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()][-most:]


def read_json(path: str, most: int = LARGEST) -> "Optional[Any]":
    """Read the value; None if there is no file, or it holds no value: a power cut has left it
    empty, or job code has put something else in its place."""
    try:
        with open_regular(path) as file:
            content = file.read(most + 1)
        return decode(content) if len(content) <= most else None
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise


def decode(content: bytes) -> "Optional[Any]":
    try:
        return json.loads(content.decode("ascii"))
    except (ValueError, RecursionError):
        return None


def read_record(path: str, most: int = LARGEST) -> "Optional[Record]":
    """Read a JSON object; None if there is none."""
    value = read_json(path, most)
    return value if isinstance(value, dict) else None


def read_piece(path: str, offset: int, most: int) -> "Tuple[int, bytes]":
    """Return the file's size, and up to ``most`` bytes from ``offset`` on; nothing if there is no
    file."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            # Some file systems refuse an offset far beyond the end.
            file.seek(max(min(offset, size), 0))
            return size, file.read(most)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        return 0, b""


def now_in(folder: str) -> float:
    """Return the time by the file system's clock, which the machines that share it may not agree
    with."""
    probe = os.path.join(folder, CLOCK + os.urandom(6).hex())
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    try:
        return os.stat(probe).st_mtime
    finally:
        discard(probe)


def sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:  # some network file systems refuse to sync a folder
        pass
    finally:
        os.close(fd)


def exists(path: str) -> bool:
    """Return whether anything of this name exists, even a dangling link. An error of the disk is
    raised: what is there must not be taken for missing."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return False
    return True


def make_folder(path: str, durable: bool = True) -> None:
    """Create a private folder, and private parents where they are missing."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make_folder(parent, durable)
    try:
        os.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise
    if durable:
        sync_folder(parent or ".")


def sweep_temporaries(folder: str, before: float) -> None:
    """Remove temporary files that killed writers have left there before that time."""
    for name in all_names_in(folder):
        path = os.path.join(folder, name)
        try:
            if name.endswith(".tmp") and os.lstat(path).st_mtime < before:
                discard(path)
        except OSError:  # it has just been put in place
            pass


def names_in(folder: str) -> "List[str]":
    """Return the names in a folder, sorted and without hidden ones; none if there is no folder."""
    return visible(all_names_in(folder))


def all_names_in(folder: str) -> "List[str]":
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def files_below(top: str, most_parts: int = MOST_PARTS) -> "Iterator[str]":
    """Yield the paths of everything below ``top`` that is not a folder. Links are not followed, and
    what lies deeper than anybody would want is left out."""
    todo = [(top, 1)]
    while todo:
        folder, parts = todo.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.path
                elif parts < most_parts:
                    todo.append((entry.path, parts + 1))
        except OSError:  # just removed by the trainer, or not for us to read
            continue


def visible(names: "Iterable[str]") -> "List[str]":
    return sorted(name for name in names if not name.startswith("."))


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def discard(path: str) -> None:
    """Remove a file; ignore errors."""
    try:
        remove(path)
    except OSError:
        pass


def force_unlink(path: str) -> None:
    """Remove a file, even from a folder that the command has made read-only."""
    try:
        os.unlink(path)
    except PermissionError:
        os.chmod(os.path.dirname(path), PRIVATE_FOLDER)
        os.unlink(path)


def remove_tree(path: str) -> "List[str]":
    """Remove a tree, including read-only folders. Return what could not be removed."""
    import shutil  # with zlib, bz2 and lzma: not for every reader of a file

    left = []  # type: List[str]

    def once_more(_: "Any", stuck: str, error: "Any") -> None:
        try:
            # Only where the folder keeps us from it: it may be one that is everybody's, such as
            # /tmp, and what was in it be gone because somebody else has removed it.
            if isinstance(error[1], PermissionError):
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

    if os.path.isdir(path) and not os.path.islink(path):
        try:
            shutil.rmtree(path, onerror=once_more)
        except RecursionError:  # thousands of folders, one in another
            import subprocess

            left = [path] if subprocess.call(["rm", "-rf", "--", path]) else []
    elif os.path.lexists(path):  # rmtree would wait for somebody to write to a pipe
        try:
            force_unlink(path)
        except OSError:
            left.append(path)
    return left


def open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE_FILE)


def try_lock(fd: int, shared: bool = False) -> bool:
    """Take the lock if it is free. The lock belongs to the open file: a forked child shares it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def lock_if_possible(fd: int) -> bool:
    """Take the lock if it is free. If the file system has no locks, do without."""
    try:
        return try_lock(fd)
    except OSError as error:
        if error.errno not in LOCKS_REFUSED:
            raise
        return True


def is_locked(path: str) -> bool:
    """Return whether somebody holds the lock right now. A missing file is not locked."""
    if os.path.lexists(path + ".lease"):
        from . import leases

        return leases.Lease(path).is_held()
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not try_lock(fd, shared=True)
    except OSError as error:
        if error.errno not in LOCKS_REFUSED:
            raise
        return False
    finally:
        os.close(fd)


class Lock:
    """A short critical section between processes. Its holder may remove the file: those who waited
    for it then take a new one. If the file system has no locks, a lease is used."""

    leased = False  # whether locks are known to be invisible to others on the file system
    outlived = False  # whether a program started under it may outlive its holder

    def __init__(self, path: str, shared: bool = False) -> None:
        self.path = path
        self.how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self.lease = None  # type: Optional[leases.Lease]

    def __enter__(self) -> "Lock":
        self.take()
        return self

    def take(self, wait: bool = True) -> bool:
        """Take the lock. With ``wait=False``, return False if somebody else holds it."""
        while True:
            self.fd = open_lock(self.path)
            try:
                fcntl.flock(self.fd, self.how if wait else self.how | fcntl.LOCK_NB)
                if is_at(self.fd, self.path):
                    break
            except BlockingIOError:
                os.close(self.fd)
                return False
            except OSError as error:
                if error.errno in LOCKS_REFUSED:
                    return self._take_lease(wait)
                os.close(self.fd)
                raise
            os.close(self.fd)
        return self._take_lease(wait) if self.leased else True

    def _take_lease(self, wait: bool) -> bool:
        from . import leases  # only where there are no locks

        self.lease = leases.Lease(self.path, outlived=self.outlived)
        taken = False
        try:
            taken = self.lease.wait() if wait else self.lease.take()
        finally:
            if not taken:
                os.close(self.fd)
        if taken:
            self.lease.keep()
        return taken

    def __exit__(self, *_: object) -> None:
        if self.lease is not None:
            self.lease.release()
        os.close(self.fd)


def is_at(fd: int, path: str) -> bool:
    """Return whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
