"""Leases: they replace locks on file systems that refuse locks, or keep them to one node.

A lease is a file that names its holder, who renews it. One that has not been renewed for a while,
by the clock of the file system, is free: whoever finds it so renames it away, which only one
process can, and creates its own. A holder that has lost its lease exits at once.
"""

import errno
import fcntl
import os
import signal
import time

from . import files, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional  # noqa: F401

    from .records import LockFacts, Mount, Record

ENDING = ".lease"
AGE = 60.0  # seconds without renewal after which a lease is free
RENEWAL = 10.0
PAUSE = 0.2  # between two looks at a lease that somebody else has
# File systems whose locks are not seen on other nodes, as far as can be told from here. BeeGFS has
# a setting for it (tuneUseGlobalFileLocks), which is off unless somebody has set it.
LOCAL_KINDS = ("beegfs", "9p", "afs")
LOCAL_OPTIONS = ("localflock", "nolock", "local_lock=all", "local_lock=flock", "noflock")


class Lease:
    """A file that names its holder. ``outlived``: a program that the holder started may outlive it,
    so that the holder's death alone does not free the lease."""

    def __init__(self, path: str, age: float = AGE, outlived: bool = False) -> None:
        import threading  # only where there are no locks

        self.path = path + ENDING
        self.age = age
        self.over = threading.Event()  # set once it is released
        self.mine = files.encode(
            {
                "host": own_host(),
                "pid": os.getpid(),
                "started": start_of(os.getpid()),
                "outlived": outlived,
                "random": os.urandom(8).hex(),
            }
        )

    def take(self) -> bool:
        """Take the lease if it is free."""
        if self._make():
            return True
        held, now = self._content(), self._now()
        if held is not None and self._is_free(self.path, held, now):
            self._steal(held, now)
            return self._make()
        return False

    def wait(self, seconds: "Optional[float]" = None) -> bool:
        """Take the lease as soon as it is free. Return False if it was not within ``seconds``."""
        until = time.monotonic() + seconds if seconds is not None else None
        while not self.take():
            if until is not None and time.monotonic() > until:
                return False
            time.sleep(PAUSE)
        return True

    def is_held(self) -> bool:
        held = self._content()
        return held is not None and not self._is_free(self.path, held, self._now())

    def is_mine(self) -> bool:
        return self._content() == self.mine

    def renew(self) -> bool:
        """Renew the lease. Return False if somebody else has it by now."""
        if not self.is_mine():
            return False
        os.utime(self.path)
        return True

    def release(self) -> None:
        self.over.set()
        if self.is_mine():
            files.discard(self.path)

    def keep(self) -> None:
        """Renew the lease in the background until it is released. Whoever takes it believes that
        this process is dead, so on losing it the process exits."""
        import threading

        before = signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.SIGSYS + 1))
        try:  # signals are for the main thread
            threading.Thread(target=self._renew_until_released, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _renew_until_released(self) -> None:
        losses = 0
        # Another process may rename it away by mistake, for a moment: see _steal.
        while losses < 2 and not self.over.wait(RENEWAL):
            try:
                losses = 0 if self.renew() else losses + 1
            except OSError:  # the disk is away: whether it is still ours shows later
                pass
        if not self.over.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    def _make(self) -> bool:
        """Create the lease's file, which appears with its content whatever happens."""
        new = "{}.{}.new".format(self.path, os.urandom(6).hex())
        try:
            files.write_bytes(new, self.mine, durable=False)
            os.link(new, self.path)
            return True
        except FileExistsError:
            return False
        finally:
            files.discard(new)

    def _content(self) -> "Optional[bytes]":
        try:
            with files.open_regular(self.path) as file:
                return file.read(4096)
        except OSError as error:
            if error.errno not in files.NO_FILE:
                raise
            return None

    def _now(self) -> float:
        return files.now_in(os.path.dirname(self.path))

    def _is_free(self, path: str, held: bytes, now: float) -> bool:
        try:
            idle = now - os.stat(path).st_mtime
        except FileNotFoundError:  # somebody is taking it: nothing to rename away
            return False
        owner = files.decode(held)
        owner = owner if isinstance(owner, dict) else {}
        return idle > self.age or (is_dead(owner) and not owner.get("outlived"))

    def _steal(self, held: bytes, now: float) -> None:
        """Remove the expired lease, unless it changed since it was read. A renewal changes nothing
        but its time."""
        aside = "{}.{}.old".format(self.path, os.urandom(6).hex())
        try:
            os.rename(self.path, aside)
            with files.open_regular(aside) as file:
                taken = file.read(4096)
            if taken != held or not self._is_free(aside, held, now):
                os.link(aside, self.path)
        except (FileNotFoundError, FileExistsError):
            pass
        files.discard(aside)


def is_dead(owner: "Record") -> bool:
    """Return whether the lease's owner was a process of this machine and is gone."""
    if owner.get("host") != own_host():
        return False
    return start_of(owner.get("pid")) != owner.get("started")


def own_host() -> str:
    """Return this machine's name, and what tells apart containers that have the name of their node:
    each has numbers of its own for its processes."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    return "{} {}".format(os.uname().nodename, numbers)


def start_of(pid: "Any") -> str:
    """Return the process's start time, which tells it from a later process with the same pid."""
    try:
        with open("/proc/{:d}/stat".format(pid), "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, ValueError, TypeError, IndexError):
        return ""


# -- where they are needed ------------------------------------------------------------------------


def are_needed(folder: str) -> bool:
    """Return whether locks in this folder are known to be invisible to other nodes. Whether they
    are refused shows when one is taken."""
    mount = mount_of(folder)
    return keeps_locks_to_itself(mount["kind"], mount["options"])


def keeps_locks_to_itself(kind: str, options: "List[str]") -> bool:
    return kind in LOCAL_KINDS or any(one in LOCAL_OPTIONS for one in options)


def mount_of(folder: str) -> "Mount":
    """Return the kind and the mount options of the file system that holds the folder."""
    path = os.path.realpath(folder)
    found = [
        (len(place), kind, options)
        for place, kind, options in mounts.read_mounts()
        if mounts.is_on(path, place)
    ]
    _, kind, options = max(found) if found else (0, "", "")
    return {"kind": kind, "options": options.split(",")}


def locks_work(folder: str) -> bool:
    """Return whether a lock that one process holds keeps another one out."""
    path = os.path.join(folder, ".lock-probe-" + os.urandom(6).hex())
    held = files.open_lock(path)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pid = os.fork()
        if pid == 0:
            os._exit(1 if _gets_in(path) else 0)
        return os.waitpid(pid, 0)[1] == 0
    except OSError as error:
        if error.errno in files.LOCKS_REFUSED:
            return False
        raise
    finally:
        os.close(held)
        files.discard(path)


def _gets_in(path: str) -> bool:
    try:
        fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def facts(folder: str) -> "LockFacts":
    """Return what ``dray doctor`` reports about locks in this folder."""
    mount = mount_of(folder)
    said = [one for one in mount["options"] if "lock" in one]
    return {
        "file_system": mount["kind"],
        "options": said,
        "work": locks_work(folder),
        "only_here": keeps_locks_to_itself(mount["kind"], mount["options"]),
    }
