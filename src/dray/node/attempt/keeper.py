"""The keeper: does on the local machine, for one job, what a scheduler does on a cluster.

It waits in the queue, forks a supervisor for each attempt, and decides with ``policy`` what comes
next. If its supervisor dies, it ends what that left behind and continues; if it dies itself, its
supervisor takes its place. Only if both die at once is nobody left: then the job is shown as lost
and can be resumed."""

import os
import signal
import sys
import time
import traceback

from ..formats import faults, files, locales
from ..formats.messages import print_message
from ..jobs import budget, policy, trouble
from ..jobs.jobdir import JobDir, described, has_begun
from ..processes import process
from ..schedulers.queue import Grant, queue_of
from .allotment import Allotment
from .loop import OTHERS_LOOK, AttemptLoop, Site, supervise
from .outcomes import record_lost, record_own_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, NoReturn, Optional

    from ..formats.records import Capacity, Resources  # noqa: F401
    from ..jobs.following import Following
    from ..jobs.jobdir import AttemptDir

WAKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = "its supervisor was killed"
UNWRITTEN = "how it ended could not be written down: the disk was full, or failed"
IMAGE_LOOK = 2.0  # seconds between two looks whether it is ready
HELD = WAKING + (signal.SIGCHLD,)


class SignalReceived(Exception):
    """A signal came while the keeper waited."""


def wake(*_: object) -> None:
    raise SignalReceived()


def reason_without_outcome(status: int) -> str:
    """Return why an attempt has no outcome, from its supervisor's wait status. One that was not
    killed has tried for minutes to write it."""
    return KILLED if os.WIFSIGNALED(status) else UNWRITTEN


def main(path: str, alive: int, ticket: int) -> int:
    """Start the keeper of the job in ``path``. ``alive`` and ``ticket`` are open, locked files,
    inherited from the submitting process.

    Returns once a child in a session of its own has taken charge."""
    for fd in (alive, ticket):
        os.set_inheritable(fd, False)
    keeper = Keeper(JobDir(path), alive, ticket)
    if os.fork() > 0:
        return 0
    os.setsid()
    keeper.keep()
    return 0


