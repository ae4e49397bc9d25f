"""The work tree of an attempt: unpacked before the command starts, removed after it ends.

Declared outputs are links from the work tree into the job's outputs folder, so what is written
there is safe at once. Anything else that the command wrote is kept beside the attempt's log
(``left/``) instead of being thrown away with the tree.
"""

import os
import shutil
import stat
import sys
import time

from ..formats import files, leases, shapes
from ..formats.messages import print_message
from ..jobs import trouble
from ..jobs.jobdir import JobDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from ..formats.records import Description, Record
    from ..jobs.jobdir import AttemptDir

MARK = ".dray-unpacked"
IMPORTS = ".dray-imports"  # what the command's Pythons say they import: see dray.startup
LARGEST_EDITS = 64 << 20  # bytes of the record of them
MOST_IMPORTS = 16 * 1024  # bytes of it that are read
PREFIX = "dray-work-"  # of trees on a node's own disk
OURS = (PREFIX, "work.box-")  # what else begins otherwise is not ours
SANDBOX = ".box-"  # in the names of the folders beside them that containers need
HELD = "held"  # in such a folder: locked as long as its attempt lives
# Exit codes of the child that unpacks: the snapshot is damaged, it cannot be unpacked here, or the
# node has trouble.
DAMAGED = 1
NOT_HERE = 2
TROUBLE = 3


# An output of such a name is a file; any other is a folder.
FILE_ENDINGS = [
    ".bin",
    ".ckpt",
    ".csv",
    ".db",
    ".gif",
    ".gz",
    ".h5",
    ".hdf5",
    ".html",
    ".jit",
    ".json",
    ".jsonl",
    ".log",
    ".mp4",
    ".msgpack",
    ".npy",
    ".npz",
    ".onnx",
    ".parquet",
    ".pdf",
    ".pickle",
    ".pkl",
    ".png",
    ".pt",
    ".pth",
    ".safetensors",
    ".svg",
    ".tar",
    ".toml",
    ".txt",
    ".usd",
    ".xml",
    ".yaml",
    ".yml",
    ".zip",
]


class CannotPrepare(Exception):
    """The work tree could not be made. Says why, whether it never could, and whether that is the
    node's fault."""

    def __init__(self, message: str, permanent: bool, of_node: bool = False) -> None:
        Exception.__init__(self, message)
        self.permanent = permanent
        self.of_node = of_node


def place_of(job: "JobDir", number: int, host: str = "") -> str:
    """Choose the folder of the work tree: on the node's own disk if it has a usable one.

    Others may write to that disk, too, so the folder is created at once, private, under a name that
    nobody can have taken. ``host`` is given if there are several nodes: nothing says that the disk
    is not shared.
    """
    for variable in ("SLURM_TMPDIR", "PBS_JOBFS", "TMPDIR"):
        folder = os.environ.get(variable, "")
        if not folder:
            continue
        sweep(folder, job.root)
        parts = [PREFIX + job.id, str(number), host, os.urandom(6).hex()]
        path = os.path.join(folder, "-".join(part for part in parts if part))
        try:
            os.mkdir(path, files.PRIVATE_FOLDER)
            return path
        except OSError as error:
            print_message("{} cannot be used for the work tree: {}".format(folder, error.strerror))
    if not host:
        return job.work
    sweep(job.path, job.root)
    return os.path.join(job.path, PREFIX + host)


def prepare(job: "JobDir", number: int, description: "Description") -> None:
    _make_empty(job.work)
    files.make_folder(job.outputs)
    if description["snapshot"]:
        _unpack_in_child(job.root, description["snapshot"], job.work)
    for path in description["outputs"]:
        link_output(job, path)
    for name, target in (description.get("links") or {}).items():
        link_to_node(os.path.join(job.work, description["folder"], name), target)
    _mark(job, number)


def _make_empty(path: str) -> None:
    if is_own_folder(path) and not os.listdir(path):
        return
    files.remove_tree(path)
    if os.path.lexists(path):  # another user's, for instance: move it out of the way
        os.rename(path, "{}.old-{}".format(path, os.urandom(3).hex()))
    files.make_folder(path)


def is_own_folder(path: str) -> bool:
    """Return whether this is a folder of this user's, and not a link to one."""
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


