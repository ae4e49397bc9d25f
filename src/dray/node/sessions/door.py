"""A listening socket beside the command, which starts a server for whoever knocks.

It costs nothing while nobody does: the kernel wakes the supervisor when somebody connects. The
server is a process of its own, with the listening socket, and ends by itself when it is idle.

The socket is in a private folder on the node's own disk, and a file in the attempt's directory
tells where. Only a process of the same user is let in. Where nothing leads to this node, somebody
who wants in calls: see ``calls``.
"""

import fcntl
import json
import os
import select
import signal
import socket
import time

from ..formats import files
from ..formats.interpreters import own_words
from ..formats.messages import print_message
from ..processes import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple  # noqa: F401

    from .calls import Calls

PREFIX = "dray-door-"
BESIDE = "beside-"  # how the folder of one connection begins
PLACES = ("/tmp", "/dev/shm", "/var/tmp")  # of the node's own, and with short names
BACKLOG = 64
TERM_SECONDS = 2.0  # for a server to end what it has started
PAUSE = 5.0  # seconds before one that has ended is started again


class Door:
    """``describe`` returns what the server has to know of the command; ``path`` is the file that
    tells where the door is, and ``place`` what the scheduler needs to lead there. ``is_called``:
    whether those who want in have to call. With ``is_attended`` the server is there before anybody
    knocks, and stays."""

    def __init__(
        self,
        path: str,
        place: "Dict[str, str]",
        describe: "Callable[[], Dict[str, Any]]",
        is_called: bool = False,
        is_attended: bool = False,
    ) -> None:
        self.path = path
        self.is_attended = is_attended
        self._next_start = 0.0
        self.server = 0  # its pid
        self.calls = calls_to(path) if is_called else None
        self._describe = describe
        self.folder, self._lock = make_folder()
        self._places = [self.folder]  # where a server keeps what belongs to a connection
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            at = os.path.join(self.folder, "s")
            self._socket.bind(at)
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
            fd = self._socket.fileno()
            fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
            if self.calls is not None:
                self.calls.make()
            told = {"place": place, "socket": at, "words": own_words()}
            files.write_json(path, told, durable=False)
        except BaseException:
            self._remove()
            raise

    def look(self) -> None:
        """Start a server if one is to be there and is not, or somebody waits for one."""
        if self.server:
            return
        is_due = self.is_attended and time.monotonic() >= self._next_start
        if not is_due and not self._is_wanted():
            return
        self._next_start = time.monotonic() + PAUSE
        try:
            self._start()
        except (OSError, process.CannotStart) as error:
            print_message("nobody can be let in: {}".format(error))
            self._turn_away()

    def _is_wanted(self) -> bool:
        if select.select([self._socket], [], [], 0)[0]:
            return True
        return self.calls is not None and self.calls.is_waiting()

    def _turn_away(self) -> None:
        """Close a connection that nobody serves: it would knock for ever."""
        if self.calls is not None:
            self.calls.skip()
        try:
            connection, _ = self._socket.accept()
            connection.close()
        except OSError:  # it has left already
            pass

    def _start(self) -> None:
        described = self._write_description()
        os.set_inheritable(described, True)
        try:
            words = own_words("session", str(described))
            env = dict(os.environ)
            self.server = process.start(words, "/", env, 2, self._socket.fileno())
        finally:
            os.close(described)

    def _write_description(self) -> int:
        """Write what the server has to know to an unnamed file: there are secrets in it."""
        path = os.path.join(self.folder, "command")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, files.PRIVATE_FILE)
        os.unlink(path)
        described = self._describe()
        box = described["container"]
        self._places = [self.folder] + ([box["run"]] if box else [])
        if self.calls is not None:
            described["calls"] = [self.calls.path, self.calls.heard]
        rest = memoryview(json.dumps(described).encode("ascii"))
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def reaped(self, pid: int) -> None:
        """Know that a child of ours has ended."""
        if pid == self.server:
            self.server = 0
            if self.calls is not None:
                self.calls.skip()
            self._clear()

    def _clear(self) -> None:
        """End and remove what a server that was killed has left of its connections."""
        for place in self._places:
            try:
                names = [one for one in os.listdir(place) if one.startswith(BESIDE)]
            except OSError:  # what runs in the container can make it unreadable
                continue
            for name in names:
                from .surroundings import end_asking  # hardly ever

                end_asking(os.path.join(place, name))
                files.remove_tree(os.path.join(place, name))

    def close(self, reap: "Callable[[], None]") -> None:
        """End the server with all that it has started, and take the door away. ``reap`` collects
        children that have ended."""
        files.discard(self.path)
        if self.calls is not None:
            self.calls.remove()
        if self.server:
            process.send([self.server], signal.SIGTERM)
        until = time.monotonic() + TERM_SECONDS
        while self.server and time.monotonic() < until + TERM_SECONDS:
            if time.monotonic() > until:
                process.send([self.server] + process.descendants(self.server), signal.SIGKILL)
            time.sleep(0.01)
            reap()
        self._remove()

    def _remove(self) -> None:
        self._socket.close()
        files.remove_tree(self.folder)
        os.close(self._lock)


def calls_to(path: str) -> "Calls":
    from . import calls  # not where the scheduler leads here

    return calls.Calls(calls.path_beside(path))


def make_folder(prefix: str = PREFIX) -> "Tuple[str, int]":
    """Make a private folder with a short name, and take away those of processes that are gone.
    Return its path, and its lock: others leave it alone until that is closed."""
    trouble = None
    for place in PLACES * 2:
        try:
            sweep(place, prefix)
            name = "{}{}-{}-{}".format(prefix, os.getuid(), os.getpid(), os.urandom(6).hex())
            path = os.path.join(place, name)
            os.mkdir(path, files.PRIVATE_FOLDER)
            lock = lock_folder(path)
            if lock is not None:
                return path, lock
        except OSError as error:
            trouble = error
    raise trouble or OSError("there is no place for a socket")


def lock_folder(path: str) -> "Optional[int]":
    """Take the lock of a folder that is still there; None where somebody else has it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if files.lock_if_possible(fd) and files.is_at(fd, path):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def sweep(place: str, prefix: str) -> None:
    """Remove the folders that killed processes have left. A process that cannot be seen may live
    all the same, in a container that shares the place: it holds the lock then."""
    own = "{}{}-".format(prefix, os.getuid())
    for name in os.listdir(place):
        pid = name[len(own) :].partition("-")[0]
        if name.startswith(own) and not os.path.exists("/proc/" + pid):
            try:
                remove_abandoned(os.path.join(place, name))
            except OSError:  # somebody else was here first, or it is not ours
                continue


def remove_abandoned(path: str) -> None:
    if os.lstat(path).st_uid != os.getuid():
        return
    lock = lock_folder(path)
    if lock is not None:
        files.remove_tree(path)
        os.close(lock)
