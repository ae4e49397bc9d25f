"""Processes: starting the command, finding everything that it started, and ending all of it."""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, Iterator, List, NoReturn, Optional, Set, Tuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ZOMBIE = b"Z"
ENDED = (ZOMBIE, b"X")


class CannotStart(Exception):
    """The command could not be started. Says why, and with which error of the system."""

    def __init__(self, message: str, errno: int = 0) -> None:
        Exception.__init__(self, message)
        self.errno = errno


class CannotContain(Exception):
    """The command's container cannot be started here. Says why, and whether it never could."""

    def __init__(self, message: str, permanent: bool = False) -> None:
        Exception.__init__(self, message)
        self.permanent = permanent


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, daemons included."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int) -> None:
    """Have the kernel send this signal once the process that has started this one is gone."""
    prctl(PR_SET_PDEATHSIG, number)


def prctl(option: int, value: int) -> None:
    """Ask the kernel for something that Python has no function for."""
    import ctypes  # takes longer than all that whoever only looks at a job does

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def to_bytes(text: str) -> bytes:
    """Encode an argument or file name as the caller wrote it, whatever this machine's locale is."""
    return text.encode("utf-8", "surrogateescape")


def start(
    argv: "List[str]",
    folder: str,
    env: "Dict[str, str]",
    log: int,
    stdin: "Optional[int]" = None,
    errors: "Optional[int]" = None,
    terminal: bool = False,
) -> int:
    """Start the command in its own session; its output goes straight into the log file. Return its
    pid. ``errors`` is where its stderr goes, if not there, too; with ``terminal``, its stdin is a
    terminal, and becomes its own."""
    reader, writer = os.pipe()
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        where = (stdin, log, log if errors is None else errors, terminal)
        _become(argv, folder, env, where, writer, supervisor)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        complaint = pipe.read()
    if complaint:
        os.waitpid(pid, 0)
        number, _, text = complaint.decode("utf-8", "replace").partition(" ")
        raise CannotStart(text, int(number))
    return pid


def _become(
    argv: "List[str]",
    folder: str,
    env: "Dict[str, str]",
    where: "Tuple[Optional[int], int, int, bool]",
    complaints: int,
    supervisor: int,
) -> "NoReturn":
    try:
        os.setsid()
        # The command must not outlive its supervisor: nobody would record what it did.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it died before the kernel could be asked
            os._exit(127)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; programs expect them
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        stdin, stdout, stderr, terminal = where
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        if terminal:
            take_terminal(0)
        os.chdir(to_bytes(folder))
        _exec([to_bytes(one) for one in argv], {to_bytes(k): to_bytes(env[k]) for k in env})
    except OSError as error:
        message = "{} {}: {}".format(error.errno or 0, argv[0], error.strerror)
        os.write(complaints, message.encode("utf-8", "replace"))
    except BaseException as error:
        os.write(complaints, "0 {!r}".format(error).encode("utf-8", "replace"))
    os._exit(127)


def take_terminal(fd: int) -> None:
    """Make this terminal the one that controls the session."""
    import fcntl  # only for a terminal
    import termios

    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def _exec(argv: "List[bytes]", env: "Dict[bytes, bytes]") -> None:
    """Replace this process like execvpe, but with the PATH of the command's environment."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, env)
    failure = FileNotFoundError(2, "command not found")  # type: OSError
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve(os.path.join(folder or b".", argv[0]), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            failure = error
    raise failure


def parents() -> "Dict[int, int]":
    """Map every process on this machine to its parent."""
    return {pid: parent for pid, parent, state in _processes() if state not in ENDED}


def _processes() -> "Iterator[Tuple[int, int, bytes]]":
    """Yield every process on this machine, with its parent and its state."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/stat".format(name), "rb") as file:
                    # The name in parentheses may hold anything, so count from its end.
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            yield int(name), int(parent), state


def descendants(ancestor: int, *apart: int) -> "List[int]":
    """Return all processes below ``ancestor``, parents before children; without those that are
    ``apart``, and all below them."""
    children = {}  # type: Dict[int, List[int]]
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = []  # type: List[int]
    todo = list(children.get(ancestor, []))
    while todo:
        pid = todo.pop(0)
        if pid in apart or is_keeper(pid):  # of a job that the command has submitted: not ours
            continue
        found.append(pid)
        todo.extend(children.get(pid, []))
    return found


def adopted(started: "Container[int]") -> "List[int]":
    """Return what this process has become the parent of without having ``started`` it, and all
    below that: those who did have ended. Not what sends a notice, which belongs to nobody."""
    own = [pid for pid, parent in parents().items() if parent == os.getpid()]
    apart = [pid for pid in own if pid in started or _leads_as(pid, b"member")]
    return descendants(os.getpid(), *apart)