def _unpack_in_child(root: str, snapshot: str, target: str) -> None:
    """Unpack in a child process, so that its memory is free again before the command runs."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = DAMAGED
        try:
            os.close(reader)
            from .packs import Packs  # loads OpenSSL: not in the supervisor itself

            Packs(root).unpack(snapshot, target)
            status = 0
        except BaseException as error:
            status = NOT_HERE if isinstance(error, OSError) else DAMAGED
            status = TROUBLE if trouble.is_of_node(error) else status
            text = str(error) or repr(error)
            os.write(writer, text.encode("utf-8", "replace")[:4000])
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        complaint = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if status != 0:
        # Killed by a signal: there was no memory left for it.
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else TROUBLE
        complaint = complaint or "unpacking ended with wait status {}".format(status)
        raise CannotPrepare(complaint, code == DAMAGED, code == TROUBLE)


def link_output(job: "JobDir", path: str) -> None:
    """Link a declared output into the work tree. A name with a usual file ending is taken for a
    file, any other for a folder."""
    target = os.path.join(job.outputs, path)
    link = os.path.join(job.work, path)
    make_parents(job.outputs, path)
    if os.path.splitext(path)[1].lower() not in FILE_ENDINGS:
        files.make_folder(target)
    make_parents(job.work, path)
    if os.path.isdir(link) and not os.path.islink(link):
        files.remove_tree(link)
    elif os.path.lexists(link):
        os.unlink(link)
    os.symlink(target, link)


def link_to_node(link: str, target: str) -> None:
    """Link to something on the node, unless the code has a file of that name."""
    if not os.path.lexists(link):
        files.make_folder(os.path.dirname(link), durable=False)
        os.symlink(os.path.expanduser(os.path.expandvars(target)), link)


def make_parents(top: str, path: str) -> None:
    """Create the folders above this path below ``top``. A link among them, which came with the code
    or was made by the command, is replaced by a folder: it may lead anywhere."""
    folder = top
    for part in path.split("/")[:-1]:
        folder = os.path.join(folder, part)
        if os.path.islink(folder) or not os.path.isdir(folder):
            if os.path.lexists(folder):
                os.unlink(folder)
            os.mkdir(folder)


def passes_link(top: str, path: str) -> bool:
    """Return whether a link lies on the way to this path, so that it may lead out of ``top``."""
    folder = top
    for part in path.split("/")[:-1]:
        folder = os.path.join(folder, part)
        if os.path.islink(folder):
            return True
    return False


def _mark(job: "JobDir", number: int) -> None:
    """Write the mark: older files are the snapshot's, newer ones the command's. It also says whose
    tree this is."""
    path = os.path.join(job.work, MARK)
    files.write_json(path, [job.path, number], durable=False)
    files.lock_if_possible(os.open(path, os.O_RDWR))  # held as long as this process lives
    time.sleep(0.01)  # longer than the tick of the file system's clock


def sweep(scratch: str, root: str) -> None:
    """Remove this user's trees that killed attempts have left on this node's own disk. Others may
    write there, too, and so may any job: only what jobs of this root have left is touched."""
    if leases.are_needed(scratch):  # a lock that is free here may be held on another node
        return
    try:
        names = os.listdir(scratch)
    except OSError as error:
        print_message(
            "{} cannot be searched for old work trees: {}".format(scratch, error.strerror)
        )
        return
    for name in names:
        path = os.path.join(scratch, name)
        try:
            if not name.startswith(OURS) or not is_own_folder(path):
                continue
            if SANDBOX in name:
                _sweep_sandbox(path)
            elif name.startswith(PREFIX):
                _sweep_one(path, root)
        except OSError:  # another attempt is sweeping too, or we cannot remove it
            pass


def _sweep_one(path: str, root: str) -> None:
    fd = _open_mark(os.path.join(path, MARK))
    if fd is None:  # killed while it was unpacked, or being unpacked right now
        if _is_old(path):
            files.remove_tree(path)
        return
    try:
        if not files.try_lock(fd):
            return  # its supervisor is alive
        job, number = _owner(os.path.join(path, MARK))
        description = job.description() if _is_attempt(job, number, root) else None
        if description is not None:  # what it wrote is kept, as at the end of any other attempt
            job.work = path
            clear(job, job.attempt(number), description["outputs"])
        elif not os.path.lexists(job.path) and (is_below(job, root) or _is_old(path)):
            files.remove_tree(path)
    finally:
        os.close(fd)


def _open_mark(path: str) -> "Optional[int]":
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _owner(mark: str) -> "Tuple[JobDir, int]":
    """Return the job and the attempt that a mark names; no job if it names none. Any job can have
    written it."""
    value = files.read_json(mark)
    path, number = value if isinstance(value, list) and len(value) == 2 else ("", 0)
    is_sane = shapes.is_text(path) and shapes.is_count(number)
    return (JobDir(path), number) if is_sane else (JobDir(""), 0)


def is_below(job: "JobDir", root: str) -> bool:
    """Return whether this is a job of this root, by its name alone."""
    jobs = os.path.realpath(os.path.join(root, "jobs"))
    return shapes.is_id(job.id) and os.path.realpath(os.path.dirname(job.path)) == jobs


def _is_attempt(job: "JobDir", number: int, root: str) -> bool:
    return is_below(job, root) and is_own_folder(job.path) and number in job.numbers()


def _is_old(path: str) -> bool:
    return time.time() - os.lstat(path).st_mtime > 86400


def _sweep_sandbox(path: str) -> None:
    """Nothing in it is to be kept."""
    fd = _open_mark(os.path.join(path, HELD))
    if fd is None:
        return
    try:
        if files.try_lock(fd):
            files.remove_tree(path)
    finally:
        os.close(fd)


def clear(job: "JobDir", attempt: "AttemptDir", outputs: "List[str]") -> "List[str]":
    """Remove the work tree. Return the paths of the files that are kept in ``left/``."""
    if not os.path.isdir(job.work):
        return []
    rescue_outputs(job, attempt.number, outputs, folders=True)
    try:
        boundary = os.lstat(os.path.join(job.work, MARK)).st_ctime_ns
    except OSError:  # killed before the command could start
        boundary = sys.maxsize
    files.discard(os.path.join(job.work, IMPORTS))
    left = _prune(job.work, boundary, _edits(attempt))
    if left:
        shutil.move(job.work, attempt.left)  # the work tree may be on another disk
    else:
        files.remove_tree(job.work)
    return left


def reported_imports(job: "JobDir") -> "List[str]":
    """Return the lines in which the command's Pythons report what they import, each once. Any job
    can write anything there."""
    try:
        with files.open_regular(os.path.join(job.work, IMPORTS)) as file:
            text = file.read(MOST_IMPORTS).decode("utf-8", "replace")
    except OSError:
        return []
    return list(dict.fromkeys(line for line in text.split("\n")[:-1] if line.isprintable()))


def rescue_outputs(job: "JobDir", number: int, outputs: "List[str]", folders: bool) -> None:
    """Move outputs that have replaced our links to the outputs folder, and restore the links: a
    program that saves by temp file and rename puts a file where the link was.

    ``folders``: move folders as well, which is done only once the command has ended.
    """
    for path in outputs:
        link = os.path.join(job.work, path)
        if os.path.islink(link) or not os.path.lexists(link):
            continue
        if passes_link(job.work, path) or passes_link(job.outputs, path):
            continue  # the command has put a link on the path: what it leads to is not its own
        is_folder = os.path.isdir(link)
        if is_folder and not folders:
            continue
        target = os.path.join(job.outputs, path)
        if is_folder and os.path.isdir(target) and not os.listdir(target):
            os.rmdir(target)
        elif os.path.isdir(link) and os.path.lexists(target):
            target = "{}.attempt-{}".format(target, number)
        shutil.move(link, target)
        os.symlink(target, link)


def _edits(attempt: "AttemptDir") -> "Record":
    """Return what was put into the tree of a session from outside: the laptop has it."""
    return files.read_record(attempt.edits, LARGEST_EDITS) or {}


def _prune(top: str, boundary: int, edits: "Record") -> "List[str]":
    """Delete what the command did not write. Return what it did write, relative to ``top``."""
    left = []
    for folder, folders, names in os.walk(top, topdown=False):
        for name in names + [one for one in folders if os.path.islink(os.path.join(folder, one))]:
            path = os.path.join(folder, name)
            if _is_new(path, boundary) and not _is_as_put(
                path, edits.get(os.path.relpath(path, top))
            ):
                left.append(os.path.relpath(path, top))
            else:
                files.force_unlink(path)
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return sorted(left)


def _is_as_put(path: str, put: "Optional[str]") -> bool:
    """Return whether a file is as an edit has put it there; ``put`` is the edit's kind and hash."""
    if not isinstance(put, str):
        return False
    from .packs import hash_of  # loads OpenSSL: only for sessions

    try:
        with files.open_regular(path) as file:
            return put[1:] == " " + hash_of(file.read())
    except OSError:
        return False


def _is_new(path: str, boundary: int) -> bool:
    if os.path.islink(path) or os.path.basename(os.path.dirname(path)) == "__pycache__":
        return False
    return os.lstat(path).st_ctime_ns > boundary