class Keeper(Site):
    lost = KILLED

    def __init__(self, job_dir: JobDir, alive: int, ticket: "Optional[int]") -> None:
        self.job_dir = job_dir
        self.alive = alive
        self.ticket = ticket
        self.grant = None  # type: Optional[Grant]
        self.slot = None  # type: Optional[Grant]  # of those that its sweep may use at once
        self.job = described(job_dir)
        self.queue = queue_of(job_dir.root, self.job.get("share"), self.job.get("order"))
        self.loop = AttemptLoop(job_dir, self.job, self)

    def keep(self) -> None:
        self._take_charge()
        faults.reach("keeper:started")
        try:
            end = self.loop.run()
            signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        except SignalReceived:
            signal.pthread_sigmask(signal.SIG_BLOCK, HELD)  # once is enough
            end = self.loop.decide()
            if end.again:
                return  # the machine is going down: the job is left to be resumed
        assert end is not None  # every attempt is made here
        self.loop.end(end)

    def _take_charge(self) -> None:
        process.adopt_orphans()
        trouble.with_retries(self._write_pid)
        for number in WAKING + (signal.SIGALRM,):
            signal.signal(number, wake)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _write_pid(self) -> None:
        os.ftruncate(self.alive, 0)
        os.pwrite(self.alive, str(os.getpid()).encode(), 0)

    def end_leftovers(self) -> None:
        """Kill what is left of an attempt that was lost with its keeper and supervisor."""
        process.send(process.marked_with(self.job_dir.id), signal.SIGKILL)

    def is_cared_for(self, job_id: str) -> bool:
        return JobDir(os.path.join(self.job_dir.root, "jobs", job_id)).is_supervised()

    def wait_for_others(self, others: "Following") -> bool:
        """Wait without a ticket: nobody is to wait behind a job that cannot begin."""
        if others.left:
            self._set_alarm()
        while others.has_to_wait():
            self._leave_queue()
            time.sleep(OTHERS_LOOK)
        return True

    def _leave_queue(self) -> None:
        if self.ticket is not None:
            self.queue.leave(self.ticket)
            self.ticket = None

    def wait_for_turn(self, decision: policy.Decision) -> bool:
        if decision.delay:
            time.sleep(decision.delay)
        self._wait_for_image()
        self._wait_for_slot()
        wanted = self.job["resources"]
        if self.ticket is None:
            self.ticket = self.queue.take_ticket_again(self.job_dir.id, wanted)
        self._set_alarm()
        self.grant = self.queue.wait_for_grant(self.ticket, self.job_dir.id, wanted)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.ticket = None
        faults.reach("keeper:granted")
        return True

    def _wait_for_image(self) -> None:
        """Wait for the job's image without a ticket: the job that converts it may have to wait in
        the queue itself."""
        settings, container = self.job.get("scheduler"), self.job.get("container")
        if not settings or not container:
            return
        from ..containers.images import Images  # with all that images need: not for every job
        from ..schedulers import scheduler

        image, images = container.get("image", ""), Images(self.job_dir.root)
        if not images.lacks(image):
            return
        batch = scheduler.of_kind(settings["kind"], self.job_dir.root)
        while images.maker(image, batch.queue) is not None:
            self._leave_queue()
            time.sleep(IMAGE_LOOK)

    def _set_alarm(self) -> None:
        """Set an alarm for the moment by which the job has to have begun."""
        by = (self.job.get("limits") or {}).get("start_by")
        if by is not None and not has_begun(self.job, self.job_dir.records()):
            signal.setitimer(signal.ITIMER_REAL, max(by - time.time(), 0.0) + 0.01)

    def before_attempt(self) -> None:
        """Let signals wait: the supervisor answers them while there is one. Not any earlier, as a
        trial may be stopped while it asks for its parameters."""
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)

    def command_environment(self) -> "Dict[str, str]":
        """Return the login's variables where the job came through an agent; what is submitted on
        this machine brings its own."""
        return locales.original_environment() if self.job.get("scheduler") else {}

    def supervise(self, attempt: "AttemptDir") -> None:
        """Fork a supervisor, and wait until it and all that it started are gone."""
        assert self.grant is not None
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_supervisor(attempt, self.grant, keeper)
        self._clean_up_after(attempt, self._wait_for(pid))
        self.give_up_turn()

    def give_up_turn(self) -> None:
        assert self.grant is not None
        self.grant.release()
        self._leave_slot()
        faults.reach("keeper:attempt-ended")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)

    def _wait_for_slot(self) -> None:
        """Wait until few enough trials of the sweep run. Without a ticket of the machine's queue,
        as other jobs need not wait for that."""
        sweep = self.job.get("sweep") or {}
        at_once = sweep.get("at_once")
        if not at_once or self.slot is not None:
            return
        from ..schedulers.slots import slots_of  # only here

        self._leave_queue()
        slots = slots_of(self.job_dir.root, sweep["id"])
        slots.make()
        capacity = {"cpus": at_once, "gpus": 0, "memory": None}  # type: Capacity
        if slots.read_capacity().get("cpus") != at_once:
            files.write_json(slots.capacity, capacity)
        one = {"cpus": 1, "gpus": 0.0, "memory": None}  # type: Resources
        self._set_alarm()
        self.slot = slots.wait_for_grant(
            slots.take_ticket(self.job_dir.id, one), self.job_dir.id, one
        )
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _leave_slot(self) -> None:
        if self.slot is not None:
            self.slot.release()
            self.slot = None

    def _be_supervisor(self, attempt: "AttemptDir", grant: Grant, keeper: int) -> "NoReturn":
        try:
            for one in WAKING:
                signal.signal(one, signal.SIG_DFL)
            allowance = budget.left(self.job, self.job_dir.records())
            seconds = self.job["resources"]["time"]
            env = self.command_environment()
            allotment = Allotment(grant.given["gpus"], env, seconds, allowance=allowance)
            supervise(self.job_dir, self.job, attempt, allotment)
            if os.getppid() != keeper:  # the keeper was killed: somebody must go on
                grant.release()
                self._leave_slot()
                self.keep()
        except BaseException as error:
            print_message(traceback.format_exc())
            sys.stderr.flush()
            record_own_failure(self.job_dir, attempt.number, error)
            os._exit(1)
        sys.stderr.flush()
        os._exit(0)

    def _wait_for(self, pid: int) -> int:
        """Return the wait status of the supervisor once it has ended."""
        while True:
            ended = dict(process.reap())
            if pid in ended:
                return ended[pid]
            received = signal.sigtimedwait(HELD, 60.0)
            if received is not None and received.si_signo in WAKING:
                process.send([pid], received.si_signo)

    def _clean_up_after(self, attempt: "AttemptDir", status: int) -> None:
        """Kill the processes that a killed supervisor has left, and write the missing outcome."""
        for _ in range(1000):
            below = process.descendants(os.getpid())
            if not below:
                break
            process.send(below, signal.SIGKILL)
            time.sleep(0.01)
            process.reap()
        if attempt.ended() is None:
            reason = reason_without_outcome(status)
            record_lost(self.job_dir, self.job, attempt.number, reason)

    def before_end(self) -> None:
        faults.reach("keeper:before-end")
        if self.ticket is None:
            return
        try:
            self.queue.leave(self.ticket)
        except OSError as error:  # it was our turn at the moment at which we were woken
            print_message("the place in the queue is given up already: {}".format(error))

    def after_end(self) -> None:
        os.close(self.alive)  # the job can be resumed or removed meanwhile
