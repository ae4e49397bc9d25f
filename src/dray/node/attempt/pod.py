"""What a pod runs as its first process: attempts, one after another, until the job or the pod ends.

A pod that keeps its GPUs and its image loses nothing between two attempts: time limits and crashes
are followed by the next attempt right here. Only a pod that is taken away leaves that to another
one, which the Job controller starts: exit codes tell it whether to.

Of a job on several nodes, the pod that gets the job's lock does this, and the others follow it.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback

from ..code import worktree
from ..formats import files, locales
from ..formats.messages import print_message
from ..jobs import budget, trouble
from ..jobs.arrays import ArrayDir, is_array
from ..jobs.jobdir import JobDir, described, too_late
from ..processes import layout
from ..schedulers.gathered import CODES, INTERRUPTED, OWN_FAULT, Gathered
from ..schedulers.kubernetes import Kubernetes
from . import gather
from .allotment import Allotment
from .attempt_lock import AttemptLock
from .command import HANDLED_SIGNALS
from .follower import Follower, end_all_below, end_code
from .loop import ELSEWHERE, HERE, OTHERS_LOOK, AttemptLoop, Site, supervise
from .meeting import Meeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ContextManager, Dict, Optional  # noqa: F401

    from ..formats.records import Description
    from ..jobs import policy
    from ..jobs.following import Following
    from ..jobs.jobdir import AttemptDir

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MESSAGE = "/dev/termination-log"
LONGEST_MESSAGE = 2000  # characters; the kubelet takes 4096 bytes
DIRECTORY_PATIENCE = 120.0  # for a job's directory: its Job may be created while it is being sent
LOCK_PATIENCE = 600.0  # a node that is gone may hold its locks until a file server forgets it
COPY = 1 << 16  # bytes of the log that are copied at once
LOOK = 1.0  # seconds between two looks for more of it


def run(path: str) -> int:
    """Return the pod's exit code. ``path`` is a job's directory, or an array's. What another pod
    would run into as well fails the Job: pods follow each other without a pause."""
    # At once: as the first process of its pod, it would not hear of a signal that comes earlier.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    os.umask(0o077)
    job_dir, batch = JobDir(path), Kubernetes()
    try:
        if not await_directory(job_dir):
            return INTERRUPTED
        job = trouble.with_retries(lambda: described(job_dir))
        if is_array(job):
            array, index = ArrayDir(job_dir.root, job_dir.id), batch.own_index()
            job_dir = trouble.with_retries(lambda: array.make_job(index))
            job = described(job_dir)
        return Pod(job_dir, job, batch).run()
    except SystemExit as error:  # its description is not there, or damaged
        print_message(str(error))
        return OWN_FAULT
    except Exception as error:
        if trouble.is_of_node(error):
            print_message("its node could not go on: {}".format(error))
            return INTERRUPTED
        print_message(traceback.format_exc())
        return OWN_FAULT


def await_directory(job_dir: JobDir) -> bool:
    """Wait for the job's directory, which appears whole; return False where the pod is told to end
    meanwhile. Without one, the submission was broken off: nothing will ever come."""
    until = time.monotonic() + DIRECTORY_PATIENCE
    while not trouble.with_retries(lambda: files.exists(job_dir.job)):
        if time.monotonic() > until:
            raise SystemExit("the job's directory has not come: {}".format(job_dir.path))
        if signal.sigtimedwait(ENDING, LOOK) is not None:
            return False
    return True


class Pod(Site):
    name = "Kubernetes"
    may_come = True  # its Job may bring it along
    lost = "ended by Kubernetes or with its node"

    def __init__(self, job_dir: JobDir, job: "Description", batch: Gathered) -> None:
        self.job_dir = job_dir
        self.job = job
        self.scheduler = batch
        self.is_ending = False
        self.meter = batch.meter()
        self.loop = AttemptLoop(job_dir, job, self)
        self.meeting = None  # type: Optional[Meeting]
        job_dir.secrets = batch.secrets_of(job_dir)

    def run(self) -> int:
        code = end_code(self.job_dir)
        if code is not None:  # the pod before this one was lost after it had written that down
            return code
        lock = trouble.with_retries(lambda: AttemptLock(self.job_dir))
        if layout.nodes_of(self.job) > 1:
            host = self.scheduler.own_number()
            code = Follower(self.job_dir, self.job, host, lock, self.is_over).run()
            return self._lead(lock) if code is None else code
        if not lock.take_unless(self.is_over, LOCK_PATIENCE):
            return INTERRUPTED
        return self._lead(lock)

    def _lead(self, lock: AttemptLock) -> int:
        try:
            code = end_code(self.job_dir)
            if code is not None:
                return code
            self._call_others()
            # None: the pod was told to end, or there is nothing more to do.
            decision = self.loop.run() or self.loop.decide()
            if decision.again:
                return INTERRUPTED
            self.loop.end(decision)
            self.tell_end(str(decision.state), decision.reason)
            return CODES.get(str(decision.state), OWN_FAULT)
        finally:
            if self.meeting is not None:
                self.meeting.close()
                files.discard(self.job_dir.leader)
            lock.leave()

    def tell_end(self, state: str, reason: str) -> None:
        leave_message(state, reason)

    def copying(self, attempt: "AttemptDir") -> "ContextManager[None]":
        """Return what copies the attempt's log to where people look at the pod."""
        return Copying(attempt.log)

    def _call_others(self) -> None:
        """Let the other pods of the job know where this one is."""
        others = layout.nodes_of(self.job) - 1
        if not others:
            return
        self.meeting = Meeting(self.scheduler.own_address(), others)
        about = dict(self.meeting.describe(), resumed_after=self.job["resumed_after"])
        trouble.with_retries(lambda: files.write_json(self.job_dir.leader, about, durable=False))

    def is_over(self) -> bool:
        """Return whether the pod was told to end."""
        while signal.sigtimedwait(ENDING, 0) is not None:
            self.is_ending = True
        return self.is_ending

    def wait_for_others(self, others: "Following") -> bool:
        """Wait in the pod, which keeps what it has: nobody but the laptop could create it later."""
        records = self.job_dir.records()
        while others.has_to_wait():
            is_stopped = self.job_dir.stop_request() is not None
            if self.is_over() or is_stopped or too_late(self.job, records, time.time()):
                return False
            self._wait(OTHERS_LOOK)
        return True

    def wait_for_turn(self, decision: "policy.Decision") -> bool:
        """Pause before the attempt, and wait until all nodes are there. A pod that is told to end
        meanwhile leaves it to another; and there is none of a job that is stopped."""
        until = time.monotonic() + decision.delay
        records = self.job_dir.records()
        while not self.is_over() and self.job_dir.stop_request() is None:
            left = until - time.monotonic()
            is_complete = self.meeting is None or self.meeting.is_complete()
            if left <= 0 and is_complete:
                return True
            if too_late(self.job, records, time.time()) is not None:
                return False
            self._wait(LOOK if left <= 0 else min(left, LOOK))
        return False

    def _wait(self, seconds: float) -> None:
        if self.meeting is not None:
            self.meeting.wait(seconds)
        elif signal.sigtimedwait(ENDING, seconds) is not None:
            self.is_ending = True

    def command_environment(self) -> "Dict[str, str]":
        return self.scheduler.command_environment()

    def supervise(self, attempt: "AttemptDir") -> None:
        self.job_dir.work = worktree.place_of(self.job_dir, attempt.number)
        allowance = budget.left(self.job, self.job_dir.records())
        asked = self.job["resources"]["time"]
        seconds = float(asked) if asked else None
        env = self.command_environment()
        allotment = Allotment(None, env, seconds, None, allowance)
        allotment.meter = self.meter
        if layout.is_spread(self.job):
            self._spread(allotment)
        with self.copying(attempt):
            signalled = supervise(self.job_dir, self.job, attempt, allotment)
        self.is_ending = signalled or self.is_ending
        if self.meeting is not None:
            self.meeting.dismiss_followers()
        end_all_below()

    def _spread(self, allotment: Allotment) -> None:
        """Give each node its part."""
        address = self.scheduler.own_address()
        first, *others = (
            gather.part_of(self.job, node, address) for node in range(layout.nodes_of(self.job))
        )
        first["others"] = self.meeting.assign(others) if self.meeting is not None else []
        allotment.env = locales.original_environment()  # tasks leave out what is not the command's
        allotment.launcher = gather.launcher(first)
        allotment.batch_id = self.job_dir.id
        allotment.address = address

    def arrange_next(self, decision: "policy.Decision") -> str:  # noqa: ARG002
        return ELSEWHERE if self.is_over() else HERE

    def after_end(self) -> None:
        files.discard(self.job_dir.alive)


def leave_message(state: str, reason: str) -> None:
    """Tell those who look at the pod how the job ended."""
    told = {"state": state, "reason": reason[:LONGEST_MESSAGE]}
    try:
        with open(MESSAGE, "w") as file:
            file.write(json.dumps(told))
    except OSError:
        pass


class Copying:
    """Copies a log to the pod's own output as it grows, for ``kubectl logs``. It may lag behind,
    and gives up where nobody takes what it writes: the log itself is whole in any case."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(LOOK)

    def _copy(self) -> None:
        offset = 0
        while True:
            is_last = self.over.is_set()
            try:
                offset += self._copy_from(offset)
            except OSError:
                return
            if is_last:
                return
            self.over.wait(LOOK)

    def _copy_from(self, offset: int) -> int:
        copied = 0
        try:
            with open(self.path, "rb") as log:
                log.seek(offset)
                for piece in iter(lambda: log.read(COPY), b""):
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
                    copied += len(piece)
        except FileNotFoundError:
            pass
        return copied
