"""One attempt: the work tree, the command, its end, and the true record of it.

The supervisor waits for signals instead of polling: it wakes once a second to look for a stop
request and the time limit, and otherwise sleeps.

When the command is asked to end is told by timing.py. Ending it goes in three steps, each only as
long as needed: ask the trainer for a checkpoint (if it has a signal for that) and wait until a new
one is whole; SIGTERM; SIGKILL to everything.
"""

import os
import signal
import socket
import time

from ..checkpoints import given, origin, restoring, resuming, timing
from ..checkpoints import newest as checkpoints
from ..code import worktree
from ..formats import faults, files
from ..formats.notes import note
from ..formats.pace import HEARTBEAT, Pace
from ..jobs import budget, trouble
from ..jobs.jobdir import decide, held_in_words
from ..jobs.log_times import LogTimes
from ..metrics import sources
from ..processes import process
from .command import Command, kill_all
from .outcomes import write_stubbornly
from .starting import FAILURES, why_not_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Union

    from ..jobs.jobdir import AttemptDir, JobDir
    from .ranks import Ranks

    Record = Dict[str, Any]

TICK = 1.0
CHECKPOINT_LOOK = 30.0
NEAR_LOOK = 0.05  # at most so often for a checkpoint that matters at once
SETTLE = 0.2  # a checkpoint that has not changed for so long is taken for written, if need be
LONGEST_PAUSE = 0.1  # between two looks whether it has saved or ended
SILENT_GRACES = 10  # how many graces a command that has done all may say nothing
LIMIT_LOOK = 600.0  # how often the scheduler is asked whether the time limit was changed
LAST_LOOK = 10.0  # and once more so long before the command would be asked to end
RESERVE = 64 * 1024  # room kept free so that the outcome can be written on a full disk
HEEDED = (
    signal.SIGCHLD,
    signal.SIGIO,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Ask:
    """Why the command is to end before it is done."""

    def __init__(self, outcome: str, reason: str, kill_by: float, **more: "Any") -> None:
        self.outcome = outcome
        self.reason = reason
        self.kill_by = kill_by
        self.cause = more.get("cause", "")
        self.politely = more.get("politely", True)


class Place:
    """What an attempt is given: its GPUs (None: the scheduler has set them in the environment),
    the environment it starts from, how many seconds it has, and how to ask for that again; what
    its job may still use as a whole. A command that is spread has a launcher, and the number of
    its batch job."""

    def __init__(
        self,
        gpus: "Optional[List[int]]",
        env: "Dict[str, str]",
        seconds: "Optional[float]",
        time_left: "Optional[Callable[[], Optional[float]]]" = None,
        allowance: "Optional[budget.Left]" = None,
    ) -> None:
        self.gpus = gpus
        self.env = env
        self.time_left = time_left
        self.allowance = allowance
        limits = [seconds] if seconds else []
        limits += [allowance.seconds] if allowance else []
        self.seconds = min(limits) if limits else None
        self.launcher = []  # type: List[str]
        self.number = ""


class Supervisor:
    def __init__(
        self, job_dir: "JobDir", attempt: "AttemptDir", job: "Record", place: Place
    ) -> None:
        self.job_dir = job_dir
        self.attempt = attempt
        self.job = job = given.known(job_dir, job)
        self.place = place
        self.command = self._make_command()
        self.ask = None  # type: Optional[Ask]
        self.told = False  # whether the command has felt anything of it
        self.signalled = (
            False  # whether the scheduler has signalled us, and so maybe all of the job
        )
        self.started = time.time()
        limit, allowance = place.seconds, place.allowance
        self.deadline = self.started + limit if limit else None  # told to the command
        began = time.monotonic()
        self.limit = began + limit if limit else None  # kept by us: no clock change
        self.job_limit = began + allowance.seconds if allowance else None
        self.before = job_dir.records()[:-1]
        self.timing = timing.Timing(job["resume"], self.before)
        self.next_limit_look = next_limit_look(time.monotonic(), self.limit, self.timing.lead())
        self.next_heartbeat = 0.0
        self.next_look = 0.0
        self.pace = Pace()
        self.metrics = sources.Watch(job, job_dir.outputs, attempt)
        self.log_times = LogTimes(attempt.log, attempt.log_times)
        self.rules = job["resume"]
        self.pattern = self.rules["checkpoint"]
        self.first = None  # type: Optional[checkpoints.Checkpoint]
        self.begins = False  # whether that is a checkpoint of another run
        self.newest = None  # type: Optional[checkpoints.Checkpoint]
        self.reached = resuming.Progress()  # at the newest one
        self.fresh = None  # type: Optional[checkpoints.Checkpoint]  # asked for, maybe unfinished
        self.fresh_since = 0.0
        self.finished = None  # type: Optional[float]  # since when all is done, and it is silent
        self.log_size = -1
        self.ending = None  # type: Optional[float]  # seconds from being asked to its end
        self.saved_at_end = None  # type: Optional[bool]
        self.about = None  # type: Optional[Record]
        self.remarks = []  # type: List[str]  # on checkpoints that were not taken
        self.imports = []  # type: List[str]  # what its Pythons have said of their imports

    def _make_command(self) -> "Union[Command, Ranks]":
        place = self.place
        if not place.launcher:
            return Command(self.job_dir, self.job, place.env, self.attempt.log)
        from .ranks import Ranks  # with sockets: not for every attempt

        return Ranks(self.job_dir, self.job, place.env, self.attempt, place.launcher, place.number)

    # -- the attempt from start to end --------------------------------------------------------

    def run(self) -> "Record":
        """Make the attempt and return its outcome, which is on disk by then."""
        process.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
        reserve = self._reserve()
        faults.reach("supervisor:started")
        try:
            self._look_back()
            if self._progress(self.first).finished:
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

    def _nothing_left(self, reserve: str) -> "Record":
        """The attempt before did all there was to do, and was ended before it could say so."""
        files.discard(reserve)
        files.remove_tree(self.job_dir.work)
        outcome = {"outcome": "done", "reason": "", "exit_code": None, "signal": None, "cause": ""}
        self.about = self._about(None)
        self._write_about()
        self._record(outcome)
        return outcome

    def _start(self) -> None:
        argv = self._argv()
        try:
            self.command.start(argv, self._told())
        finally:
            self.about = self._about(argv)
            self._write_about()

    def _write_about(self) -> None:
        """The command may have filled the disk already, and goes on all the same; once it has
        ended there is room again."""
        try:
            files.write_json(self.attempt.attempt, self.about)
        except OSError as error:
            note("the attempt could not be written down: {}".format(error))

    def _about(self, argv: "Optional[List[str]]") -> "Record":
        about = {
            "started": self.started,
            "host": socket.gethostname(),
            "pid": self.command.pid or None,
            "gpus": self.place.gpus or [],
            "deadline": self.deadline,
            "from_checkpoint": self._begun_from(),
            "from_time": self.first.mtime if self.first else None,
            "remarks": self.remarks,
            "snapshot": self.job["snapshot"],
            "command": argv,
            "container": self.command.container,
        }
        return dict(about, **self.before[-1])

    def _argv(self) -> "List[str]":
        if self.first is None:
            return list(self.job["command"])
        at = self._progress(self.first)
        return resuming.resumed(self.job["command"], self.rules, self.first.path, at, self.begins)

    def _newest(self) -> "Optional[checkpoints.Checkpoint]":
        return checkpoints.newest(self.job_dir.outputs, self.rules)

    def _progress(self, checkpoint: "Optional[checkpoints.Checkpoint]") -> resuming.Progress:
        if checkpoint is None:
            return resuming.Progress()
        job, outputs = self.job, self.job_dir.outputs
        return resuming.progress(
            job["resume"], job["command"], checkpoint.path, outputs, self.before
        )

    def _look_back(self) -> None:
        """Find where this attempt begins."""
        begin = origin.find(self.job_dir.outputs, self.job, self.before, self.attempt.number)
        self.first, self.begins = begin.checkpoint, begin.is_given
        self.newest = None if self.begins else self.first
        self._remark(begin.remarks)
        found = checkpoints.candidates(self.job_dir.outputs, self.rules)
        runs = resuming.runs_of([one.path for one in found], self.job_dir.outputs)
        self.before.append({"runs": runs, "done_before": self._progress(self.first).done})
        self.reached = self._progress(self.first)

    def _remark(self, remarks: "List[str]") -> None:
        """Tell what became of checkpoints, in the attempt's record and in its log."""
        self.remarks += remarks
        self._write_to_log(remarks)

    def _write_to_log(self, lines: "List[str]") -> None:
        text = "".join("[dray] {}\n".format(one) for one in lines)
        try:
            if text:
                files.append(self.attempt.log, text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            note("the log could not be written: {}".format(error))

    def _told(self) -> "Dict[str, str]":
        """What the command's environment says of this attempt."""
        told = {
            "DRAY_JOB_ID": self.job_dir.id,
            "DRAY_ATTEMPT": str(self.attempt.number),
            "DRAY_OUTPUTS": self.job_dir.outputs,
            "DRAY_GRACE": "{:g}".format(self.timing.grace),
        }
        if self.rules["signal"]:
            told["DRAY_CHECKPOINT_SIGNAL"] = self.rules["signal"]
        if self.place.gpus is not None:
            told["CUDA_VISIBLE_DEVICES"] = ",".join(str(one) for one in self.place.gpus)
        if self.deadline:
            told["DRAY_DEADLINE"] = "{:.0f}".format(self.deadline)
        if self.first is not None:
            told["DRAY_CHECKPOINT"] = self.first.path
            if self.begins:
                told["DRAY_CHECKPOINT_GIVEN"] = "1"
            partner = resuming.partner_of(self.first.path, self.rules)
            if partner and os.path.exists(partner):
                told["DRAY_CHECKPOINT_PARTNER"] = partner
        return told

    # -- while the command runs ---------------------------------------------------------------

    def _watch(self) -> None:
        while not self.command.ended():
            if self.ask is not None:
                self._end_command()
                return
            self._wait(min(TICK, self._until_limit(), self._until_look()))
            self._look_around()
            self._beat()
        self._wait_for_own_signal()

    def _look_around(self) -> None:
        """A disk that does not answer must not end a command that runs."""
        try:
            self._look_for_checkpoints()
        except OSError as error:
            self.next_look = time.monotonic() + CHECKPOINT_LOOK
            note("checkpoints could not be looked for: {}".format(error))

    def _wait_for_own_signal(self) -> None:
        """A scheduler that ends a job signals all of it at once, the command maybe before us."""
        seconds = self.command.ahead_of_us()
        until = time.monotonic() + seconds
        while self.ask is None and time.monotonic() < until:
            self._wait(until - time.monotonic())
        # We may have been looking at a slow disk meanwhile, and find both at once; whatever the
        # exit code was then, it is that of a trainer that was told to leave.
        self.told = self.ask is not None and (self.signalled or seconds > 0)

    def _until_limit(self) -> float:
        """Seconds until the command has to be asked to end."""
        if self.limit is None:
            return TICK
        return max(self.limit - self.timing.lead() - time.monotonic(), 0.0)

    def _until_look(self) -> float:
        """Seconds until checkpoints are to be looked for."""
        return max(self.next_look - time.monotonic(), 0.0) if self.pattern else TICK

    def _wait(self, seconds: float) -> None:
        """Sleep until a signal comes or the time is over; heed the signal."""
        received = signal.sigtimedwait(HEEDED, max(seconds, 0.0))
        while received is not None:
            self._heed(received.si_signo)
            received = signal.sigtimedwait(HEEDED, 0)
        self.command.listen()
        self._look_for_requests()

    def _heed(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self.command.reap()
        elif number == signal.SIGIO:
            pass  # news of the command, which are heard next
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            self.command.signal(number)
        else:
            self._be_signalled(number)

    def _be_signalled(self, number: int) -> None:
        self.signalled = True
        if self.job_dir.stop_request() is None and self.ask is None:
            reason = "interrupted by {}".format(process.signal_name(number))
            self.ask = Ask("interrupted", reason, self._in_grace(), cause="signal")

    def _look_for_requests(self) -> None:
        now = time.monotonic()
        stop = self.job_dir.stop_request()
        if stop is not None and (self.ask is None or (self.ask.politely and stop["now"])):
            kill_by = now if stop["now"] else self._in_grace()
            self.ask = Ask("stopped", "stopped on request", kill_by, politely=not stop["now"])
        if self.ask is None and now >= self.next_limit_look:
            self._look_for_new_limit()
        if self.ask is None and self._hangs_at_its_end(now):
            self.ask = Ask("done", "all was done, but it did not end by itself", self._in_grace())
        if self.limit and self.ask is None and now >= self.limit - self.timing.lead():
            self.ask = self._at_limit("time limit reached", self.limit)

    def _at_limit(self, reason: str, kill_by: float) -> Ask:
        """End the command at the attempt's time limit, or the job at one of its own."""
        allowance = self.place.allowance
        if allowance is not None and self.limit == self.job_limit:
            return Ask("stopped", allowance.reason, kill_by, cause=budget.CAUSE)
        return Ask("interrupted", reason, kill_by, cause="time")

    def _hangs_at_its_end(self, now: float) -> bool:
        """Whether all is done, and the command has said nothing for long. A trainer that has come
        to its last iteration may still evaluate, and write its final model."""
        if self.finished is None:
            return False
        try:
            size = os.path.getsize(self.attempt.log)
        except OSError:
            size = self.log_size
        if size != self.log_size:
            self.log_size, self.finished = size, now
        return now >= self.finished + self.timing.grace * SILENT_GRACES

    def _look_for_new_limit(self) -> None:
        """Somebody may have extended or shortened it in the scheduler."""
        seconds = self.place.time_left() if self.place.time_left else None
        now = time.monotonic()
        if seconds is not None:
            self.limit = min([now + seconds] + ([self.job_limit] if self.job_limit else []))
        self.next_limit_look = next_limit_look(now, self.limit, self.timing.lead())

    def _in_grace(self) -> float:
        return time.monotonic() + self.timing.grace

    def _look_for_checkpoints(self) -> None:
        now = time.monotonic()
        if now < self.next_look or not self.pattern:
            return
        with self.pace:
            self._rescue_outputs()
            found = self._newest()
        if found is not None and not found.same(self.newest):
            self.newest = found
            self._tend(found)
            self._look_whether_finished()
            if self._is_ahead(found):
                self._use(found, now)
        # A huge outputs folder is looked through less often, but not so much less where what
        # comes after the next checkpoint is lost.
        if self.timing.is_near(self.limit, now):
            self.next_look = now + max(self.pace.took() * 20, NEAR_LOOK, self.timing.patience())
        else:
            pause = min(CHECKPOINT_LOOK, (self.place.seconds or CHECKPOINT_LOOK * 60) / 60)
            self.next_look = now + max(self.pace.rest(), pause)

    def _use(self, found: "checkpoints.Checkpoint", now: float) -> None:
        """End the command here, if no further checkpoint fits into its time."""
        self.timing.saw_checkpoint(found.mtime)
        if self.limit and self.timing.is_last(self.limit, now):
            self._let_settle(found)
            reason = "time limit: ended after the last checkpoint that fits"
            kill_by = min(self._in_grace(), self.limit)
            self.ask = self.ask or self._at_limit(reason, kill_by)

    def _is_ahead(self, found: "checkpoints.Checkpoint") -> bool:
        """Whether it is further than where this attempt began."""
        if self.first is None or found.same(self.first):
            return self.first is None
        at, first_at = self._progress(found), self._progress(self.first)
        return resuming.is_ahead(self.rules, found.path, at, self.first.path, first_at)

    def _let_settle(self, found: "checkpoints.Checkpoint") -> None:
        """Where it cannot be told whether it is written to its end: until nothing changes any
        more, as long as there is time."""
        changing = not self._tells_its_end(found)
        while changing and not self.command.ended() and self._until_limit() > SETTLE:
            self._wait(SETTLE)
            newest = self._newest()
            changing = newest is not None and not newest.same(self.newest)
            self.newest = newest or self.newest

    def _tells_its_end(self, found: "checkpoints.Checkpoint") -> bool:
        return checkpoints.tells_its_end(found.path) and not self.rules.get("partner")

    def _look_whether_finished(self) -> None:
        self.reached = self._progress(self.newest)
        if self.finished is None and self.reached.finished:
            self.finished = time.monotonic()

    def _last_checkpoint(self) -> "Optional[checkpoints.Checkpoint]":
        try:
            return self._mended()
        except OSError as error:  # what became of the command is told all the same
            note("checkpoints could not be looked at: {}".format(error))
            return self.newest

    def _mended(self) -> "Optional[checkpoints.Checkpoint]":
        """The newest one, now that nobody writes any more."""
        self._remark(restoring.put_back(self.job_dir.outputs, self.rules))
        newest = self._newest()
        self._tend(newest)
        return newest

    def _tend(self, newest: "Optional[checkpoints.Checkpoint]") -> None:
        """Keep a copy of it, where the trainer overwrites it; clear older ones away."""
        if newest is None:
            return
        try:
            restoring.keep(newest, self.rules)
            checkpoints.prune(self.job_dir.outputs, self.rules)
        except OSError as error:
            note("checkpoints could not be tended: {}".format(error))

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self.next_heartbeat:
            return
        self.next_heartbeat = now + HEARTBEAT
        self._watch_memory()
        self._look_for_imports()
        self.metrics.look()
        self._note_log()
        beat = {
            "heartbeat": time.time(),
            "checkpoint": self._relative(self.newest),
            "metric": self.metrics.value(),
            "deadline": self._deadline(),
            "iteration": self.reached.done,
            "total": self.reached.total,
        }
        try:
            files.write_json(self.attempt.heartbeat, beat, durable=False)
        except OSError:  # a full disk must not end the attempt
            pass

    def _look_for_imports(self) -> None:
        """Tell of packages that are not imported from where they are installed."""
        found = [one for one in worktree.reported_imports(self.job_dir) if one not in self.imports]
        self.imports += found
        self._write_to_log(found)

    def _note_log(self, last: bool = False) -> None:
        try:
            self.log_times.note(time.time(), last)
        except OSError:  # it helps to read the log, and is not worth more than that
            pass

    def _deadline(self) -> "Optional[float]":
        """By the limit as it is now: it may have been changed since the command was told."""
        return time.time() + self.limit - time.monotonic() if self.limit else None

    def _watch_memory(self) -> None:
        limit = self.job["resources"]["memory"]
        if not limit or self.ask is not None:
            return
        used = self.command.memory()
        if used > limit:
            scale, unit = (2.0**30, "GB") if limit >= 2**30 else (2.0**20, "MB")
            reason = "out of memory: {:.1f} {unit} used of {:.1f} {unit} asked for".format(
                used / scale, limit / scale, unit=unit
            )
            self.ask = Ask("failed", reason, time.monotonic(), politely=False)

    # -- ending it ----------------------------------------------------------------------------

    def _end_command(self) -> None:
        ask = self.ask
        assert ask is not None
        self.told = True
        began = time.monotonic()
        before = self._newest()
        if ask.politely:
            self._ask_for_checkpoint(before)
        if not self.command.ended() and self._still_polite():
            self.command.terminate()
            self._wait_until(self.command.ended)
        if ask.politely:
            # One that had to be killed may need longer than it was given.
            self.ending = time.monotonic() - began if self.command.ended() else self.timing.grace
            self._rescue_outputs()
            after = self._newest()
            self.saved_at_end = after is not None and not after.same(before)
        if not self.command.ended():
            kill_all(self.command, self._wait)

    def _ask_for_checkpoint(self, before: "Optional[checkpoints.Checkpoint]") -> None:
        name = self.rules["signal"]
        if not name:
            return
        number = getattr(signal, "SIG" + name)
        if self.command.signal(number):  # else it would only kill; SIGTERM comes next anyway
            self._wait_until(lambda: self.command.ended() or self._new_checkpoint(before))

    def _rescue_outputs(self, folders: bool = False) -> None:
        try:
            worktree.rescue_outputs(self.job_dir, self.attempt.number, self.job["outputs"], folders)
        except OSError as error:
            note("an output could not be moved: {}".format(error))

    def _new_checkpoint(self, before: "Optional[checkpoints.Checkpoint]") -> bool:
        self._rescue_outputs()
        found = self._newest()
        if found is None or found.same(before):
            return False
        if not found.same(self.fresh):
            self.fresh, self.fresh_since = found, time.monotonic()
        settled = time.monotonic() - self.fresh_since >= SETTLE
        return settled or self._tells_its_end(found)

    def _still_polite(self) -> bool:
        return self.ask is not None and self.ask.politely and time.monotonic() < self.ask.kill_by

    def _wait_until(self, condition: "Callable[[], bool]") -> None:
        """Wait for the condition, at most until the command is to be killed."""
        pause = 0.02
        while self._still_polite():
            now = time.monotonic()
            if condition():
                return
            assert self.ask is not None
            took = time.monotonic() - now
            self._wait(min(max(pause, took * 4), self.ask.kill_by - time.monotonic()))
            self._beat()
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _sweep(self) -> None:
        """End what the command left in the background."""
        if self.command.is_gone():
            return
        self.command.dismiss()
        until = time.monotonic() + self.command.patience
        while not self.command.is_gone() and time.monotonic() < until:
            self._wait(0.05)
        kill_all(self.command, self._wait)

    # -- the record ---------------------------------------------------------------------------

    def _outcome(self) -> "Record":
        outcome = dict({"cause": ""}, **self.command.end())
        if self.ask is not None and self.told:
            # Whatever the exit code: trainers save and leave with 0 when they are asked to end.
            outcome.update(outcome=self.ask.outcome, reason=self.ask.reason, cause=self.ask.cause)
            is_cut = self.ask.outcome == "interrupted" or self.ask.cause == budget.CAUSE
            if is_cut and self._progress(self._newest()).finished:
                outcome["outcome"] = "done"
        else:
            outcome["outcome"] = "failed" if outcome["reason"] else "done"
        if outcome["cause"] == trouble.CAUSE:  # of another node than this one
            outcome["outcome"] = "interrupted"
        return outcome

    def _record(self, outcome: "Record") -> None:
        self._look_for_imports()
        self._rescue_outputs(folders=True)
        last = self._last_checkpoint()
        outcome["checkpoint"] = self._relative(last)
        at = self._progress(last)
        outcome["iteration"], outcome["total"] = at.done, at.total
        outcome["progress"] = last is not None and self._is_ahead(last)
        outcome["remarks"] = self.remarks
        outcome["ending"], outcome["saved_at_end"] = self.ending, self.saved_at_end
        outcome["interval"] = self.timing.interval()
        self.metrics.look(last=True)
        self._note_log(last=True)
        outcome["metric"] = self.metrics.value()
        outcome["started"] = self.started
        outcome["ended"] = time.time()
        write_stubbornly(self.attempt.outcome, outcome)
        if self.about is not None and not os.path.exists(self.attempt.attempt):
            self._write_about()

    def _hold(self, outcome: "Record") -> None:
        """Keep what a crashed command had, for a look: its outcome is on disk already."""
        seconds = self._seconds_to_hold(outcome)
        if seconds <= 0:
            return
        self._write_held(outcome, time.time() + seconds)
        self._write_to_log([held_in_words(self.job_dir.id, dict(self.about or {}, **outcome))])
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.signalled:
            if self.job_dir.stop_request() is not None:
                break
            self._wait(min(TICK, until - time.monotonic()))
        self._write_held(outcome, time.time())

    def _seconds_to_hold(self, outcome: "Record") -> float:
        """Only where the command did start, and is not started again; and no longer than the
        allocation lasts."""
        seconds = self.job.get("hold")
        if not seconds or not self.command.pid or outcome["outcome"] != "failed":
            return 0.0
        if decide(self.job, self.job_dir.records()).again:
            return 0.0
        return float(min(seconds, self._until_limit()) if self.limit else seconds)

    def _write_held(self, outcome: "Record", until: float) -> None:
        outcome["held"] = until
        try:
            files.write_json(self.attempt.outcome, outcome)
        except OSError as error:
            note("how long it is held could not be written down: {}".format(error))

    def _clean_up(self, outcome: "Record") -> None:
        self._sweep()
        files.discard(self.attempt.heartbeat)
        try:
            self.command.put_away()
            left = worktree.clear(self.job_dir, self.attempt, self.job["outputs"])
            left += self.command.left_elsewhere()
            if left:
                files.write_json(self.attempt.outcome, dict(outcome, left=left))
        except OSError as error:
            note("the work tree could not be cleared: {}".format(error))

    def _relative(self, checkpoint: "Optional[checkpoints.Checkpoint]") -> "Optional[str]":
        return os.path.relpath(checkpoint.path, self.job_dir.outputs) if checkpoint else None

    def _begun_from(self) -> "Optional[str]":
        """What people call it."""
        if not self.begins:
            return self._relative(self.first)
        return str(self.job["origin"].get("told", "a checkpoint of another run"))

    def _reserve(self) -> str:
        path = os.path.join(self.attempt.path, "reserve")
        try:
            files.write_bytes(path, b"\0" * RESERVE, durable=False)
        except OSError:
            pass
        return path


def next_limit_look(now: float, limit: "Optional[float]", lead: float) -> float:
    """Rarely, and once more before it is too late to go on."""
    last = limit - lead - LAST_LOOK if limit else 0.0
    return min(now + LIMIT_LOOK, last) if last > now else now + LIMIT_LOOK
