"""One node of a job on Ray: attempts, one after another, until the job or the node's turn ends.

An actor of Ray's starts this program and waits for it. What Ray kills with the actor is this
process alone; its child, which makes the attempts, then hears SIGTERM, and has the command save
before it ends. And if that child is killed, this process ends what it has left.
"""

import os
import signal
import sys
import time
import traceback

from ..attempt import pod
from ..attempt.command import HANDLED_SIGNALS
from ..attempt.follower import end_all_below
from ..attempt.loop import ELSEWHERE
from ..formats import files
from ..formats.messages import print_message
from ..jobs import trouble
from ..jobs.arrays import ArrayDir, is_array
from ..jobs.jobdir import JobDir, described
from ..jobs.policy import EXCHANGED
from ..processes import process
from ..schedulers.gathered import INTERRUPTED, OWN_FAULT, STAND_IN
from ..schedulers.ray import Ray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ContextManager

    from ..jobs import policy
    from ..jobs.jobdir import AttemptDir

LOOK = 0.5  # seconds between two looks whether the child has ended


def run(path: str) -> int:
    """Return the exit code of the node's turn. ``path`` is a job's directory, or an array's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    os.umask(0o077)
    process.adopt_orphans()
    process.prctl(process.PR_SET_PDEATHSIG, signal.SIGTERM)
    pid = os.fork()
    if pid == 0:
        be_child(path)
    return wait_for(pid)


def wait_for(child: int) -> int:
    """Pass signals on to the child; return its exit code. One that was killed has left its command
    running, and another node goes on."""
    while True:
        for pid, status in process.reap():
            if pid == child:
                end_all_below()
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else INTERRUPTED
        received = signal.sigtimedwait(pod.ENDING + (signal.SIGCHLD,), LOOK)
        if received is not None and received.si_signo in pod.ENDING:
            process.send([child], signal.SIGTERM)


def be_child(path: str) -> None:
    """Make attempts, in a session of its own, and end this process."""
    code = OWN_FAULT
    try:
        os.setsid()
        process.prctl(process.PR_SET_PDEATHSIG, signal.SIGTERM)
        code = make_attempts(path)
    except SystemExit as error:  # its description is not there, or damaged
        print_message(str(error))
    except BaseException as error:
        code = INTERRUPTED if trouble.is_of_node(error) else OWN_FAULT
        print_message(traceback.format_exc())
    finally:
        sys.stderr.flush()
        os._exit(code)


def make_attempts(path: str) -> int:
    job_dir = JobDir(path)
    job = trouble.with_retries(lambda: described(job_dir))
    batch = Ray(job_dir.root)
    if is_array(job):
        array, index = ArrayDir(job_dir.root, job_dir.id), batch.own_index()
        job_dir = trouble.with_retries(lambda: array.make_job(index))
        job = described(job_dir)
    try:
        return RayNode(job_dir, job, batch).run()
    finally:
        if STAND_IN in os.environ:  # where the driver was killed, nobody else clears up
            files.discard(job_dir.secrets)


class RayNode(pod.Pod):
    name = "Ray"
    may_come = False
    lost = "ended with its node, or by Ray"
    sees_others = STAND_IN not in os.environ

    def arrange_next(self, decision: "policy.Decision") -> str:
        """Leave it to another turn to go on from another trial's checkpoint that is not here."""
        last = self.job_dir.records()[-1]
        if not self.sees_others and last.get("cause") == EXCHANGED:
            return ELSEWHERE
        return pod.Pod.arrange_next(self, decision)

    def end_leftovers(self) -> None:
        """Kill what is left of an attempt that was lost on this machine with all that cared for
        it."""
        process.send(process.marked_with(self.job_dir.id), signal.SIGKILL)
        time.sleep(LOOK)

    def tell_end(self, state: str, reason: str) -> None:
        print_message("{}: {}".format(state, reason))

    def copying(self, attempt: "AttemptDir") -> "ContextManager[None]":  # noqa: ARG002
        return Nothing()


class Nothing:
    """Copies nothing: the log itself is what people look at."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
