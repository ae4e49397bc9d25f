"""The loop around a job's attempts, on every kind of cluster.

It decides what comes next, waits for the job's turn, makes an attempt, and repeats, until the job
ends or another process takes over. What differs between this machine, a batch job and a pod is up
to a ``Site``: who waits for what, how an attempt is supervised, and who makes the next one."""

import time
import traceback

from ..formats.messages import print_message
from ..jobs import following, policy
from ..jobs.jobdir import decide, too_late
from ..notifications import notices
from .outcomes import begin_attempt, end_job, record_lost, record_own_failure
from .supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..formats.records import Description, Record
    from ..jobs.following import Following
    from ..jobs.jobdir import AttemptDir, JobDir
    from .allotment import Allotment

# Who makes the next attempt.
HERE = "here"
ELSEWHERE = "elsewhere"  # another process, which is seen to
NOBODY = "nobody"  # somebody has cancelled the job

OTHERS_LOOK = 2.0  # seconds between two looks whether those before it have ended


class Site:
    """Where a job's attempts are made. A site that only loops, as a pod does, defines
    ``supervise``."""

    name = ""  # for people: of the scheduler
    may_come = False  # whether a job that has no directory may get one yet
    lost = ""  # the reason of an attempt that ended without an outcome
    sees_others = True  # whether what other jobs of the root have written is there

    def command_environment(self) -> "Dict[str, str]":
        """Return the variables that a command's environment begins with here."""
        return {}

    def end_leftovers(self) -> None:
        """End what an attempt without an outcome has left running."""

    def is_cared_for(self, job_id: str) -> bool:  # noqa: ARG002
        """Return whether another job that has written down no end is queued, or runs."""
        return True

    def wait_for_others(self, others: "Following") -> bool:
        """Return True once the job need not wait for others any more, or False where another
        process does so."""
        while others.has_to_wait():
            time.sleep(OTHERS_LOOK)
        return True

    def wait_for_turn(self, decision: policy.Decision) -> bool:
        """Return True once the attempt may begin, or False where another process makes it."""
        time.sleep(decision.delay)
        return True

    def give_up_turn(self) -> None:
        """Give back what the turn has brought: no attempt is made."""

    def before_attempt(self) -> None:
        """Leave signals to the supervisor from here on: the attempt is about to begin."""

    def supervise(self, attempt: "AttemptDir") -> None:
        """Make this attempt, whose directory is there."""
        raise NotImplementedError

    def arrange_next(self, decision: policy.Decision) -> str:  # noqa: ARG002
        """Arrange the next attempt, and return who makes it: HERE, ELSEWHERE or NOBODY."""
        return HERE

    def before_end(self) -> None:
        """Give up what the job waits for, just before its end is written down."""

    def after_end(self) -> None:
        """Let go of the job: its end is written down, and it can be resumed or removed."""


class AttemptLoop:
    def __init__(self, job_dir: "JobDir", job: "Description", site: Site) -> None:
        self.job_dir = job_dir
        self.job = job
        self.site = site
        after = {} if job_dir.numbers() else following.awaited(job.get("after"))
        self.others = following.Following(job_dir.root, after, site.is_cared_for, site.may_come)
        self.is_due = True  # whether an attempt is to be made, and could not begin so far

    def run(self) -> "Optional[policy.Decision]":
        """Make attempts, and return the job's end; None where another process goes on."""
        self._account_for_lost_attempt()
        decision = self.decide()
        self.is_due = decision.again
        if decision.again and not self.site.wait_for_others(self.others):
            return None
        decision = self.decide()
        while decision.again:
            if not self.site.wait_for_turn(decision):
                return None
            end = self._ask_for_parameters()
            if end is not None:
                self.site.give_up_turn()
                return end
            self.site.before_attempt()
            self._make_attempt()
            decision = self.decide()
            if decision.again and self._stays_here():
                self.is_due = True
            elif decision.again:
                who = self.site.arrange_next(decision)
                if who == ELSEWHERE:
                    return None
                if who == NOBODY:
                    return policy.Decision("stopped", "cancelled in " + self.site.name)
                self.is_due = True
        return decision

    def prepare(self) -> "Optional[policy.Decision]":
        """Do what has to be done where the root is, before a process that does not see it makes the
        next attempt; return the job's end where there is none."""
        self._account_for_lost_attempt()
        decision = self.decide()
        return self._ask_for_parameters() if decision.again else decision

    def decide(self) -> policy.Decision:
        """Decide between another attempt and the job's end, from what is written down."""
        records = self.job_dir.records()
        decision = too_late(self.job, records, time.time()) or decide(self.job, records)
        if decision.again and self.job_dir.stop_request() is not None:
            return policy.Decision("stopped", "stopped on request")
        if decision.again and self.others.end is not None:
            return self.others.end
        return decision

    def _stays_here(self) -> bool:
        """Return whether the next attempt follows at once, in the same allocation."""
        if not self.site.sees_others:
            return False
        records = self.job_dir.records()
        return bool(records) and records[-1].get("cause") == policy.EXCHANGED

    def _ask_for_parameters(self) -> "Optional[policy.Decision]":
        """Get the parameters of a trial of a sweep; return its end where it is not to start."""
        if not self.job.get("sweep"):
            return None
        from ..sweeps import trial  # with the sampler: not for every job

        return trial.ask(self.job_dir, self.job, self._inquire)

    def _inquire(self, argv: "List[str]", question: "Record") -> "Record":
        """Ask a program in the environment that the command is to have."""
        from .inquiry import Inquiry  # for few sweeps

        return Inquiry(self.job_dir, self.job, self.site.command_environment())(argv, question)

    def _tell_end_of_trial(self, end: policy.Decision) -> None:
        if self.job.get("sweep"):
            from ..sweeps import trial

            trial.tell_end(self.job_dir, self.job, end)

    def _account_for_lost_attempt(self) -> None:
        unfinished = self.job_dir.unfinished()
        if unfinished is None:
            return
        self.site.end_leftovers()
        record_lost(self.job_dir, self.job, unfinished.number, self.site.lost)

    def _make_attempt(self) -> None:
        number = self.job_dir.next_number()
        attempt = begin_attempt(self.job_dir, number)
        self.is_due = False
        if number == 1:
            notices.at_start(self.job_dir, self.job)
        self.site.supervise(attempt)

    def end(self, end: policy.Decision) -> None:
        """Write the job's end down, and tell those who wait for it."""
        self.site.before_end()
        self._tell_end_of_trial(end)
        end_job(self.job_dir, end)
        self.site.after_end()
        notices.at_end(self.job_dir)


def supervise(
    job_dir: "JobDir", job: "Description", attempt: "AttemptDir", allotment: "Allotment"
) -> bool:
    """Run the supervisor in this process, and return whether it was told to end by a signal. An
    error of dray's own is the attempt's outcome."""
    supervisor = None
    try:
        supervisor = Supervisor(job_dir, attempt, job, allotment)
        supervisor.run()
    except Exception as error:
        print_message(traceback.format_exc())
        record_own_failure(job_dir, attempt.number, error)
    return supervisor is not None and supervisor.requests.signalled
