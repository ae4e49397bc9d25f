"""Writes the records of attempts that were lost and of jobs that have ended."""

import os
import time

from ..checkpoints import given, restoring, resuming
from ..checkpoints import newest as checkpoints
from ..code import worktree
from ..formats import files
from ..formats.messages import print_message
from ..jobs import trouble
from ..processes import cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Union  # noqa: F401

    from ..checkpoints.newest import Checkpoint
    from ..formats.records import Description, End, Outcome
    from ..jobs.jobdir import AttemptDir, JobDir
    from ..jobs.policy import Decision


def write_with_retries(
    path: str, value: "Union[End, Outcome]", patience: float = trouble.PATIENCE
) -> None:
    """Write an outcome, retrying for a while: it must not be lost to a disk that is full for a
    moment."""
    trouble.with_retries(lambda: files.write_json(path, value), patience)


def write_to_log(attempt: "AttemptDir", lines: "List[str]") -> None:
    """Append lines of dray's own to the attempt's log."""
    text = "".join("[dray] {}\n".format(one) for one in lines)
    try:
        if text:
            files.append(attempt.log, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        print_message("the log could not be written: {}".format(error))


def begin_attempt(job_dir: "JobDir", number: int) -> "AttemptDir":
    """Make the attempt's directory, retrying for a while: without it, nothing could be recorded."""
    attempt = job_dir.attempt(number)
    trouble.with_retries(lambda: files.make_folder(attempt.path))
    return attempt


def record_lost(job_dir: "JobDir", job: "Description", number: int, reason: str) -> None:
    """Record that an attempt ended without anybody there to see how."""
    attempt = job_dir.attempt(number)
    job = given.known(job_dir, job)
    rules = job["resume"]
    newest, remarks, progress = None, [], False  # type: Optional[Checkpoint], List[str], bool
    try:
        remarks = restoring.put_back(job_dir.outputs, rules)
        newest = checkpoints.newest(job_dir.outputs, rules)
        progress = newest is not None and has_got_further(job_dir, job, attempt, newest)
    except OSError as error:
        print_message("checkpoints could not be looked at: {}".format(error))
    files.discard(os.path.join(attempt.path, "reserve"))
    memory = out_of_memory(attempt)
    outcome = {
        "outcome": "failed" if memory else "lost",
        "reason": memory or reason,
        "exit_code": None,
        "signal": None,
        "ended": time.time(),
        "progress": progress,
        "remarks": (attempt.record().get("remarks") or []) + remarks,
        "checkpoint": os.path.relpath(newest.path, job_dir.outputs) if newest else None,
        "left": clear_away(job_dir, attempt, job["outputs"]),
    }  # type: Outcome
    write_with_retries(attempt.outcome, outcome)


def out_of_memory(attempt: "AttemptDir") -> str:
    """Say so where a lost attempt had used nearly all memory of its container at its last sign of
    life: the kernel then kills all that is in it, and nobody is left to see it."""
    used, limit = attempt.record().get("memory") or (0, 0)
    if not limit or used < limit * cgroup.NEAR:
        return ""
    last = cgroup.in_words(used, limit)
    return "out of memory, as it seems: {} at its last sign of life".format(last)


def has_got_further(
    job_dir: "JobDir", job: "Description", attempt: "AttemptDir", newest: "Checkpoint"
) -> bool:
    """Return whether the attempt got further than the checkpoint that it began from."""
    if newest.mtime <= start_of(attempt):
        return False
    first = attempt.record().get("from_checkpoint")
    if first is None:
        return True
    outputs, attempts = job_dir.outputs, job_dir.records()
    begin = os.path.join(outputs, first)
    if first == (job.get("origin") or {}).get("told"):
        begin = job["resume"]["given"]["path"]
    paths = (newest.path, begin)
    at, first_at = (
        resuming.progress(job["resume"], job["command"], path, outputs, attempts) for path in paths
    )
    return resuming.is_ahead(job["resume"], paths[0], at, paths[1], first_at)


def start_of(attempt: "AttemptDir") -> float:
    """Return when the attempt started, by the clock of the file system, which checkpoints have
    their times from, too."""
    try:
        return os.stat(attempt.attempt).st_mtime
    except OSError:  # it was lost before its command started
        return time.time()


def clear_away(job_dir: "JobDir", attempt: "AttemptDir", outputs: "List[str]") -> "List[str]":
    try:
        return worktree.clear(job_dir, attempt, outputs)
    except OSError as error:  # the next attempt has a tree of its own
        print_message("the work tree could not be cleared: {}".format(error))
        return []


def record_own_failure(job_dir: "JobDir", number: int, error: BaseException) -> None:
    """Record an internal error as a final failure, or trouble of the node as an interruption. An
    existing outcome is kept."""
    attempt = job_dir.attempt(number)
    if attempt.ended() is not None:
        return
    outcome = {
        "outcome": "failed",
        "reason": "dray itself failed: {!r} (see the logs in its directory)".format(error),
        "exit_code": None,
        "signal": None,
        "hopeless": True,
    }  # type: Outcome
    if trouble.is_of_node(error):
        outcome = trouble.interruption("its node had trouble: {}".format(error or "no memory left"))
    outcome["ended"] = time.time()
    write_with_retries(attempt.outcome, outcome)


def end_job(job_dir: "JobDir", end: "Decision", patience: float = trouble.PATIENCE) -> None:
    assert end.state is not None
    record = {"state": end.state, "reason": end.reason, "time": time.time()}  # type: End
    write_with_retries(job_dir.end, record, patience)
    files.discard(job_dir.secrets)
    files.discard(job_dir.stop)
