"""Runs on the compute node, inside a batch job that several jobs of an array share.

Each job has a process of its own, see ``member``, with its part of the GPUs and CPUs. Once all of
them have ended, one decision is made for the batch job: where a job has to go on, it is queued
again, and those that have ended are left out then. A job that was resumed alone meanwhile has a
batch job of its own, and is left to that."""

import os
import signal
import subprocess
import time

from ..formats import faults, interpreters
from ..formats.messages import print_message
from ..jobs import policy, trouble
from ..jobs.arrays import ArrayDir, per_node_of
from ..jobs.jobdir import described
from ..processes import dividing, process
from ..schedulers import scheduler
from ..schedulers.scheduler import SchedulerError
from .allocation import Allocation
from .attempt_lock import AttemptLock
from .command import HANDLED_SIGNALS
from .loop import NOBODY
from .member import DEFERRED
from .succession import Succession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional  # noqa: F401

    from ..formats.records import Description, End
    from ..jobs.jobdir import JobDir
    from ..schedulers.scheduler import Scheduler

TICK = 1.0
MOST_IN_VAIN = 3  # times that a job's process may end before it begins an attempt
LEFTOVERS = 60.0  # seconds to wait for the end of what a killed supervisor has left
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING = PASSED_ON[:3]


def run(path: str) -> int:
    """Run the jobs of this batch job; return its exit code. ``path`` is the array's directory."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    process.adopt_orphans()
    array = ArrayDir(os.path.dirname(os.path.dirname(path)), os.path.basename(path))
    job = trouble.with_retries(lambda: described(array))
    return Task(array, job, scheduler.of_kind(job["scheduler"]["kind"])).run()


# -- pure -----------------------------------------------------------------------------------------


class Part:
    """What one of the jobs that share a batch job gets of it."""

    def __init__(self, gpus: "Optional[List[str]]", cpus: "List[int]") -> None:
        self.gpus = gpus  # None: the scheduler does not say which there are
        self.cpus = cpus  # none: any

    def environment(self, env: "Dict[str, str]") -> "Dict[str, str]":
        if self.gpus is None:
            return dict(env)
        return dict(env, **{dividing.GPUS: ",".join(self.gpus)})


def divide(
    env: "Dict[str, str]", usable: "List[int]", own: "Optional[int]", many: int
) -> "List[Part]":
    """Divide a batch job into so many parts, always in the same way: a job has the same part
    whether the others have ended or not. See ``dividing`` for the CPUs."""
    visible = dividing.visible_gpus(env)
    gpus = None if visible is None else dividing.divide_gpus(visible, [None] * many)
    cpus = dividing.divide_cpus(usable, own, many)
    return [Part(gpus[at] if gpus is not None else None, cpus[at]) for at in range(many)]


def decide_together(decisions: "List[policy.Decision]") -> policy.Decision:
    """Decide when the jobs go on that have to: with the first of them, and with all the time that
    one of them needs."""
    delay = min(one.delay for one in decisions)
    return policy.Decision(delay=delay, whole=any(one.whole for one in decisions))


def exit_code(ends: "List[Optional[End]]") -> int:
    """Return the code by which the scheduler's own records tell whether all are done."""
    return 0 if all(one is not None and one["state"] == "done" for one in ends) else 1


# -- acting ---------------------------------------------------------------------------------------


