"""What a process that is started beside the command sees: the command's own variables, folder and
container."""

import os
import pwd
import stat

from ..containers import container
from ..formats import files
from ..processes import process
from .door import BESIDE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

NO_SHELLS = ("nologin", "false", "true")
ASK, END = "ask", b"end\n"  # in such a folder: a pipe, and what ends who reads it
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
PATIENCE = 60  # seconds for a container to start
# In a container it is not known which shells there are.
SHELL_INSIDE = "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec /bin/sh"


class Beside:
    """A private folder of one connection: its path here, and what it is called ``inside``. What
    runs in the container can change all below ``above`` meanwhile: nothing is written by a path
    that could lead elsewhere by then."""

    def __init__(self, above: str, inside: str) -> None:
        self._above = above
        self._name = BESIDE + os.urandom(6).hex()
        self.path = os.path.join(above, self._name)
        self.inside = os.path.join(inside, self._name)

    def make(self, content: "Dict[str, bytes]") -> None:
        """Make the folder with these files in it."""
        above = os.open(self._above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.mkdir(self._name, files.PRIVATE_FOLDER, dir_fd=above)
            fd = os.open(self._name, FOLDER, dir_fd=above)
        finally:
            os.close(above)
        try:
            for name, text in content.items():
                write_new(name, text, fd)
        finally:
            os.close(fd)

    def remove(self) -> None:
        files.remove_tree(self.path)


class Surroundings:
    """``described`` is what the command's own process says of it: see ``Command.describe``."""

    def __init__(self, described: "Dict[str, Any]", outside: bool = False) -> None:
        self.outside = outside
        self.folder = described["folder"]
        self.env = described["env"]
        self.container = None if outside else described["container"]

    def outside_path(self, path: str) -> str:
        """Return what a socket in the container's own folder is called on the node."""
        inside = container.RUN + "/"
        if self.container is None or not path.startswith(inside):
            return path
        return os.path.join(self.container["run"], path[len(inside) :])

    def folder_beside(self, place: str) -> "Beside":
        """Name a private folder below ``place``, or where the container sees it."""
        if self.container is not None:
            return Beside(self.container["run"], container.RUN)
        return Beside(place, place)

    def script_shell(self) -> str:
        """Return a shell for scripts: outside the container bash where it is, which keeps the
        functions that are among the variables."""
        is_bash = self.container is None and os.access("/bin/bash", os.X_OK)
        return "/bin/bash" if is_bash else "/bin/sh"

    def take_variable(self, name: str) -> str:
        """Leave a variable out of what is started from now on, and return its value."""
        if self.container is not None:
            return ""
        self.env = dict(self.env)
        return str(self.env.pop(name, ""))

    def start(
        self,
        argv: "Optional[List[str]]",
        stdin: int,
        stdout: int,
        stderr: int,
        term: str = "",
    ) -> int:
        """Start a program, or the user's shell where none is named; return its pid. With ``term``,
        the three files are a terminal of this type."""
        is_terminal = bool(term)
        more = {"TERM": term} if term else {}
        if self.container is None:
            env = dict(self.env, **more)
            words = argv or [shell_of(env)]
            folder = self.folder if os.path.isdir(self.folder) else "/"
            return process.start(words, folder, env, stdout, stdin, stderr, is_terminal)
        return self._start_inside(
            argv or ["/bin/sh", "-c", SHELL_INSIDE], more, stdin, stdout, stderr, is_terminal
        )

    def _start_inside(
        self,
        argv: "List[str]",
        more: "Dict[str, str]",
        stdin: int,
        stdout: int,
        stderr: int,
        is_terminal: bool,
    ) -> int:
        """Start a program in a container like the command's. Its variables are read from a pipe
        that has a name: there are secrets in them, which belong neither into a list of processes
        nor on a disk."""
        box = self.container
        assert box is not None
        name = "enter-" + os.urandom(6).hex()
        pipe = os.path.join(box["run"], name)
        os.mkfifo(pipe, 0o600)
        words = box["argv"] + ["/bin/sh", "-c", '. "$0"', os.path.join(container.RUN, name)]
        try:
            pid = process.start(words, "/", box["around"], stdout, stdin, stderr, is_terminal)
        except BaseException:
            os.unlink(pipe)
            raise
        to_bytes = process.to_bytes
        env = {to_bytes(key): to_bytes(value) for key, value in dict(box["env"], **more).items()}
        words = [to_bytes(one) for one in argv]
        terminal = os.fsencode(os.ttyname(stdin)) if is_terminal else b""
        folder = to_bytes(box["folder"])
        write_apart(pipe, container.entering_script(words, env, folder, terminal))
        return pid


def write_new(name: str, content: bytes, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(name, flags, files.PRIVATE_FILE, dir_fd=folder), "wb") as file:
        file.write(content)


def write_apart(pipe: str, text: bytes) -> None:
    """Write to a pipe that somebody will open, or not, without waiting for that."""
    import signal  # only for containers

    if os.fork() == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            signal.alarm(PATIENCE)
            fd = open_pipe(pipe)
            os.unlink(pipe)
            while text:
                text = text[os.write(fd, text) :]
        finally:
            os._exit(0)


def end_asking(folder: str) -> None:
    """End who waits at the folder's pipe for others to ask: it has outlived its server."""
    try:
        inside = os.open(folder, FOLDER)
    except OSError:  # it is none, or a link to one
        return
    try:
        fd = open_pipe(ASK, os.O_NONBLOCK, inside)
        os.write(fd, END)
        os.close(fd)
    except OSError:  # nobody waits
        pass
    finally:
        os.close(inside)


def open_pipe(path: str, more: int = 0, folder: "Optional[int]" = None) -> int:
    """Open a pipe of ours, once somebody reads it. What runs in the container can put something
    else in its place, such as a link to a file that is only seen out here."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | more, dir_fd=folder)
    about = os.fstat(fd)
    if not stat.S_ISFIFO(about.st_mode) or about.st_uid != os.getuid():
        os.close(fd)
        raise OSError("{} is not the pipe that was made".format(path))
    return fd


def shell_of(env: "Dict[str, str]") -> str:
    """Return the user's shell on this node."""
    candidates = [env.get("SHELL", "")]
    try:
        candidates.append(pwd.getpwuid(os.getuid()).pw_shell)
    except KeyError:
        pass
    candidates += ["/bin/bash", "/bin/sh"]
    usable = (one for one in candidates if os.path.isabs(one) and os.access(one, os.X_OK))
    return next((one for one in usable if os.path.basename(one) not in NO_SHELLS), "/bin/sh")
