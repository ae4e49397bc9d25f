"""Makes one attempt: the work tree, the command, its end, and the record of it.

The supervisor waits for signals instead of polling: it wakes once a second to look for a stop
request and the time limit, and otherwise sleeps. ``end_requests`` finds out whether the command has
to end, ``timing`` when, and ``ending`` ends it."""

import os
import signal
import socket
import time

from ..checkpoints import given, timing
from ..code import inputs, worktree
from ..formats import faults, files
from ..formats.messages import print_message
from ..jobs import budget, policy, trouble
from ..jobs.jobdir import decide, held_in_words
from ..processes import process
from .allotment import TICK, Limit
from .checkpoint_watch import CHECKPOINT_LOOK, CheckpointWatch
from .command import HANDLED_SIGNALS, Command
from .end_requests import EndRequests
from .ending import Ending
from .heartbeat import Heartbeat
from .outcomes import write_to_log, write_with_retries
from .stalling import Stall
from .starting import FAILURES, why_not_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union  # noqa: F401

    from ..formats.records import About, Description, Outcome
    from ..jobs.jobdir import AttemptDir, JobDir
    from ..processes.gpu_use import Gauge
    from .allotment import Allotment
    from .ranks import Ranks

CUT_SHORT = (budget.CAUSE, policy.STALLED)  # causes of an end that all may have been done before
RESERVE = 64 * 1024  # room kept free so that the outcome can be written on a full disk


