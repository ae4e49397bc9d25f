"""A machine without a scheduler: keepers and their supervisors, and another account beside them.

The queue, the keepers and the supervisors are dray's own; a fork is a process of the kernel that
has copies of the open files, and goes on where the child would.
"""

from __future__ import annotations

import copy
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dray.clusters.ssh import SshCluster
from dray.node.attempt import keeper
from dray.node.attempt.loop import AttemptLoop
from dray.node.formats import files
from dray.node.jobs.jobdir import AttemptDir, JobDir
from dray.node.processes import process as node_process
from dray.node.schedulers import local, scheduler, sharing
from dray.node.schedulers.queue import Grant
from dray.node.schedulers.scheduler import NoAnswer, Scheduler, SchedulerError
from dray.node.schedulers.shared_queue import SharedQueue
from tests.simulation.batch import ENDING, NODE_FAIL, RUNNING, append
from tests.simulation.kernel import Exited, Kernel, Process, simulated
from tests.simulation.kind import Kind
from tests.simulation.luck import Calm
from tests.simulation.system import REAL, TICK

if TYPE_CHECKING:
    from tests.simulation.world import World

GPUS = 2
CAPACITY = {"cpus": 4, "gpus": GPUS, "memory": 1 << 30}
OWN, OTHER = 1001, 1002  # accounts
NAP = 1.0  # seconds between two looks at the ticket ahead: shorter ones only take longer here
OWNER = re.compile(r"/share/([0-9]+)-")


class Kept:
    """A process of a job, and what it does."""

    def __init__(self, path: str, body: Callable[[], Any]) -> None:
        self.path = path
        self.body = body
        self.state = RUNNING
        self.process: Process | None = None

    @property
    def job(self) -> str:
        """dray's id of it."""
        return os.path.basename(self.path)


class SimulatedKeeper(keeper.Keeper):
    """``os.fork`` is told what the child does next; the rest is as it is."""

    def __init__(self, job_dir: JobDir, alive: int, ticket: int | None) -> None:
        super().__init__(job_dir, alive, ticket)
        me().forks = lambda child: self._copied(child).keep()

    def supervise(self, attempt: AttemptDir) -> None:
        parent = me().pid

        def be_supervisor(child: Process) -> None:
            copied = self._copied(child)
            assert copied.grant is not None
            copied._be_supervisor(attempt, copied.grant, parent)

        me().forks = be_supervisor
        super().supervise(attempt)

    def _copied(self, child: Process) -> SimulatedKeeper:
        """This one, in a child: with the same open files, under numbers of its own."""
        copied = copy.copy(self)
        mine = child.inherited
        copied.alive = mine[self.alive]
        copied.ticket = None if self.ticket is None else mine[self.ticket]
        if self.grant is not None:
            fd = mine.get(self.grant.fd, -1)  # given back already, by one that forks again
            copied.grant = Grant(self.grant.path, fd, self.grant.given)
        copied.loop = AttemptLoop(self.job_dir, self.job, copied)
        return copied


def me() -> Process:
    process = simulated()
    assert process is not None
    return process


class MachineSystem:
    """``start`` starts a keeper or a supervisor."""

    def __init__(self, kernel: Kernel, luck: Calm, start: Callable[[Any], Process]) -> None:
        self.kernel = kernel
        self.luck = luck
        self.start = start
        self.submitted: Callable[[Any, Any], None] = lambda job, beside: None
        self.jobs: list[Kept] = []

    def begin(self, kept: Kept) -> Process:
        self.jobs.append(kept)
        kept.process = process = self.start(kept)
        process.place = kept
        process.output = lambda text: append(f"{kept.path}/batch.log", text)
        return process

    def tick(self) -> None:
        """All that happens here is done by processes."""

    def live(self) -> list[Kept]:
        return [one for one in self.jobs if one.process is not None and not one.process.ended]

    def running(self) -> list[Kept]:
        return self.live()

    def is_idle(self) -> bool:
        return not self.live()

    def cancel(self, job: Kept) -> None:
        """Somebody kills one of its processes."""
        if job.process is not None:
            self.kernel.kill(job.process)

    def end(self, place: Kept, fate: str, *, at_once: bool = False) -> None:
        """Somebody ends a process, or kills it; or the machine is started anew."""
        if fate == NODE_FAIL:
            self.kernel.say("the machine is started anew")
            for process in list(self.kernel.processes):
                if process.host == "box":
                    self.kernel.kill(process)
        elif at_once:
            self.cancel(place)
        elif place.process is not None:
            place.state = ENDING
            self.kernel.signal(place.process, signal.SIGTERM)


