"""The lock that is held while a job is handed to a scheduler."""

import os

from ..formats import files
from ..jobs import staging
from .root import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

    from ..jobs.jobdir import JobDir


class Submission(files.Lock):
    """Held while a job is handed to the scheduler, by its command too: if we are killed, a retry
    waits for that, and finds the job instead of submitting it again."""

    outlived = True

    def __init__(self, job_dir: "JobDir") -> None:
        files.make_folder(os.path.join(job_dir.root, "jobs"))
        files.make_folder(os.path.dirname(job_dir.path))
        files.Lock.__init__(self, submission_lock(job_dir))

    def __exit__(self, *details: object) -> None:
        files.discard(self.path)
        files.Lock.__exit__(self, *details)


def submission_lock(job_dir: "JobDir") -> str:
    return os.path.join(os.path.dirname(job_dir.path), staging.LOCK + job_dir.id)


def being_submitted(job_dir: "JobDir") -> bool:
    return files.is_locked(submission_lock(job_dir))


def under_way(root: str) -> "List[str]":
    """List the jobs and arrays that are being handed to the scheduler right now."""
    folders = [os.path.join(root, kind) for kind in KINDS]
    locks = [
        (folder, name)
        for folder in folders
        for name in files.all_names_in(folder)
        if name.startswith(staging.LOCK)
    ]
    return [
        name[len(staging.LOCK) :]
        for folder, name in locks
        if files.is_locked(os.path.join(folder, name))
    ]


def drop_secrets(job_dir: "JobDir", may_be_queued: "Callable[[], bool]") -> None:
    """Remove the secrets of a job that needs them no more: it has written its end down, or no queue
    has it. Under the submission's lock: a resume may be about to bring them anew, and removes the
    end."""
    if not files.exists(job_dir.secrets):
        return
    lock = Submission(job_dir)
    if not lock.take(wait=False):
        return
    try:
        if job_dir.ended() or not may_be_queued():
            files.discard(job_dir.secrets)
    finally:
        lock.__exit__()
