"""One task of a command that is spread over several: see ``ranks``, whose orders it carries out.

The first task of a node also watches its memory, and makes and clears its work tree; on the first
node, and where the tree is on a disk that all share, the supervisor does. Signals from outside are
handled by the supervisor: a scheduler that ends a job sends them to it, too. A task only reports
that it had one, as torchrun and its like turn a signal into an exit code."""

import json
import os
import signal
import socket
import time

from ..code import worktree
from ..formats import files
from ..formats.messages import print_message
from ..jobs.jobdir import JobDir, described
from ..processes import layout, process
from ..schedulers import scheduler
from ..schedulers.gathered import STAND_IN
from .command import HANDLED_SIGNALS, LEFTOVER_GRACE, Command, kill_all
from .ranks import MARK, Lines
from .starting import FAILURES, why_not_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict  # noqa: F401

    from ..formats.records import CommandEnd, Description, Order
    from ..schedulers.scheduler import Scheduler

LOOK = 10.0
RESCUE = 30.0


def main(path: str) -> int:
    job_dir = JobDir(path)
    job = described(job_dir)
    batch = scheduler.of_kind(job["scheduler"]["kind"])
    job_dir.secrets = batch.secrets_of(job_dir)
    return Task(job_dir, job, batch).run()


class Task:
    def __init__(self, job_dir: JobDir, job: "Description", batch: "Scheduler") -> None:
        self.job_dir = job_dir
        self.job = job
        self.position = batch.task_position()
        self.meter = batch.meter()
        self.command = Command(job_dir, job, batch.command_environment(), "")
        self.order = {}  # type: Order
        self.made_tree = False
        self.told_end = False
        self.signalled = False  # from outside, and so maybe the command as well
        self.leaving = False
        self.next_rescue = time.monotonic() + RESCUE

    def run(self) -> int:
        process.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        self.lines = Lines(0)
        self._listen()
        while not self.leaving:
            self._wait(LOOK)
            self._look_around()
            self._listen()
        return 0

    def _wait(self, seconds: float) -> None:
        received = signal.sigtimedwait(HANDLED_SIGNALS, seconds)
        while received is not None:
            if received.si_signo == signal.SIGCHLD:
                self._reap()
            elif received.si_signo in (signal.SIGUSR1, signal.SIGUSR2):
                self.command.signal(received.si_signo)
            elif received.si_signo != signal.SIGIO:
                self.signalled = True
            received = signal.sigtimedwait(HANDLED_SIGNALS, 0)
        self.command.listen()

    def _listen(self) -> None:
        lines = self.lines.read()
        while lines:  # again: what came meanwhile may have been told of meanwhile, too
            for line in lines:
                message = json.loads(line.decode("ascii"))
                OBEY[message["what"]](self, message)
            lines = self.lines.read()
        if not self.lines.is_open and not self.leaving:  # the supervisor is gone
            kill_all(self.command, self._wait)
            self.command.close_door()
            self._clean_up()
            self.leaving = True

    def _say(self, what: str, **more: "Any") -> None:
        at = self.position
        message = {"what": what, "rank": at.rank, "node": at.node_rank, "host": at.host}
        message.update(more)
        try:
            os.write(1, MARK + json.dumps(message).encode("ascii") + b"\n")
        except OSError:  # nobody listens any more: the end of our input will tell
            pass

    # -- orders -----------------------------------------------------------------------------------

    def _take_order(self, order: "Order") -> None:
        self.order = order
        attempt = self.job_dir.attempt(order["attempt"])
        self.command.log = attempt.log_of(self.position.rank)
        self.command.assign_rank(self.position.rank, self.position.host)
        if self.position.rank:
            files.make_folder(os.path.dirname(self.command.log))
        if self.position.local_rank:
            return
        try:
            self._make_tree(order)
            self.command.prepare()
        except FAILURES as error:
            self._tell_failure(error)
        else:
            self._say("ready", work=self.job_dir.work)

    def _make_tree(self, order: "Order") -> None:
        """Make the node's work tree, unless the supervisor has made it: on the first node, or on a
        disk that all share."""
        is_seen = order["work"] == self.job_dir.work and STAND_IN not in os.environ
        if self.position.node_rank == 0 or is_seen:
            self.job_dir.work = order["work"]
            return
        self.job_dir.work = worktree.place_of(self.job_dir, order["attempt"], self.position.host)
        worktree.prepare(self.job_dir, order["attempt"], self.job)
        self.made_tree = True

    def _go(self, message: "Order") -> None:
        if self.told_end:
            return
        self.job_dir.work = message["trees"][str(self.position.node_rank)]
        address = self._address()
        port = self.order["port"]
        own = layout.variables(self.job, self.position, address, port)
        variables = dict(self.order["told"], **own)
        argv = layout.argv_at(self.job, self.order["argv"], self.position, address, port)
        try:
            self.command.start(argv, variables)
        except FAILURES as error:
            self._tell_failure(error)
        else:
            attempt = self.job_dir.attempt(self.order["attempt"])
            self.command.open_door(attempt.door_of(self.position.rank))

    def _address(self) -> str:
        """Return the first node's name, or its address if the name cannot be resolved here."""
        name = str(self.order["address"])
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            return self.position.launched_from or name
        return name

    def _pass_on(self, message: "Order") -> None:
        self._rescue()
        self._say("asked", caught=self._is_running() and self.command.signal(message["signal"]))

    def _end(self, message: "Order") -> None:
        if not self.command.pid:
            reason = "ended before it started"
            self._tell_end({"exit_code": None, "signal": None, "reason": reason, "hopeless": False})
        elif message["signal"] == signal.SIGKILL:
            kill_all(self.command, self._wait)
        else:
            self.command.terminate()

    def _clear(self, _: "Order") -> None:
        self.command.close_door()
        self.command.end_leftovers()
        until = time.monotonic() + self.command.patience
        while not self.command.is_gone() and time.monotonic() < until:
            self._wait(0.05)
        kill_all(self.command, self._wait)
        self._clean_up()
        self.leaving = True

    # -- the command ------------------------------------------------------------------------------

    def _is_running(self) -> bool:
        return self.command.pid != 0 and not self.command.ended()

    def _reap(self) -> None:
        self.command.reap()
        if self.command.ended() and not self.told_end:
            end = self.command.end()
            if self.meter is not None and end["signal"] == "SIGKILL":
                end["reason"] = self.meter.why_killed() or end["reason"]
            end.setdefault("hopeless", False)
            self._tell_end(end)

    def _tell_failure(self, error: Exception) -> None:
        why = why_not_started(error)
        end = {
            "exit_code": why["exit_code"],
            "signal": why["signal"],
            "reason": why["reason"],
            "hopeless": why.get("hopeless", False),
        }  # type: CommandEnd
        if "cause" in why:
            end["cause"] = why["cause"]
        self._tell_end(end)

    def _tell_end(self, end: "CommandEnd") -> None:
        if self.told_end:
            return
        self.told_end = True
        task = layout.describe_task(self.job, self.position)
        self._say("ended", task=task, signalled=self.signalled, **end)

    # -- the node's work tree and memory ----------------------------------------------------------

    def _look_around(self) -> None:
        if self.position.local_rank:
            return
        if time.monotonic() > self.next_rescue:
            self.next_rescue = time.monotonic() + RESCUE
            self._rescue()
        if self.job["resources"]["memory"] and self._is_running():
            used = process.memory_of(self._commands_here())
            if used > self.job["resources"]["memory"]:
                self._say("memory", used=used)

    def _rescue(self) -> None:
        if not self.made_tree:
            return
        try:
            attempt = self.order["attempt"]
            worktree.rescue_outputs(self.job_dir, attempt, self.job["outputs"], folders=False)
        except OSError as error:
            print_message("{}: an output could not be moved: {}".format(self.position.host, error))

    def _commands_here(self) -> "Any":
        """Return all processes of this step on this node, without the tasks of dray's own."""
        step = os.getppid()
        parent_of = process.parents()
        return [pid for pid in process.descendants(step) if parent_of.get(pid) != step]

    def _put_container_away(self) -> None:
        try:
            self.command.clean_up()
        except OSError as error:
            message = "{}: the container's folders could not be cleared: {}"
            print_message(message.format(self.position.host, error))

    def _clean_up(self) -> None:
        log = self.command.log
        if self.position.rank and log and os.path.exists(log) and os.path.getsize(log) == 0:
            files.remove(log)  # most ranks of most trainers have nothing to say
        if self.made_tree or (self.command.sandbox is not None and not self.position.local_rank):
            until = time.monotonic() + LEFTOVER_GRACE + 2.0
            while self._commands_here() and time.monotonic() < until:  # other tasks end theirs, too
                time.sleep(0.05)
            self._put_container_away()
        if not self.made_tree:
            return
        attempt = self.job_dir.attempt(self.order["attempt"])
        attempt.left = attempt.left_on(self.position.host)
        try:
            paths = worktree.clear(self.job_dir, attempt, self.job["outputs"])
        except OSError as error:
            message = "{}: the work tree could not be cleared: {}"
            print_message(message.format(self.position.host, error))
        else:
            if paths:
                self._say("left", paths=paths)


OBEY = {
    "order": Task._take_order,
    "go": Task._go,
    "signal": Task._pass_on,
    "end": Task._end,
    "clear": Task._clear,
}  # type: Dict[str, Callable[[Task, Order], None]]