class SshKind(Kind):
    cluster = SshCluster
    system: MachineSystem
    gpus = 1.0
    is_one_machine = True

    def make_system(
        self, kernel: Kernel, luck: Calm, start: Callable[[Any], Process]
    ) -> MachineSystem:
        self.kernel = kernel
        self.system = MachineSystem(kernel, luck, start)
        return self.system

    def settings(self, world: World) -> dict[str, Any]:
        return {**super().settings(world), **CAPACITY}

    def make_scheduler(self, root: str) -> Scheduler:
        return local.Local(root)

    def host(self, agent: Process) -> None:
        agent.host, agent.skew, agent.uid = "box", 0.0, OWN

    def run_attempt(self, place: Kept) -> Any:
        process = me()
        process.host, process.skew, process.uid = "box", 0.0, OWN
        return place.body()

    # -- what processes ask of the machine --------------------------------------------------------

    def call(self, *words: str, **more: Any) -> str:
        """As ``scheduler.call``: start a keeper by its script, which ends once it has forked."""
        process = me()
        self.kernel.step(process, words[0])
        if words[0] != "bash":
            raise SchedulerError(f"{words[0]}: command not found")
        path = os.path.dirname(words[2])
        alive, ticket = (os.dup(fd) for fd in more["keep_open"])
        script = self.system.begin(Kept(path, lambda: keeper.main(path, alive, ticket)))
        script.fds.update((alive, ticket))
        process.helpers.append(script)
        if not self.kernel.wait_for(process, lambda: script.ended, scheduler.PATIENCE):
            raise NoAnswer("bash did not answer")
        if script.dead or script.error is not None or script.result != 0:
            raise SchedulerError(f"bash ended: {script.error}")
        return ""

    def fork(self) -> int:
        parent = me()
        self.kernel.step(parent, "fork")
        forks = parent.forks
        assert forks is not None
        inherited = {fd: os.dup(fd) for fd in parent.fds}
        kept = Kept(parent.place.path, lambda: forks(child))
        child = self.system.begin(kept)
        child.inherited = inherited
        child.fds.update(inherited.values())
        child.parent = parent
        child.handlers = dict(parent.handlers)
        child.blocks_signals = parent.blocks_signals
        child.at_end.append(lambda _: self._tell(parent, child))
        parent.helpers.append(child)
        return child.pid

    def _tell(self, parent: Process, child: Process) -> None:
        if parent.ended or parent.dead:
            return
        parent.reaped.append((child.pid, child.status))
        if parent.blocks_signals:
            self.kernel.signal(parent, signal.SIGCHLD)

    def getppid(self) -> int:
        parent = me().parent
        return parent.pid if parent is not None and not parent.ended and not parent.dead else 1

    def exit(self, code: int) -> None:
        raise Exited(code)

    def send_signal(self, pid: int, number: int) -> None:
        """As ``os.kill``."""
        for process in self.kernel.processes:
            if process.pid == pid:
                if number == signal.SIGKILL:
                    self.kernel.kill(process)
                else:
                    self.kernel.signal(process, number)
                return
        raise ProcessLookupError

    def send(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                self.send_signal(pid, number)

    def descendants(self, _: int, __: int = 0) -> list[int]:
        mine = me()
        below = [*mine.children, *mine.helpers]
        below += [one for helper in mine.helpers for one in helper.children]
        return [one.pid for one in below if not one.ended]

    def marked_with(self, job: str) -> list[int]:
        """The commands of a job, whoever started them."""
        return [one.pid for one in self.kernel.processes if one.mark == job]

    def keeper_pid(self, job_dir: JobDir) -> int | None:
        try:
            with REAL.open_file(job_dir.alive, "rb") as file:
                pid = int(file.read(20) or b"0")
        except (OSError, ValueError):
            return None
        for kept in self.system.live():
            if kept.process is not None and kept.process.pid == pid and kept.path == job_dir.path:
                return pid
        return None

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            (local, "call", self.call),
            (scheduler, "of_kind", lambda kind, root="": local.Local(root)),
            (keeper, "Keeper", SimulatedKeeper),
            (JobDir, "keeper_pid", self._keeper_pid_of()),
            (os, "fork", self.fork),
            (os, "setsid", lambda: None),
            (os, "getppid", self.getppid),
            (os, "_exit", self.exit),
            (os, "kill", self.send_signal),
            (node_process, "send", self.send),
            (node_process, "descendants", self.descendants),
            (node_process, "marked_with", self.marked_with),
        ]

    def _keeper_pid_of(self) -> Callable[[JobDir], int | None]:
        return lambda job_dir: self.keeper_pid(job_dir)