class Child:
    """The process that makes one job's attempts."""

    def __init__(self, job_dir: "JobDir", part: Part) -> None:
        self.job_dir = job_dir
        self.part = part
        self.made = 0  # attempts before it was started
        self.in_vain = 0  # how often in a row it has ended before it began one
        self.process = None  # type: Optional[subprocess.Popen[bytes]]
        self.until = 0.0  # how long the end of what it has left is waited for

    def start(self) -> None:
        self.made, self.until = len(self.job_dir.numbers()), 0.0
        cpus = ",".join(str(one) for one in self.part.cpus)
        self.process = subprocess.Popen(
            interpreters.own_words("member", self.job_dir.path, cpus, str(os.getpid())),
            env=self.part.environment(dict(os.environ)),
            stdin=subprocess.DEVNULL,
        )

    def look(self) -> "Optional[int]":
        """Return its exit code; None while it runs."""
        return None if self.process is None else self.process.poll()

    def is_past_waiting(self) -> bool:
        """Return whether what it has left had time enough to end, from the first call on."""
        self.until = self.until or time.monotonic() + LEFTOVERS
        return time.monotonic() > self.until

    def send(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Task:
    def __init__(self, array: ArrayDir, job: "Description", batch: "Scheduler") -> None:
        self.array = array
        self.job = job
        self.scheduler = batch
        self.first = batch.own_index()
        self.is_signalled = False  # whether the scheduler ends the batch job
        self.deferred = []  # type: List[str]  # jobs that the node could not begin
        self.children = []  # type: List[Child]

    def run(self) -> int:
        """Run the jobs that have not ended; return the batch job's exit code."""
        try:
            left = self._left()
        except OSError as error:
            if not trouble.is_of_node(error):
                raise
            return self._defer(error)
        if left:
            if not self._is_their_turn(left):
                return 0
            self._run_members(left)
            faults.reach("task:members-ended")
            if self._go_on():
                faults.reach("task:queued-again")
                return 0
        return exit_code([one.ended() for one in self._known()])

    def _left(self) -> "List[JobDir]":
        """Return the jobs that this batch job has to run, each with a directory of its own."""
        for index in self.array.sharing(self.first):
            try:
                trouble.with_retries(lambda index=index: self.array.make_job(index))  # type: ignore[misc]
            except FileNotFoundError:  # it has been removed this moment
                continue
        return [one for one in self._known() if one.ended() is None and is_shared(one)]

    def _known(self) -> "List[JobDir]":
        return [self.array.job_dir(index) for index in self.array.sharing(self.first)]

    def _succession(self, left: "List[JobDir]") -> Succession:
        words = self.scheduler.words_for_task(self.first)
        number, script = self.scheduler.own_number(), self.array.script
        return Succession(left, self.job, self.scheduler, number, script, words)

    def _allocation(self, job_dir: "JobDir", left: "List[JobDir]") -> Allocation:
        return Allocation(job_dir, described(job_dir), self.scheduler, self._succession(left))

    def _is_their_turn(self, left: "List[JobDir]") -> bool:
        """Return whether they can begin. Where jobs before them have not ended, or their image is
        still being made, another batch job is queued behind those."""
        allocation = self._allocation(left[0], left)
        decision = allocation.loop.decide()
        if not decision.again:  # which each finds out for itself
            return True
        is_turn = allocation.wait_for_others(allocation.loop.others)
        return is_turn and allocation.wait_for_turn(decision)

    def _run_members(self, left: "List[JobDir]") -> None:
        """Run the jobs side by side until each of them has ended, or goes on elsewhere."""
        usable, own = sorted(os.sched_getaffinity(0)), self.scheduler.own_cpus()
        parts = divide(dict(os.environ), usable, own, per_node_of(self.job))
        places = {self.array.job_dir(self.first + at).id: part for at, part in enumerate(parts)}
        children = [Child(one, places[one.id]) for one in left]
        self.children = [one for one in children if self._starts(one)]
        while self.children:
            received = signal.sigtimedwait(HANDLED_SIGNALS, TICK)
            if received is not None and received.si_signo in PASSED_ON:
                self._pass_on(received.si_signo)
            self.children = [one for one in self.children if self._goes_on_here(one)]

    def _starts(self, child: Child) -> bool:
        """Start a job's process, and return whether it is there. One that the node has no room for
        is left to the next batch job: the others run."""
        job_id = child.job_dir.id
        try:
            child.start()
        except OSError as error:
            print_message("{}: its supervisor could not be started: {}".format(job_id, error))
            if trouble.is_of_node(error):
                self.deferred.append(job_id)
            else:
                self._end(child.job_dir, policy.Decision("failed", NOT_STARTED.format(error)))
            return False
        return True

    def _pass_on(self, number: int) -> None:
        self.is_signalled = self.is_signalled or number in ENDING
        for one in self.children:
            one.send(number)

    def _goes_on_here(self, child: Child) -> bool:
        """Return whether the job still has a process here. One whose supervisor was killed gets
        another: the attempt that it had begun is lost, and counts."""
        code = child.look()
        if code is None:
            return True
        job_dir = child.job_dir
        if code == DEFERRED:
            self.deferred.append(job_dir.id)
        if code in (0, DEFERRED):
            return False
        is_cleared = self._clear_after(child)
        if self.is_signalled:
            return False
        if not is_cleared:
            return True
        print_message("the supervisor of {} ended with {}".format(job_dir.id, code))
        if job_dir.ended() is not None:
            return False
        child.in_vain = 0 if len(job_dir.numbers()) > child.made else child.in_vain + 1
        if child.in_vain < MOST_IN_VAIN:
            return self._starts(child)
        self._end(job_dir, policy.Decision("failed", NOT_BEGUN.format(code)))
        return False

    def _clear_after(self, child: Child) -> bool:
        """Kill what a supervisor that was killed has left, and return whether the next one may
        begin: nothing is left, or it cannot be killed. All that has come to this process is of
        such a one: those that run keep what is theirs."""
        started = [one.process.pid for one in self.children if one.process is not None]
        left = process.adopted(started)
        process.send(left, signal.SIGKILL)
        process.reap_adopted(started)
        return not left or child.is_past_waiting()

    def _go_on(self) -> bool:
        """Queue the batch job again if a job has to go on, and return whether it is; write down the
        end of one that has come to it without its supervisor."""
        left, decisions = [], []
        for job_dir in self._left():
            decision = self._allocation(job_dir, [job_dir]).loop.decide()
            if decision.again:
                left.append(job_dir)
                decisions.append(decision)
            else:
                self._end(job_dir, decision)
        if not left:
            return False
        try:
            who = self._succession(left).arrange_next(self._when(decisions))
        except SchedulerError as error:
            reason = "its next attempt could not be queued: {}".format(error)
            self._end_all(left, policy.Decision("failed", reason))
            return False
        if who == NOBODY:
            reason = "cancelled in " + self.scheduler.name
            self._end_all(left, policy.Decision("stopped", reason))
        return who != NOBODY

    def _when(self, decisions: "List[policy.Decision]") -> policy.Decision:
        """Decide when the jobs go on. What the node could not even begin is not counted: the pause
        is the longest."""
        together = decide_together(decisions)
        if len(self.deferred) == len(decisions):
            together.delay = policy.LONGEST_PAUSE
        return together

    def _end_all(self, left: "List[JobDir]", end: policy.Decision) -> None:
        for job_dir in left:
            self._end(job_dir, end)

    def _end(self, job_dir: "JobDir", end: policy.Decision) -> None:
        """Write a job's end down, unless another process runs it."""
        lock = trouble.with_retries(lambda: AttemptLock(job_dir))
        try:
            if lock.take_if_free() and job_dir.ended() is None:
                self._allocation(job_dir, [job_dir]).loop.end(end)
        finally:
            lock.leave()

    def _defer(self, error: Exception) -> int:
        """Leave the jobs to a later batch job: not even their directories could be made."""
        print_message("its node could not begin the attempts: {}".format(error))
        later = policy.Decision(delay=policy.LONGEST_PAUSE)
        return 1 if self._succession(self._known()).arrange_next(later) == NOBODY else 0


NOT_STARTED = "its supervisor could not be started: {}"
NOT_BEGUN = "dray itself failed before it could begin an attempt: exit code {}"


def is_shared(job_dir: "JobDir") -> bool:
    """Return whether a job still shares a batch job: it was not resumed alone."""
    description = job_dir.description()
    return description is not None and per_node_of(description) > 1
