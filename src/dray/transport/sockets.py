"""Where this user's sockets lie: those of the connections, and the warm process's."""

# Nothing more: importing takes time, and the quickest of commands looks here.
import os

LIMIT = 103  # bytes in the path of a socket on macOS; on Linux there may be four more
SSH_NAME = 40 + 17  # the hash of a host, and what ssh adds to it while it binds the socket


def folder() -> str:
    """It need not exist yet. The user's temporary folder on macOS has too long a name for it."""
    name = f"dray-{os.getuid()}"
    for variable in ("XDG_RUNTIME_DIR", "TMPDIR"):
        base = os.environ.get(variable, "")
        path = f"{base.rstrip('/')}/{name}"
        fits = len(os.fsencode(path)) + 1 + SSH_NAME <= LIMIT
        if fits and base.startswith("/") and os.access(base, os.W_OK):
            return path
    return f"/tmp/{name}"


def is_private(path: str) -> bool:
    """Nobody else can put a socket there, or open one."""
    status = os.lstat(path)
    return status.st_uid == os.getuid() and not status.st_mode & 0o077