# -- several accounts -----------------------------------------------------------------------------


class SharedKind(SshKind):
    """The same with a queue for all accounts; another account waits and runs there too."""

    def __init__(self) -> None:
        self.changed: dict[int, int] = {}  # inode → when it was last named, in nanoseconds

    def settings(self, world: World) -> dict[str, Any]:
        share = world.folder / "share"
        if not share.exists():
            share.mkdir()
            share.chmod(0o1777)
        self.share, self.root = str(share), str(world.folder / "other")
        return {**super().settings(world), "share": self.share}

    def event(self, world: World) -> None:
        """A job of the other account's comes."""
        world.truth.counts["rivals"] += 1
        name = f"rival-{world.truth.counts['rivals']}"
        seconds = world.luck.delay() * 1000
        rival = world.spawn("rival", lambda: self._rival(world, name, seconds))
        rival.host, rival.skew, rival.uid, rival.meets_full_disk = "box", 0.0, OTHER, False

    def _rival(self, world: World, name: str, seconds: float) -> None:
        queue = SharedQueue(self.root, self.share)
        os.makedirs(self.root, exist_ok=True)
        queue.make()
        wanted: Any = {"cpus": 1, "gpus": 1, "memory": None}
        files.write_json(queue.capacity, CAPACITY, durable=False)
        ticket = queue.take_ticket(name, wanted)
        grant = queue.wait_for_grant(ticket, name, wanted)
        process = me()
        world.truth.holds(process, name, grant.given["gpus"])
        self.kernel.sleep(process, seconds)
        world.truth.gives_back(process)
        grant.release()

    def geteuid(self) -> int:
        process = simulated()
        return process.uid if process is not None else OWN

    def fstat(self, fd: int, real: Callable[[int], os.stat_result] = os.fstat) -> Any:
        return self._seen(real(fd), lambda: REAL.readlink(f"/proc/self/fd/{fd}"))

    def lstat(self, path: Any, real: Callable[..., os.stat_result] = os.lstat, **more: Any) -> Any:
        process = simulated()
        if process is not None:
            self.kernel.step(process, "lstat")
        return self._seen(real(path, **more), lambda: os.fspath(path))

    def _seen(self, found: os.stat_result, path: Callable[[], str]) -> Any:
        owner = OWNER.search(path()) if simulated() is not None else None
        return Seen(found, int(owner[1]), self.changed) if owner else found

    def rename(self, old: str, new: str, real: Callable[[str, str], None] = os.rename) -> None:
        process = simulated()
        if process is not None:
            self.kernel.step(process, "rename", needs_space=True)
        real(old, new)
        if OWNER.search(new):
            self.changed[REAL.inode(new)] = int(self.kernel.now * TICK) * int(1e9 / TICK)

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            *super().replacements(),
            (os, "geteuid", self.geteuid),
            (os, "fstat", self.fstat),
            (os, "lstat", self.lstat),
            (os, "rename", self.rename),
            (sharing, "SHORTEST_NAP", NAP),
            (sharing, "LONGEST_NAP", NAP),
        ]


class Seen:
    """A file of the shared folder, as the account sees it whose folder it is in."""

    def __init__(self, found: os.stat_result, owner: int, changed: dict[int, int]) -> None:
        self.found = found
        self.st_uid = owner
        self.st_ctime_ns = changed.get(found.st_ino, found.st_mtime_ns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.found, name)
