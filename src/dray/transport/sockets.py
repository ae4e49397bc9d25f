"""Finds the folder of this user's sockets: those of the connections, and the warm process's."""

# Nothing more: importing takes time, and the quickest of commands looks here.
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 103  # bytes in the path of a socket on macOS; on Linux there may be four more
SSH_NAME = 40 + 17  # the hash of a host, and what ssh adds to it while it binds the socket
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder() -> str:
    """Return the first folder that is ours, or can be; "" if ``reserve`` has to make one.

    It need not exist yet. One that is ours but open to others is returned as well: the user can
    close it (``is_private``), while only its owner could close somebody else's.
    """
    return next((path for path in candidates() if is_usable(path)), "")


def socket_folder() -> "Path":
    """Return the folder of the connections' sockets, creating it if it is missing."""
    from contextlib import suppress
    from pathlib import Path

    from dray.errors import ClusterError

    path = folder() or reserve()
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if not is_private(path):
        raise ClusterError(f"{path} is not private to you", hint=f"Remove it, or chmod 700 {path}")
    return Path(path)


def candidates() -> "Iterator[str]":
    """Yield the folders to try. The user's temporary folder on macOS has too long a name for a
    socket."""
    name = f"dray-{os.getuid()}"
    for base in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):
        if base:
            yield f"{base.rstrip('/')}/{name}"
    yield reserved()


def is_usable(path: str) -> bool:
    if not path.startswith("/") or len(os.fsencode(path)) + 1 + SSH_NAME > LIMIT:
        return False
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return is_safe_above(os.path.dirname(path))
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def is_safe_above(base: str) -> bool:
    """Return whether a folder created in this one cannot be moved away by anybody else."""
    try:
        status = os.stat(base)
    except OSError:
        return False
    is_open = status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
    return status.st_uid in (0, os.getuid()) and not is_open and os.access(base, os.W_OK | os.X_OK)


def is_private(path: str) -> bool:
    """Return whether nobody else can put a socket there, or open one."""
    status = os.lstat(path)
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return ours and not status.st_mode & 0o077


def reserve() -> str:
    """Choose an unpredictable name, as all others are taken. Every process of the user finds it by
    a link in the cache folder."""
    link = _link()
    path = f"/tmp/dray-{os.getuid()}-{os.urandom(6).hex()}"
    os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
    os.symlink(path, f"{link}.{os.getpid()}")
    os.replace(f"{link}.{os.getpid()}", link)
    return reserved()


def reserved() -> str:
    try:
        return os.readlink(_link())
    except OSError:
        return ""


def _link() -> str:
    from dray.home import find_home  # rarely needed

    return f"{find_home().cache}/sockets"
