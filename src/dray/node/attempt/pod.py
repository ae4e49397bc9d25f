"""What a pod runs as its first process: attempts, one after another, until the job or the pod ends.

A pod that keeps its GPUs and its image loses nothing between two attempts: time limits and crashes
are followed by the next attempt right here. Only a pod that is taken away leaves that to another
one, which the Job controller starts: exit codes tell it whether to.
"""

import json
import os
import signal
import sys
import threading
import time

from ..code import worktree
from ..formats import files, locales
from ..formats.messages import print_message
from ..jobs import budget, trouble
from ..jobs.arrays import ArrayDir
from ..jobs.jobdir import JobDir, described
from ..processes import cgroup, layout
from ..schedulers import scheduler
from ..schedulers.kubernetes import CODES, INTERRUPTED, OWN_FAULT, SECRETS
from .allotment import Allotment
from .attempt_lock import AttemptLock
from .command import HANDLED_SIGNALS
from .loop import ELSEWHERE, HERE, AttemptLoop, Site, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict  # noqa: F401

    from ..formats.records import Description
    from ..jobs import policy
    from ..jobs.jobdir import AttemptDir
    from ..schedulers.scheduler import Scheduler

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MESSAGE = "/dev/termination-log"
LONGEST_MESSAGE = 2000  # characters; the kubelet takes 4096 bytes
LOCK_PATIENCE = 600.0  # a node that is gone may hold its locks until a file server forgets it
COPY = 1 << 16  # bytes of the log that are copied at once
LOOK = 1.0  # seconds between two looks for more of it


def run(path: str) -> int:
    """Return the pod's exit code. ``path`` is a job's directory, or an array's."""
    signal.pthread_sigmask(
        signal.SIG_BLOCK, HANDLED_SIGNALS
    )  # first: nobody else keeps us from being killed
    os.umask(0o077)
    job_dir, batch = JobDir(path), scheduler.of_kind("kubernetes")
    try:
        job = trouble.with_retries(lambda: described(job_dir))
        if "commands" in job:
            array, index = ArrayDir(job_dir.root, job_dir.id), batch.own_index()
            job_dir = trouble.with_retries(lambda: array.make_job(index))
            job = described(job_dir)
        return Pod(job_dir, job, batch).run()
    except Exception as error:
        if trouble.is_of_node(error):
            print_message("its node could not go on: {}".format(error))
            return INTERRUPTED
        raise


class Pod(Site):
    name = "Kubernetes"
    lost = "ended by Kubernetes or with its node"

    def __init__(self, job_dir: JobDir, job: "Description", batch: "Scheduler") -> None:
        self.job_dir = job_dir
        self.job = job
        self.scheduler = batch
        self.is_ending = False
        self.meter = cgroup.Meter()
        self.loop = AttemptLoop(job_dir, job, self)
        folder = os.environ.get(SECRETS)
        if folder:
            job_dir.secrets = os.path.join(folder, os.path.basename(job_dir.secrets))

    def run(self) -> int:
        end = self.job_dir.ended()
        if end is not None:  # the pod before this one was lost after it had written that down
            return CODES.get(end["state"], OWN_FAULT)
        lock = trouble.with_retries(lambda: AttemptLock(self.job_dir))
        if not lock.take_unless(self.is_over, LOCK_PATIENCE):
            return INTERRUPTED
        try:
            decision = self.loop.run()
            if decision is None:
                return INTERRUPTED
            self.loop.end(decision)
            self._leave_message(decision)
            return CODES.get(str(decision.state), OWN_FAULT)
        finally:
            lock.leave()

    def is_over(self) -> bool:
        """Return whether the pod was told to end."""
        while signal.sigtimedwait(ENDING, 0) is not None:
            self.is_ending = True
        return self.is_ending

    def wait_for_turn(self, decision: "policy.Decision") -> bool:
        """Pause before the attempt. A pod that is told to end meanwhile leaves it to another."""
        until = time.monotonic() + decision.delay
        while not self.is_over():
            left = until - time.monotonic()
            if left <= 0 or self.job_dir.stop_request() is not None:
                return True
            if signal.sigtimedwait(ENDING, min(left, LOOK)) is not None:
                self.is_ending = True
        return False

    def supervise(self, attempt: "AttemptDir") -> None:
        self.job_dir.work = worktree.place_of(self.job_dir, attempt.number)
        allowance = budget.left(self.job, self.job_dir.records())
        asked = self.job["resources"]["time"]
        seconds = float(asked) if asked else None
        env = command_environment()
        allotment = Allotment(None, env, seconds, None, allowance)
        allotment.meter = self.meter
        if layout.is_spread(self.job):
            allotment.launcher = self.scheduler.launcher(self.job)
            allotment.batch_id = self.job_dir.id
        with Copying(attempt.log):
            supervise(self.job_dir, self.job, attempt, allotment)

    def arrange_next(self, decision: "policy.Decision") -> str:  # noqa: ARG002
        records = self.job_dir.records()
        by_signal = bool(records) and records[-1].get("cause") == "signal"
        return ELSEWHERE if by_signal or self.is_over() else HERE

    def after_end(self) -> None:
        files.discard(self.job_dir.alive)

    def _leave_message(self, end: "policy.Decision") -> None:
        """Tell people who look at the pod how the job ended."""
        told = {"state": end.state, "reason": end.reason[:LONGEST_MESSAGE]}
        try:
            with open(MESSAGE, "w") as file:
                file.write(json.dumps(told))
        except OSError:
            pass


def command_environment() -> "Dict[str, str]":
    """Return what the command starts from: the image's variables, and none of the pod's own."""
    own = (SECRETS,)
    return {
        name: value for name, value in locales.original_environment().items() if name not in own
    }


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
