"""Asking a warm process to carry out the command: it has imported everything already.

It is a process of the user's own, found by a socket that only the user can open, and never needed:
where anything about it is not as it should be, the command is carried out here. The dialogue:

    there → here   READY: somebody is awake
    here → there   the length of a request, the request; with it stdin, stdout, stderr, the folder
    there → here   TAKEN: all is set, nothing is done yet
    here → there   GO: from now on it is done there, or not at all
    here → there   a signal's number, whenever one arrives
    there → here   DONE and the exit code; or BACK: nothing was done, do it here
"""

# Not socket, signal, json …: importing those takes longer than all that is done here.
import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SERVED = ("run", "plan", "ps", "show", "stop", "exec")  # short, and asking nothing
READY, TAKEN, GO, DONE, BACK = b"r", b"t", b"g", b"d", b"b"
ENDING = ".warm"  # of a socket's name
PATIENCE = 1.0  # seconds for a process that should be ready
# What the interpreter itself, and the programs it loads, have looked at when they started.
AT_START = ("PYTHON", "LANG", "LC_", "LD_", "DYLD_", "HOME")


def ask(arguments: list[str]) -> "int | None":
    """Return the exit code; None where the command has to be carried out here."""
    if not arguments or arguments[0] not in SERVED or lasts(arguments):
        return None
    try:
        if not is_anyone_there():
            return None
        us = identity()
        link = connect(us)
    except OSError:
        return None
    try:
        request = marshal.dumps((us, arguments, dict(os.environ), umask()))
        return answer(link) if is_taken(link, request) and is_begun(link) else None
    finally:
        link.close()


def lasts(arguments: list[str]) -> bool:
    """Return whether the command goes on until the user ends it."""
    watches = arguments[0] == "ps" and ("-w" in arguments or "--watch" in arguments)
    is_terminal = arguments[0] == "exec" and not {"-t", "--tty"}.isdisjoint(arguments)
    return watches or is_terminal or "--follow" in arguments


def identity() -> "tuple[Any, ...]":
    """Return everything in which two processes must agree for one to stand in for the other: the
    code, the interpreter, how it was started, and what it sees of the machine."""
    return (
        stamps_below(os.path.dirname(os.path.dirname(__file__))),
        [stamp(path) for path in (sys.path if sys.flags.safe_path else sys.path[1:])],
        (sys.executable, sys.version, sys.getfilesystemencoding()),
        at_start(),
        (os.getuid(), os.getgid(), os.getgroups()),
        namespaces(),
    )


def namespaces() -> "list[str]":
    """Return this process's namespaces: in a container, the same names are other files."""
    try:
        return [os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")]
    except OSError:
        return []  # not on Linux


def stamps_below(folder: str) -> "list[Any]":
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                found.append((entry.path, status.st_mtime_ns, status.st_size, status.st_ino))
            elif entry.is_dir() and entry.name != "__pycache__":
                found += stamps_below(entry.path)
    return sorted(found)


def stamp(path: str) -> tuple[str, int]:
    """Return the stamp of a folder that modules are imported from: an upgrade changes it."""
    try:
        return path, os.stat(path).st_mtime_ns
    except OSError:
        return path, 0


def at_start() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(AT_START)}


def places() -> dict[str, str]:
    """Return the variables that lead to the cache folder. Which folder that is does not matter:
    what is read from it is the same in all of them."""
    names = ("DRAY_HOME", "XDG_CACHE_HOME")
    return {name: os.environ[name] for name in names if name in os.environ}


def is_anyone_there() -> bool:
    """Whether any process is warm: most are alone, and need not find out who they are."""
    return any(name.endswith(ENDING) for name in os.listdir(socket_folder()))


def socket_path(us: "tuple[Any, ...]") -> str:
    return f"{socket_folder()}/{socket_name(us)}"


def socket_folder() -> str:
    """Return the folder of the connections' sockets (transport/sockets.py), which has to exist."""
    from dray.transport import sockets  # help and the version do without

    folder = sockets.folder()
    if not sockets.is_private(folder):
        raise PermissionError(folder)
    return folder


def socket_name(us: "tuple[Any, ...]") -> str:
    number = int.from_bytes(repr(us).encode(), "big") % (2**127 - 1)  # a hash without an import
    return f"{number:032x}{ENDING}"


def connect(us: "tuple[Any, ...]") -> _socket.socket:
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.settimeout(PATIENCE)
    link.connect(socket_path(us))
    return link


def umask() -> int:
    ours = os.umask(0o077)
    os.umask(ours)
    return ours


def is_taken(link: _socket.socket, request: bytes) -> bool:
    try:
        if link.recv(1) != READY:
            return False
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        passed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, folder))
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)]
        link.sendmsg([len(request).to_bytes(4, "big")], rights)
        os.close(folder)
        link.sendall(request)
        return link.recv(1) == TAKEN
    except OSError:
        return False


def is_begun(link: _socket.socket) -> bool:
    """Tell the other side to go ahead, and pass on Ctrl-C from then on; one that comes in between
    waits until it can be passed on."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGINT])
    try:
        link.sendall(GO)
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, lambda number, _: link.sendall(bytes([number])))
    except OSError:
        return False
    finally:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGINT])
    return True


def answer(link: _socket.socket) -> "int | None":
    link.settimeout(None)
    try:
        kind = link.recv(1)
        code = link.recv(1) if kind == DONE else b""
    except OSError:
        kind = code = b""
    if kind == BACK:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        return None
    if not code:
        # Whoever did it was killed in the middle: what would have happened to us happens now.
        os.kill(os.getpid(), _signal.SIGKILL)
    return code[0]


def start() -> None:
    """Start a process for the next command, unless one is ready; do not wait for it."""
    try:
        us = identity()
        path = socket_path(us)
    except OSError:
        return
    try:
        connect(us).close()
    except OSError:
        words = [sys.executable, "-P", "-m", "dray.cli.warm_server", path]
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1, 2)]
        os.posix_spawn(words[0], words, at_start() | places(), file_actions=actions, setsid=True)
        os.close(null)
