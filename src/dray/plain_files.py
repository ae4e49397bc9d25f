"""Reads files that somebody else may have made: regular ones of bounded size, nothing else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST = 1 << 20  # bytes; more is no file that a person has written


def read(path: str | Path, most: int = MOST) -> tuple[bytes, os.stat_result]:
    """Return the content, and the file's status. Raise an OSError that says what it is if it is no
    regular file: opening a pipe would wait for ever, and reading a device never end."""
    require_regular(os.stat(path), path)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        status = os.fstat(fd)
        require_regular(status, path)
        content = file.read(most + 1) or b""
        while len(content) <= most and (more := file.read(most + 1 - len(content))):
            content += more
    if len(content) > most:
        size = f"{most >> 20} MB" if most >= 1 << 20 else f"{most} bytes"
        raise OSError(errno.EFBIG, f"it has more than {size}", str(path))
    return content, status


def require_regular(status: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is a {special_kind(status.st_mode)}", str(path))


def special_kind(mode: int) -> str:
    """Name what is neither file, folder nor link."""
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISFIFO(mode):
        return "named pipe"
    return "device"