class Supervisor:
    def __init__(
        self, job_dir: "JobDir", attempt: "AttemptDir", job: "Description", allotment: "Allotment"
    ) -> None:
        self.job_dir = job_dir
        self.attempt = attempt
        self.job = job = given.known(job_dir, job)
        self.allotment = allotment
        self.command = self._make_command()
        self.about = None  # type: Optional[About]
        self.started, began = time.time(), time.monotonic()
        seconds = allotment.seconds
        self.deadline = self.started + seconds if seconds else None  # as the command knows it
        earlier_attempts = job_dir.records()[:-1]
        self.timing = timing.Timing(job["resume"], earlier_attempts)
        self.limit = Limit(allotment, self.timing, began)
        self.checkpoints = CheckpointWatch(job_dir, attempt, job, earlier_attempts)
        self.requests = EndRequests(job_dir, attempt, self.timing, self.limit, self.checkpoints)
        self.heartbeat = Heartbeat(
            job_dir, attempt, job, self.command, self.requests, allotment.meter, self._gauge()
        )
        self.stall = Stall(
            job.get("stall"), attempt, self.heartbeat.metrics, self.checkpoints, self._look_closely
        )
        self.ending = Ending(self.command, self.requests, self.checkpoints, self._wait, self._beat)

    def _gauge(self) -> "Optional[Gauge]":
        """Return what measures the job's GPUs on this node, if it has any."""
        if not self.job["resources"].get("gpus"):
            return None
        from ..processes import gpu_use  # with threads: not for every attempt

        own = self.allotment
        gpus = own.env.get("CUDA_VISIBLE_DEVICES")
        if own.gpus is not None:
            gpus = ",".join(str(one) for one in own.gpus)
        return gpu_use.Gauge(gpu_use.visible_devices(gpus))

    def _make_command(self) -> "Union[Command, Ranks]":
        own = self.allotment
        if not own.launcher:
            return Command(self.job_dir, self.job, own.env, self.attempt.log)
        from .ranks import Ranks  # with sockets: not for every attempt

        given = (own.launcher, own.batch_id, own.address)
        return Ranks(self.job_dir, self.job, own.env, self.attempt, *given)

    # -- the attempt from start to end --------------------------------------------------------

    def run(self) -> "Outcome":
        """Make the attempt and return its outcome, which is on disk by then."""
        process.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        reserve = self._reserve()
        faults.reach("supervisor:started")
        try:
            self.checkpoints.find_beginning()
            if self.checkpoints.has_nothing_left():
                return self._nothing_left(reserve)
            self._prepare()
            self._start()
        except FAILURES as error:
            outcome = why_not_started(error)
        else:
            faults.reach("supervisor:command-started")
            self._watch()
            faults.reach("supervisor:command-ended")
            outcome = self._outcome()
        files.discard(reserve)
        self._record(outcome)  # at once: what the command did must not be lost to the clean-up
        faults.reach("supervisor:outcome-written")
        self._hold(outcome)
        self._clean_up(outcome)
        return outcome

    def _prepare(self) -> None:
        worktree.prepare(self.job_dir, self.attempt.number, self.job)
        faults.reach("supervisor:unpacked")
        self.command.prepare()

    def _nothing_left(self, reserve: str) -> "Outcome":
        """Record the attempt as done without starting the command: the attempt before had finished,
        and was ended before it could say so."""
        files.discard(reserve)
        files.remove_tree(self.job_dir.work)
        outcome = {
            "outcome": "done",
            "reason": "",
            "exit_code": None,
            "signal": None,
            "cause": "",
        }  # type: Outcome
        self.about = self._about(None)
        self._write_about()
        self._record(outcome)
        return outcome

    def _start(self) -> None:
        argv = self.checkpoints.argv()
        try:
            self.command.start(argv, self._attempt_variables())
        finally:
            self.about = self._about(argv)
            self._write_about()
        self.command.open_door(self.attempt.door_of(0))

    def _write_about(self) -> None:
        """Write the attempt's record, if possible. The command may have filled the disk already,
        and is not ended for that; there is room again later."""
        try:
            files.write_json(self.attempt.attempt, self.about)
        except OSError as error:
            print_message("the attempt could not be written down: {}".format(error))

    def _about(self, argv: "Optional[List[str]]") -> "About":
        begun = self.checkpoints.about()
        return {
            "started": self.started,
            "host": socket.gethostname(),
            "pid": self.command.pid or None,
            "gpus": self.allotment.gpus or [],
            "deadline": self.deadline,
            "remarks": self.checkpoints.remarks,
            "snapshot": self.job["snapshot"],
            "command": argv,
            "container": self.command.container,
            "runs": begun["runs"],
            "done_before": begun["done_before"],
            "from_checkpoint": begun["from_checkpoint"],
            "from_time": begun["from_time"],
        }

    def _attempt_variables(self) -> "Dict[str, str]":
        """Return the environment variables that describe this attempt to the command."""
        variables = {
            "DRAY_JOB_ID": self.job_dir.id,
            "DRAY_ATTEMPT": str(self.attempt.number),
            "DRAY_OUTPUTS": self.job_dir.outputs,
            "DRAY_GRACE": "{:g}".format(self.timing.grace),
        }
        name = self.job["resume"]["signal"]
        if name:
            variables["DRAY_CHECKPOINT_SIGNAL"] = name
        if self.allotment.gpus is not None:
            gpus = ",".join(str(one) for one in self.allotment.gpus)
            variables["CUDA_VISIBLE_DEVICES"] = gpus
        if self.deadline:
            variables["DRAY_DEADLINE"] = "{:.0f}".format(self.deadline)
        variables.update(inputs.variables(self.job_dir, self.job))
        return dict(variables, **self.checkpoints.variables())

    # -- while the command runs ---------------------------------------------------------------

    def _watch(self) -> None:
        while not self.command.ended():
            if self.requests.current is not None:
                self.ending.end_command()
                return
            self._wait(min(TICK, self.limit.seconds_left(), self.checkpoints.until_look()))
            self._look_around()
            self._beat()
            if self.requests.current is None and self.stall.is_reached():
                self.requests.by_stall(self.job["stall"])
        self.ending.wait_for_own_signal()

    def _look_around(self) -> None:
        """Look for checkpoints. A disk that does not answer must not end a running command."""
        try:
            self._look_for_checkpoints()
        except OSError as error:
            self.checkpoints.next_look = time.monotonic() + CHECKPOINT_LOOK
            print_message("checkpoints could not be looked for: {}".format(error))

    def _look_closely(self) -> None:
        """Look for metrics and checkpoints, though it is not time for that yet."""
        self.heartbeat.metrics.look(last=True)
        self.checkpoints.next_look = 0.0
        self._look_for_checkpoints()

    def _look_for_checkpoints(self) -> None:
        now = time.monotonic()
        if not self.checkpoints.is_due(now):
            return
        found = self.checkpoints.look()
        if found is not None:
            self.timing.saw_checkpoint(found.mtime)
            if self.limit.at and self.timing.is_last(self.limit.at, now):
                self.ending.let_settle(found)
                self.requests.after_last_checkpoint()
        is_near = self.timing.is_near(self.limit.at, now)
        most = (self.allotment.seconds or CHECKPOINT_LOOK * 60) / 60
        self.checkpoints.look_next(now, self.timing.patience() if is_near else None, most)

    def _wait(self, seconds: float) -> None:
        """Sleep until a signal comes or the time is over; handle the signal."""
        received = signal.sigtimedwait(HANDLED_SIGNALS, max(seconds, 0.0))
        while received is not None:
            self._handle_signal(received.si_signo)
            received = signal.sigtimedwait(HANDLED_SIGNALS, 0)
        self.command.listen()
        if self.command.departing:
            self.requests.by_departure(self.command.departing)
        self.requests.look()

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self.command.reap()
        elif number == signal.SIGIO:
            pass  # news of the command, which are heard next
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            self.command.signal(number)
        else:
            self.requests.by_signal(number)

    def _beat(self) -> None:
        self.heartbeat.beat(self.checkpoints, self.limit)

    # -- the record ---------------------------------------------------------------------------

    def _outcome(self) -> "Outcome":
        ended = dict({"cause": ""}, **self.command.end())  # type: Any
        outcome = ended  # type: Outcome
        request = self.requests.current
        if request is not None and self.ending.command_notified:
            # Whatever the exit code: trainers save and leave with 0 when they are asked to end.
            outcome["outcome"], outcome["reason"] = request.outcome, request.reason
            outcome["cause"] = request.cause
            is_cut = request.outcome == "interrupted" or request.cause in CUT_SHORT
            newest = self.checkpoints.find_newest() if is_cut else None
            if is_cut and self.checkpoints.progress(newest).finished:
                outcome["outcome"] = "done"
        else:
            outcome["outcome"] = "failed" if outcome["reason"] else "done"
        if outcome["cause"] in (trouble.CAUSE, trouble.LOST):  # of another node than this one
            outcome["outcome"] = "interrupted"
        meter = None if self.allotment.launcher else self.allotment.meter  # tasks have their own
        if meter and outcome.get("signal") == "SIGKILL" and outcome["outcome"] == "failed":
            outcome["reason"] = meter.why_killed() or outcome["reason"]
        return outcome

    def _record(self, outcome: "Outcome") -> None:
        self.heartbeat.look_for_imports()
        self.checkpoints.rescue_outputs(folders=True)
        last = self.checkpoints.find_last()
        outcome["checkpoint"] = self.checkpoints.relative(last)
        at = self.checkpoints.progress(last)
        outcome["iteration"], outcome["total"] = at.done, at.total
        outcome["progress"] = last is not None and self.checkpoints.is_ahead(last)
        outcome["remarks"] = self.checkpoints.remarks
        outcome["ending"], outcome["saved_at_end"] = self.ending.took, self.ending.saved_at_end
        outcome["interval"] = self.timing.interval()
        outcome["metric"] = self.heartbeat.last_metric()
        outcome["started"] = self.started
        outcome["ended"] = time.time()
        write_with_retries(self.attempt.outcome, outcome)
        if self.about is not None and not os.path.exists(self.attempt.attempt):
            self._write_about()

    def _hold(self, outcome: "Outcome") -> None:
        """Keep the allocation of a crashed command for a while, so that somebody can look at it.
        Its outcome is on disk already."""
        seconds = self._seconds_to_hold(outcome)
        if seconds <= 0:
            return
        self._write_held(outcome, time.time() + seconds)
        record = dict(self.about or {}, **outcome)  # type: Any
        held = held_in_words(self.job_dir.id, record)
        write_to_log(self.attempt, [held])
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.requests.signalled:
            if self.job_dir.stop_request() is not None:
                break
            self._wait(min(TICK, until - time.monotonic()))
        self._write_held(outcome, time.time())

    def _seconds_to_hold(self, outcome: "Outcome") -> float:
        """Return how long to hold: only where the command started and will not be started again,
        and no longer than the allocation lasts."""
        seconds = self.job.get("hold")
        if not seconds or not self.command.pid or outcome["outcome"] != "failed":
            return 0.0
        if decide(self.job, self.job_dir.records()).again:
            return 0.0
        return float(min(seconds, self.limit.seconds_left()) if self.limit.at else seconds)

    def _write_held(self, outcome: "Outcome", until: float) -> None:
        outcome["held"] = until
        try:
            files.write_json(self.attempt.outcome, outcome)
        except OSError as error:
            print_message("how long it is held could not be written down: {}".format(error))

    def _clean_up(self, outcome: "Outcome") -> None:
        self.command.close_door()
        self.ending.sweep()
        files.discard(self.attempt.heartbeat)
        try:
            self.command.clean_up()
            left = worktree.clear(self.job_dir, self.attempt, self.job["outputs"])
            left += self.command.left_elsewhere()
            if left:
                files.write_json(self.attempt.outcome, dict(outcome, left=left))
        except OSError as error:
            print_message("the work tree could not be cleared: {}".format(error))

    def _reserve(self) -> str:
        path = os.path.join(self.attempt.path, "reserve")
        try:
            files.write_bytes(path, b"\0" * RESERVE, durable=False)
        except OSError:
            pass
        return path
