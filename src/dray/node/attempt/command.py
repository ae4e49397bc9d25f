"""Starts the command on this machine, signals it, and ends it with all its descendants.

``ranks.Ranks`` has the same interface for a command that is spread over tasks and nodes."""

import os
import signal

from ..formats import files
from ..formats.messages import print_message
from ..processes import process
from ..processes.environment import IN_CONTAINER, environment
from ..processes.process import describe_end
from ..sessions import commands, door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Union

    from ..containers.sandbox import Sandbox
    from ..formats.records import CommandEnd, Description
    from ..jobs.jobdir import JobDir
    from ..schedulers.scheduler import Scheduler
    from .ranks import Ranks

# As a shell, or a container, tells that what was in it ended by such a signal.
SIGNALLED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
SAME_NODE = 0.2  # seconds between the signals that a scheduler sends to all of a job
# A process that hangs in the kernel (a dead file server, a GPU's driver) ends when that does.
NOT_TO_BE_KILLED = {
    "exit_code": None,
    "signal": None,
    "reason": "it could not be killed",
}  # type: CommandEnd
# What a supervisor, or a task, waits for.
HANDLED_SIGNALS = (
    signal.SIGCHLD,
    signal.SIGIO,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
LEFTOVER_GRACE = 5.0  # for background processes once the command itself has ended


def leftover_grace(job: "Description") -> float:
    return min(LEFTOVER_GRACE, max(float(job["resume"]["grace"]), 0.1))


def kill_all(command: "Union[Command, Ranks]", wait: "Callable[[float], None]") -> None:
    """Send SIGKILL until no process is left."""
    for _ in range(1000):
        if command.kill():
            return
        wait(0.02)


class Command:
    departing = ""  # no other node that it needs

    def __init__(
        self, job_dir: "JobDir", job: "Description", base: "Dict[str, str]", log: str
    ) -> None:
        self.job_dir = job_dir
        self.job = job
        self.patience = leftover_grace(job)  # for what is left once it has ended
        self.base = base
        self.log = log
        self.rank = 0
        self.argv = []  # type: List[str]
        self.container = []  # type: List[str]  # how its runtime was called
        self.pid = 0
        self.status = None  # type: Optional[int]  # wait status
        self.sandbox = self._make_sandbox()
        self.variables = {}  # type: Dict[str, str]
        self.door = None  # type: Optional[door.Door]

    def _make_sandbox(self) -> "Optional[Sandbox]":
        if not self.job.get("container"):
            return None
        from ..containers.sandbox import Sandbox  # brings all of containers: not for every attempt

        return Sandbox(self.job_dir, self.job, self.base)

    def assign_rank(self, rank: int, host: str) -> None:
        """Set the command's rank, where it is one of several tasks."""
        self.rank = rank
        if self.sandbox is not None:
            self.sandbox.host = host

    def prepare(self) -> None:
        """Make what the command's container needs, once on each node."""
        if self.sandbox is not None:
            self.sandbox.prepare()

    def start(self, argv: "List[str]", variables: "Dict[str, str]") -> None:
        """Start the command; ``variables`` describe this attempt in its environment."""
        self.argv = argv
        self.variables = variables
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, files.PRIVATE_FILE)
        try:
            folder = self._folder()
            files.make_folder(folder, durable=False)
            if self.sandbox is not None:
                self.pid = self._start_in(self.sandbox, log)
            else:
                self.pid = process.start(argv, folder, self._environment(), log)
        finally:
            os.close(log)

    def _folder(self) -> str:
        return os.path.join(self.job_dir.work, self.job["folder"])

    def _environment(self) -> "Dict[str, str]":
        """Return what the command sees, or would see outside its container."""
        work = self.job_dir.work
        return environment(self.job_dir, self.job, self.base, self.variables, work)

    def _environment_in(self, sandbox: "Sandbox") -> "Dict[str, str]":
        code = sandbox.code()
        return environment(self.job_dir, self.job, sandbox.base(), self.variables, code)

    def _start_in(self, sandbox: "Sandbox", log: int) -> int:
        self.container = sandbox.argv(self.rank)
        script = sandbox.input(self.rank, self.argv, self._environment_in(sandbox))
        try:
            return process.start(self.container, self.job_dir.work, sandbox.around(), log, script)
        finally:
            os.close(script)

    # -- the way in -------------------------------------------------------------------------------

    def open_door(self, path: str) -> None:
        """Let the user in, beside the running command. A command runs as well without."""
        try:
            batch = self._scheduler()
            place = batch.own_place() if batch is not None else {}
            is_called = batch is not None and batch.is_called
            is_attended = commands.is_held(self.job["command"])
            self.door = door.Door(path, place, self._describe, is_called, is_attended)
        except (OSError, KeyError) as error:
            print_message("nobody can be let in: {}".format(error))

    def _scheduler(self) -> "Optional[Scheduler]":
        settings = self.job.get("scheduler")
        if not settings:
            return None
        from ..schedulers import scheduler  # not for a job of this machine

        return scheduler.of_kind(settings["kind"], self.job_dir.root)

    def _describe(self) -> "Dict[str, Any]":
        """Return what processes beside the command see."""
        found = {
            "folder": self._folder(),
            "env": self._environment(),
            "container": None,
            "session": None,
        }  # type: Dict[str, Any]
        if self.sandbox is not None:
            env = self._environment_in(self.sandbox)
            found["container"] = self.sandbox.describe(self.rank, self.container, env)
        if commands.is_session(self.job["command"]):
            from ..sessions import holding  # only here

            attempt = self.job_dir.attempt(int(self.variables["DRAY_ATTEMPT"]))
            run = found["container"]["run"] if found["container"] else ""
            session = holding.describe(self.job["command"], attempt, run)
            tree = {"work": self.job_dir.work, "root": self.job_dir.root}
            found["session"] = dict(session, snapshot=self.job["snapshot"], **tree)
        return found

    def close_door(self) -> None:
        """End all that was started beside the command."""
        if self.door is not None:
            self.door.close(self.reap)
            self.door = None

    def reap(self) -> None:
        for pid, status in process.reap():
            if pid == self.pid:
                self.status = status
            elif self.door is not None:
                self.door.reaped(pid)

    def listen(self) -> None:
        """Look who is at the door. The command itself sends no messages."""
        if self.door is not None:
            self.door.look()

    def _below(self) -> "List[int]":
        """Return all that belongs to the command, without what was started beside it."""
        return process.descendants(os.getpid(), self.door.server if self.door else 0)

    def ended(self) -> bool:
        return self.status is not None

    def ahead_of_us(self) -> float:
        """Return by how many seconds its end may have come before the signal that tells us why."""
        assert self.status is not None
        by_signal = os.WIFSIGNALED(self.status) or os.WEXITSTATUS(self.status) in SIGNALLED
        return SAME_NODE if by_signal else 0.0

    def end(self) -> "CommandEnd":
        if self.status is None:
            return NOT_TO_BE_KILLED.copy()
        code, name = process.read_status(self.status)
        if self.sandbox is not None:
            return self.sandbox.end(self.rank, self.argv, self.log, code, name)
        return {"exit_code": code, "signal": name, "reason": describe_end(code, name)}

    def signal(self, number: int) -> bool:
        """Signal the trainer; return False where no process has a handler, and the signal would
        only kill."""
        trainers = process.topmost_catchers(self._processes(), number)
        process.send(trainers, number)
        return bool(trainers)

    def _processes(self) -> "List[int]":
        """Return the command's processes, without those that a container needs around it."""
        if self.sandbox is None:
            return self._below()
        inside = self.sandbox.process_id(self.rank)
        apart = self.door.server if self.door else 0
        return process.inside(os.getpid(), inside, IN_CONTAINER, apart)

    def terminate(self) -> None:
        below = self._processes() or self._below()
        gentle = process.topmost_catchers(below, signal.SIGTERM) or below
        process.send(gentle, signal.SIGTERM)

    def kill(self) -> bool:
        """Send SIGKILL once to all that is left; return True once nothing is. A process may fork
        meanwhile, and has to be reaped before it counts as gone."""
        if self.is_gone():
            return True
        process.send(self._below(), signal.SIGKILL)
        return False

    def end_leftovers(self) -> None:
        """Terminate what the command left in the background."""
        left = self._processes() or self._below()
        process.send(left, signal.SIGTERM)

    def clean_up(self) -> None:
        """Remove what the command's container needed."""
        self.close_door()
        if self.sandbox is not None:
            self.sandbox.clean_up(self.status is None or os.WIFSIGNALED(self.status))

    def is_gone(self) -> bool:
        started = self.pid != 0
        return not self._below() and (self.status is not None or not started)

    def memory(self) -> int:
        return process.memory_of(self._below())

    def left_elsewhere(self) -> "List[str]":
        return []
