"""What a process that is started beside the command sees: the command's own variables, folder and
container."""

import os
import pwd

from ..containers import container
from ..formats import files
from ..processes import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

NO_SHELLS = ("nologin", "false", "true")
PATIENCE = 60  # seconds for a container to start
# In a container it is not known which shells there are.
SHELL_INSIDE = "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec /bin/sh"


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

    def make_folder(self, place: str) -> "Tuple[str, str]":
        """Make a private folder below ``place``, or where the container sees it; return its path,
        and what it is called inside."""
        name = "beside-" + os.urandom(6).hex()
        above, inside = (place, place)
        if self.container is not None:
            above, inside = self.container["run"], container.RUN
        os.mkdir(os.path.join(above, name), files.PRIVATE_FOLDER)
        return os.path.join(above, name), os.path.join(inside, name)

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


def write_apart(pipe: str, text: bytes) -> None:
    """Write to a pipe that somebody will open, or not, without waiting for that."""
    import signal  # only for containers

    if os.fork() == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            signal.alarm(PATIENCE)
            fd = os.open(pipe, os.O_WRONLY)
            os.unlink(pipe)
            while text:
                text = text[os.write(fd, text) :]
        finally:
            os._exit(0)


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
