"""A pod of a job on several nodes that does not lead: it offers itself to the leader as a node, for
one attempt after another, until the job or the pod ends or it comes to lead itself."""

import os
import signal
import time
from functools import partial

from ..formats import files, locales
from ..formats.interpreters import own_words
from ..jobs.jobdir import described
from ..processes import process
from ..schedulers.gathered import CODES, INTERRUPTED, OWN_FAULT
from . import gather, meeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Callable, Optional

    from ..formats.records import Description, Part, Record
    from ..jobs.jobdir import JobDir
    from .attempt_lock import AttemptLock

LOOK = 1.0  # seconds between two looks for a leader, or the end
LAST_WORDS = 15.0  # seconds for the leader of a job that is being stopped to write down its end


def end_code(job_dir: "JobDir") -> "Optional[int]":
    """Return the pod's exit code if the job has ended. All pods have the same one: whichever ends
    first, the Job ends as the job did."""
    end = job_dir.ended()
    return None if end is None else CODES.get(end["state"], OWN_FAULT)


def end_all_below() -> None:
    """Kill what an attempt has left, so that the next one finds the pod as the first one did."""
    for _ in range(1000):
        process.reap()
        left = process.descendants(os.getpid())
        if not left:
            return
        process.send(left, signal.SIGKILL)
        time.sleep(0.02)


class Follower:
    """``is_over``: whether the pod was told to end."""

    def __init__(
        self,
        job_dir: "JobDir",
        job: "Description",
        host: str,
        lock: "AttemptLock",
        is_over: "Callable[[], bool]",
    ) -> None:
        self.job_dir = job_dir
        self.job = job
        self.host = host
        self.lock = lock
        self.is_over = is_over
        self.leads = False

    def run(self) -> "Optional[int]":
        """Return the pod's exit code; None once it has the lock, and is to lead."""
        while not self._is_done():
            leader = files.read_record(self.job_dir.leader) or {}
            found = None
            if leader.get("resumed_after") == self.job["resumed_after"]:
                found = meeting.join(leader, self.host, partial(self._is_vain, leader))
            if found is None:
                time.sleep(LOOK)
            else:
                self._serve(*found)
        if self.leads:
            return None
        return self._leave()

    def _is_done(self) -> bool:
        """Return whether there is nothing more to follow. Somebody who was told to end takes no
        lock, and so does nobody whose job was resumed: that one has pods of its own."""
        if self.is_over() or self.job_dir.ended() is not None or self._is_of_the_past():
            return True
        self.leads = self.leads or self.lock.take_if_free()
        return self.leads

    def _is_vain(self, leader: "Record") -> bool:
        """Return whether waiting for this leader leads to nothing: another one may have written
        where it is, and somebody else may listen at the address of the first."""
        return self._is_done() or files.read_record(self.job_dir.leader) != leader

    def _is_of_the_past(self) -> bool:
        return bool(described(self.job_dir)["resumed_after"] != self.job["resumed_after"])

    def _serve(self, connection: "socket.socket", part: "Part") -> None:
        """Be a node of one attempt. When the pod is told to end meanwhile, the leader is told: it
        has the trainer save, and ends the attempt."""
        env = locales.original_environment()
        with connection:
            fd = connection.fileno()
            words = gather.launcher(part) + own_words("rank", self.job_dir.path)
            pid = process.start(words, self.job_dir.path, env, fd, fd)
        told = False
        while pid not in [one for one, _ in process.reap()]:
            if self.is_over() and not told:
                told = True
                process.send([pid], signal.SIGUSR1)
            signal.sigtimedwait((signal.SIGCHLD,), LOOK / 2)
        end_all_below()

    def _leave(self) -> int:
        until = time.monotonic() + LAST_WORDS
        code = end_code(self.job_dir)
        while code is None and self.job_dir.stop_request() and time.monotonic() < until:
            time.sleep(0.2)
            code = end_code(self.job_dir)
        return INTERRUPTED if code is None else code
