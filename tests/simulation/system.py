"""The calls of the operating system that a simulated process makes: each is a step of the kernel.

Threads that are not simulated (the test itself, its runner) get the real calls throughout.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.simulation.kernel import FOREVER, Kernel, Killed, Process, current

TICK = 250.0  # the file system's clock moves so often in a second
STANDARD = (1, 2)  # output goes to whoever started the process

# Which fail where there is no space left, and which do not.
GROWING = ("mkdir", "link", "symlink", "rename", "replace")
SHRINKING = ("unlink", "rmdir")
CHANGING = ("chmod", "fchmod", "fsync", "ftruncate")
LOOKING = ("stat", "lstat", "listdir", "scandir", "readlink", "access")

get_ident = threading.get_ident


class Real(NamedTuple):
    """What the simulation itself needs of the calls that it replaces."""

    open: Callable[..., int] = os.open
    close: Callable[[int], None] = os.close
    write: Callable[..., int] = os.write
    utime: Callable[..., None] = os.utime
    lexists: Callable[[str], bool] = os.path.lexists
    readlink: Callable[[str], str] = os.readlink
    open_file: Callable[..., Any] = io.open
    flock: Callable[..., None] = fcntl.flock

    def inode(self, path: str, stat: Callable[[str], os.stat_result] = os.stat) -> int:
        return stat(path).st_ino


REAL = Real()


class Calls:
    """The replacements, for one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    # -- files ------------------------------------------------------------------------------------

    def stepping(self, name: str, real: Callable[..., Any]) -> Any:
        """The real call, after a step."""
        kernel = self.kernel

        def call(*arguments: Any, **options: Any) -> Any:
            process = current.get(get_ident())
            if process is not None:
                kernel.step(process, name)
            return real(*arguments, **options)

        return call

    def naming(self, name: str, real: Callable[..., Any]) -> Any:
        """One that changes what is in a folder, and so the folder's time."""
        kernel = self.kernel

        def call(*arguments: Any, **options: Any) -> Any:
            process = current.get(get_ident())
            if process is None:
                return real(*arguments, **options)
            kernel.step(process, name, needs_space=name in GROWING)
            result = real(*arguments, **options)
            if options.get("dir_fd") is not None:
                self._stamp(options["dir_fd"])
            else:
                self._stamp_folders(name, arguments)
            return result

        return call

    def _stamp_folders(self, name: str, arguments: tuple[Any, ...]) -> None:
        count = 2 if name in ("rename", "replace") else 1
        for path in arguments[1:2] if name in ("link", "symlink") else arguments[:count]:
            self._stamp(os.path.dirname(path))
        if name == "mkdir":
            self._stamp(arguments[0])

    def open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        process = current.get(get_ident())
        if process is None:
            return REAL.open(path, flags, mode, **options)
        creates = bool(flags & os.O_CREAT)
        self.kernel.step(process, "open", needs_space=creates)
        is_new = creates and bool(flags & os.O_TRUNC or not REAL.lexists(path))
        fd = REAL.open(path, flags, mode, **options)
        process.fds.add(fd)
        if is_new:
            self._stamp(fd)
            self._stamp(os.path.dirname(path))
        return fd

    def close(self, fd: int) -> None:
        """Also for a process that dies: nobody else can have got the number meanwhile."""
        process = current.get(get_ident())
        if process is not None:
            process.fds.discard(fd)
        REAL.close(fd)

    def write(self, fd: int, content: Any) -> int:
        process = current.get(get_ident())
        if process is None:
            return REAL.write(fd, content)
        if fd in STANDARD:
            process.output(bytes(content))
            return len(content)
        try:
            self.kernel.step(process, "write", needs_space=True)
        except (OSError, Killed):  # half of it may have been written by then
            REAL.write(fd, content[: len(content) // 2])
            raise
        written = REAL.write(fd, content)
        self._stamp(fd)
        return written

    def utime(self, path: Any, times: Any = None, **options: Any) -> None:
        process = current.get(get_ident())
        if process is not None:
            self.kernel.step(process, "utime")
            if times is None and "ns" not in options:
                self._stamp(path)
                return
        REAL.utime(path, times, **options)

    def _stamp(self, file: Any) -> None:
        """By the clock of the file system, which has its own."""
        now = int(self.kernel.now * TICK) / TICK
        REAL.utime(file, (now, now))

    def open_file(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        process = current.get(get_ident())
        if process is None:
            return REAL.open_file(file, mode, *arguments, **options)
        if isinstance(file, int):
            return self.fdopen(file, mode, *arguments, **options)
        if set(mode) & set("wax+"):
            return written(self, file, mode, *arguments, **options)
        self.kernel.step(process, "open for reading")
        return REAL.open_file(file, mode, *arguments, **options)

    def fdopen(self, fd: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """From then on the file object closes it."""
        process = current.get(get_ident())
        if process is not None:
            if set(mode) & set("wax+"):
                return buffered(RawFile(self, fd), mode, **options)
            process.fds.discard(fd)
        return REAL.open_file(fd, mode, *arguments, **options)

    def flock(self, fd: int, how: int) -> None:
        process = current.get(get_ident())
        if process is None:
            REAL.flock(fd, how)
            return
        self.kernel.step(process, "lock")
        if how & fcntl.LOCK_NB:
            REAL.flock(fd, how)
        else:
            self.kernel.wait_for(process, lambda: takes_lock(fd, how), FOREVER)

    # -- time, chance, signals --------------------------------------------------------------------

    def time(self, real: Callable[[], float]) -> Callable[[], float]:
        def now() -> float:
            process = current.get(get_ident())
            return real() if process is None else self.kernel.now + process.skew

        return now

    def sleep(self, seconds: float) -> None:
        process = current.get(get_ident())
        if process is None:
            threading.Event().wait(seconds)
        else:
            self.kernel.sleep(process, seconds)

    def getpid(self, real: Callable[[], int] = os.getpid) -> int:
        process = current.get(get_ident())
        return real() if process is None else process.pid

    def gethostname(self, real: Callable[[], str] = socket.gethostname) -> str:
        process = current.get(get_ident())
        return real() if process is None else process.host

    def uname(self, real: Callable[[], os.uname_result] = os.uname) -> os.uname_result:
        process = current.get(get_ident())
        found = real()
        if process is None:
            return found
        return os.uname_result((found[0], process.host, *found[2:]))

    def urandom(self, size: int, real: Callable[[int], bytes] = os.urandom) -> bytes:
        return real(size) if get_ident() not in current else self.kernel.noise.randbytes(size)

    def sigmask(self, how: int, numbers: Any) -> None:
        """A process that blocks signals waits for them; any other one has a handler, or dies."""
        process = current[get_ident()]
        process.blocks_signals = how != signal.SIG_UNBLOCK and bool(numbers)
        if not process.blocks_signals:
            process.signals = [one for one in process.signals if one in process.handlers]
            self.kernel.deliver(process)

    def signal(self, number: int, handler: Any) -> None:
        process = current[get_ident()]
        if callable(handler):
            process.handlers[number] = handler
        else:
            process.handlers.pop(number, None)

    def setitimer(self, _: int, seconds: float) -> None:
        current[get_ident()].alarm = self.kernel.now + seconds if seconds else FOREVER

    def sigtimedwait(self, wanted: Any, seconds: float) -> Any:
        """Others wait until somebody asks for them."""
        process = current[get_ident()]
        until = self.kernel.now + seconds
        while True:
            for number in process.signals:
                if number in wanted:
                    process.signals.remove(number)
                    return Received(number)
            if self.kernel.now >= until:
                return None
            self.kernel.sleep(process, until - self.kernel.now)


def takes_lock(fd: int, how: int) -> bool:
    try:
        REAL.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Received(NamedTuple):
    si_signo: int


class RawFile(io.RawIOBase):
    """A file that is open for writing: what is left in buffers when its process dies is lost."""

    def __init__(self, calls: Calls, fd: int) -> None:
        self.calls = calls
        self.fd = fd

    def fileno(self) -> int:
        return self.fd

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return os.lseek(self.fd, offset, whence)

    def readinto(self, buffer: Any) -> int:
        piece = os.read(self.fd, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def write(self, content: Any) -> int:
        return self.calls.write(self.fd, bytes(content))

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self.fd, size)
        return size

    def close(self) -> None:
        if not self.closed:
            self.calls.close(self.fd)
        super().close()


def written(calls: Calls, path: Any, mode: str, *_: Any, **options: Any) -> Any:
    kind = mode.replace("b", "").replace("t", "")
    flags = {
        "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        "r+": os.O_RDWR,
    }[kind]
    return buffered(RawFile(calls, calls.open(os.fspath(path), flags, 0o666)), mode, **options)


def buffered(raw: RawFile, mode: str, **options: Any) -> Any:
    file: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return file if "b" in mode else io.TextIOWrapper(file, options.get("encoding"))


def replacements(kernel: Kernel) -> list[tuple[Any, str, Any]]:
    calls = Calls(kernel)
    found: list[tuple[Any, str, Any]] = [
        (os, name, calls.stepping(name, getattr(os, name))) for name in (*CHANGING, *LOOKING)
    ]
    found += [(os, name, calls.naming(name, getattr(os, name))) for name in (*GROWING, *SHRINKING)]
    clocks = [(time, name, calls.time(getattr(time, name))) for name in ("time", "monotonic")]
    return [
        *found,
        *clocks,
        (time, "process_time", calls.time(time.process_time)),
        (time, "sleep", calls.sleep),
        (os, "open", calls.open),
        (os, "close", calls.close),
        (os, "fdopen", calls.fdopen),
        (os, "write", calls.write),
        (os, "utime", calls.utime),
        (os, "getpid", calls.getpid),
        (os, "uname", calls.uname),
        (os, "urandom", calls.urandom),
        (builtins, "open", calls.open_file),
        (socket, "gethostname", calls.gethostname),
        (fcntl, "flock", calls.flock),
        (signal, "pthread_sigmask", calls.sigmask),
        (signal, "sigtimedwait", calls.sigtimedwait),
        (signal, "signal", calls.signal),
        (signal, "setitimer", calls.setitimer),
    ]


@contextmanager
def replaced(table: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Every call as it was, in the end."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in table]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1.0)  # no two of the threads ever want to run at once
    try:
        for owner, name, new in table:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in reversed(before):
            setattr(owner, name, old)
        sys.setswitchinterval(interval)


def is_expected(error: BaseException | None) -> bool:
    """Whether a process may end by it: its link or its disk is gone."""
    return error is None or (
        isinstance(error, OSError)
        and error.errno
        in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ECONNRESET)
    )


def leaks(process: Process) -> list[str]:
    """What a process that goes on has left open."""
    paths = [os.readlink(f"/proc/self/fd/{fd}") for fd in sorted(process.fds)]
    return [os.path.basename(path) for path in paths]
