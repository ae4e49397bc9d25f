"""The work tree of an attempt: unpacked before the command, cleared away after it.

Declared outputs are links from the work tree into the job's outputs folder, so what is written
there is safe at once. Anything else that the command wrote is kept beside the attempt's log
(``left/``) instead of being thrown away with the tree.
"""

import os
import shutil
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from .jobdir import AttemptDir, JobDir

MARK = ".dray-unpacked"


class CannotPrepare(Exception):
    """The work tree could not be made; says why."""


def prepare(job: "JobDir", snapshot: "Optional[str]", outputs: "List[str]") -> None:
    shutil.rmtree(job.work, ignore_errors=True)
    os.makedirs(job.work, mode=0o700)
    os.makedirs(job.outputs, mode=0o700, exist_ok=True)
    if snapshot:
        _unpack_in_child(job.root, snapshot, job.work)
    for path in outputs:
        link_output(job, path)
    _mark(job.work)


def _unpack_in_child(root: str, snapshot: str, target: str) -> None:
    """In a child, so that the memory this takes is gone before the command runs."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            from .packs import Packs  # loads OpenSSL: not in the supervisor itself

            Packs(root).unpack(snapshot, target)
            status = 0
        except BaseException as error:
            os.write(writer, str(error).encode("utf-8", "replace")[:4000])
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        complaint = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise CannotPrepare(complaint or "unpacking ended with wait status {}".format(status))


def link_output(job: "JobDir", path: str) -> None:
    """A name with an ending is taken for a file, any other for a folder."""
    target = os.path.join(job.outputs, path)
    link = os.path.join(job.work, path)
    if os.path.splitext(path)[1]:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    else:
        os.makedirs(target, exist_ok=True)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    if os.path.isdir(link) and not os.path.islink(link):
        shutil.rmtree(link)
    elif os.path.lexists(link):
        os.unlink(link)
    os.symlink(target, link)


def _mark(work: str) -> None:
    """Files older than the mark are the snapshot's, files newer than it the command's."""
    with open(os.path.join(work, MARK), "w"):
        pass
    time.sleep(0.01)  # longer than the tick of the file system's clock


def clear(job: "JobDir", attempt: "AttemptDir", outputs: "List[str]") -> "List[str]":
    """Remove the work tree; return the paths of files that are kept in ``left/``."""
    if not os.path.isdir(job.work):
        return []
    for path in outputs:
        _rescue_output(job, attempt, path)
    try:
        boundary = os.lstat(os.path.join(job.work, MARK)).st_ctime_ns
    except OSError:  # killed before the command could start
        boundary = sys.maxsize
    left = _prune(job.work, boundary)
    if left:
        shutil.move(job.work, attempt.left)  # the work tree may be on another disk
    else:
        shutil.rmtree(job.work, ignore_errors=True)
    return left


def _rescue_output(job: "JobDir", attempt: "AttemptDir", path: str) -> None:
    """A program that saves by temp file and rename puts a file where our link was."""
    link = os.path.join(job.work, path)
    target = os.path.join(job.outputs, path)
    if os.path.islink(link) or not os.path.lexists(link):
        return
    if os.path.isdir(link) and os.path.isdir(target) and not os.listdir(target):
        os.rmdir(target)
    elif os.path.isdir(link) and os.path.lexists(target):
        target = "{}.attempt-{}".format(target, attempt.number)
    shutil.move(link, target)


def _prune(top: str, boundary: int) -> "List[str]":
    """Delete what the command did not write; return what it did write, relative to ``top``."""
    left = []
    for folder, folders, names in os.walk(top, topdown=False):
        for name in names + [one for one in folders if os.path.islink(os.path.join(folder, one))]:
            path = os.path.join(folder, name)
            if _is_new(path, boundary):
                left.append(os.path.relpath(path, top))
            else:
                os.unlink(path)
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return sorted(left)


def _is_new(path: str, boundary: int) -> bool:
    if os.path.islink(path) or os.path.basename(os.path.dirname(path)) == "__pycache__":
        return False
    return os.lstat(path).st_ctime_ns > boundary
