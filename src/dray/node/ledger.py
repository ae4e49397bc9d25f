"""What is written down when an attempt was lost and when a job has ended."""

import errno
import os
import time

from . import checkpoints, files, restoring, worktree
from .notes import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from .jobdir import AttemptDir, JobDir
    from .policy import Decision

    Record = Dict[str, Any]


FOR_A_MOMENT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)


def write_stubbornly(path: str, value: "Record", patience: float = 60.0) -> None:
    """An outcome must not be lost to a disk that is full for a moment."""
    until = time.monotonic() + patience
    while True:
        try:
            files.write_json(path, value)
            return
        except OSError as error:
            if error.errno not in FOR_A_MOMENT or time.monotonic() > until:
                raise
            time.sleep(1.0)


def record_lost(job_dir: "JobDir", job: "Record", number: int, reason: str) -> None:
    """An attempt ended without anybody there to see how."""
    attempt = job_dir.attempt(number)
    rules = job["resume"]
    restoring.put_back(job_dir.outputs, rules)
    newest = checkpoints.newest(job_dir.outputs, rules)
    files.remove(os.path.join(attempt.path, "reserve"))
    outcome = {
        "outcome": "lost",
        "reason": reason,
        "exit_code": None,
        "signal": None,
        "ended": time.time(),
        "progress": newest is not None and newest.mtime > start_of(attempt),
        "checkpoint": os.path.relpath(newest.path, job_dir.outputs) if newest else None,
        "left": clear_away(job_dir, attempt, job["outputs"]),
    }
    write_stubbornly(attempt.outcome, outcome)


def start_of(attempt: "AttemptDir") -> float:
    """By the clock of the file system, which checkpoints have their times from, too."""
    try:
        return os.stat(attempt.attempt).st_mtime
    except OSError:  # it was lost before its command started
        return time.time()


def clear_away(job_dir: "JobDir", attempt: "AttemptDir", outputs: "List[str]") -> "List[str]":
    try:
        return worktree.clear(job_dir, attempt, outputs)
    except OSError as error:  # the next attempt has a tree of its own
        note("the work tree could not be cleared: {}".format(error))
        return []


def record_own_failure(job_dir: "JobDir", number: int, error: BaseException) -> None:
    """A fault of dray's is told as one, and not tried again."""
    attempt = job_dir.attempt(number)
    if files.read_json(attempt.outcome) is None:
        reason = "dray itself failed: {!r} (see the logs in its directory)".format(error)
        outcome = {"outcome": "failed", "reason": reason, "hopeless": True}
        write_stubbornly(attempt.outcome, dict(outcome, ended=time.time()))


def end_job(job_dir: "JobDir", end: "Decision") -> None:
    record = {"state": end.state, "reason": end.reason, "time": time.time()}
    write_stubbornly(job_dir.end, record)
    files.remove(job_dir.secrets)
    files.remove(job_dir.stop)