def reap_adopted(started: "Container[int]") -> None:
    """Collect the children that have ended, without those that this process has ``started``."""
    for pid, parent, state in _processes():
        if parent == os.getpid() and state == ZOMBIE and pid not in started:
            os.waitpid(pid, os.WNOHANG)


def is_keeper(pid: int) -> bool:
    # A keeper leads a session of its own; what it forks (supervisors) does not.
    return _leads_as(pid, b"keep")


def _leads_as(pid: int, word: bytes) -> bool:
    """Return whether it is a process of dray's, of this kind, that leads a session of its own."""
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            argv = file.read().split(b"\0")
    except OSError:
        return False
    return word in argv and any(b"/dray-node-" in one for one in argv) and _leads(pid)


def _leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def catches(pid: int, number: int) -> bool:
    """Return whether the process handles the signal, or blocks it to wait for it, as srun does to
    pass it on."""
    try:
        with open("/proc/{}/status".format(pid), "rb") as file:
            masks = [line.split()[1] for line in file if line.startswith((b"SigCgt:", b"SigBlk:"))]
    except OSError:
        return False
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def inside(ancestor: int, number: int, mark: str, apart: int = 0) -> "List[int]":
    """Return the descendants that run in a container, without the runtime's own processes around
    them.

    These are the process with this ``number`` inside the container, those that have the variable
    ``mark``, and all below them. A program can overwrite its variables, and a daemon can leave its
    parents: one sign is enough.
    """
    below = descendants(ancestor, apart)
    first = next((pid for pid in below if number and _innermost_number(pid) == number), 0)
    parent_of = parents()
    found = []  # type: List[int]
    for pid in below:
        if pid == first or parent_of.get(pid) in found or _has_variable(pid, mark.encode()):
            found.append(pid)
    return found


def _innermost_number(pid: int) -> int:
    try:
        with open("/proc/{}/status".format(pid), "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return int(line.split()[-1])
    except OSError:
        pass
    return 0


def _has_variable(pid: int, name: bytes) -> bool:
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            return b"\0" + name + b"=" in b"\0" + file.read()
    except OSError:
        return False


def topmost_catchers(below: "List[int]", number: int) -> "List[int]":
    """Return the processes that handle the signal, without those below another that does.

    A shell around the trainer, or a data-loading worker below it, would only die of the signal; the
    trainer in between has a handler and is the one meant.
    """
    parent_of = parents()
    catching = {pid for pid in below if catches(pid, number)}  # type: Set[int]
    return [pid for pid in below if pid in catching and not _has_above(pid, catching, parent_of)]


def _has_above(pid: int, pids: "Set[int]", parent_of: "Dict[int, int]") -> bool:
    seen = set()  # type: Set[int]
    while pid in parent_of and pid not in seen:
        seen.add(pid)
        pid = parent_of[pid]
        if pid in pids:
            return True
    return False


def send(pids: "List[int]", number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:  # a set-uid program: not ours to end
            pass


def reap() -> "List[Tuple[int, int]]":
    """Collect every child that has ended: (pid, wait status)."""
    ended = []  # type: List[Tuple[int, int]]
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def memory_of(pids: "List[int]") -> int:
    """Return the resident bytes of these processes together, without what is shared through
    files."""
    pages = 0
    for pid in pids:
        try:
            with open("/proc/{}/statm".format(pid), "rb") as file:
                numbers = file.read().split()
        except OSError:
            continue
        pages += int(numbers[1]) - int(numbers[2])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_below(pid: int) -> float:
    """Return the CPU time, in seconds, that the processes below this one have used."""
    return sum(cpu_of(one) for one in descendants(pid))


def cpu_of(pid: int) -> float:
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):  # it has ended
        return 0.0


def marked_with(job_id: str) -> "List[int]":
    """Return this user's processes whose environment names the job: what a lost supervisor left."""
    mark = b"\0DRAY_JOB_ID=" + job_id.encode() + b"\0"
    found = []
    for pid in parents():
        try:
            with open("/proc/{}/environ".format(pid), "rb") as file:
                environ = b"\0" + file.read() + b"\0"
        except OSError:
            continue
        if mark in environ and pid != os.getpid():
            found.append(pid)
    return found


def read_status(status: int) -> "Tuple[Optional[int], Optional[str]]":
    """Decode a wait status: the exit code, or the name of the signal that ended the process."""
    if os.WIFSIGNALED(status):
        return None, signal_name(os.WTERMSIG(status))
    return os.WEXITSTATUS(status), None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def describe_end(code: "Optional[int]", signal_name: "Optional[str]") -> str:
    """Say how a process ended; "" if it ended well."""
    if signal_name:
        return "killed by {}".format(signal_name)
    return "exit code {}".format(code) if code else ""
