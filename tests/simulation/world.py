"""The whole of it: laptops, agents, a batch system and its nodes around one shared folder."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dray.errors import DrayError
from dray.job.model import JobArray, JobSpec, Limits, Resources, Resume
from dray.node.code import worktree
from dray.node.containers import runtimes
from dray.records import replace
from dray.sweep.study import Parameter, Study
from tests.simulation import batch
from tests.simulation.children import Children
from tests.simulation.kernel import Kernel, Process, describe, simulated
from tests.simulation.kind import Place
from tests.simulation.kinds import KINDS
from tests.simulation.laptop import Laptop, Standing
from tests.simulation.luck import Calm, CommandPlan
from tests.simulation.system import is_expected, replaced, replacements
from tests.simulation.truth import ONE_JOB, SECRET, Run, Truth

LAPTOPS = 2
TICK = 2.0  # seconds after which the batch system looks what there is to do
LONGEST = 4 * 3600.0  # seconds that anything may take once the faults are over
KEY = "TOKEN"
TOTAL = 30.0  # seconds that some jobs may run in all
PATIENCE = 300.0  # seconds by which these have to have begun


class World:
    def __init__(
        self,
        seed: int,
        kind: str,
        luck: Calm,
        folder: Path,
        resume_with: str | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = folder
        self.root = str(folder / "root")
        self.resume_with = resume_with
        self.kernel = Kernel(seed)
        self.kernel.trace = trace
        self.truth = Truth(self.kernel, self.root)
        self.kind = KINDS[kind]()
        self.system = self.kind.make_system(self.kernel, luck, self._attempt)
        self.system.submitted = self.truth.queued
        self.children = Children(self.kernel, self._command)
        self.jobs: dict[str, JobSpec] = {}
        self.arrays: dict[str, JobArray] = {}
        os.makedirs(os.path.join(self.root, "node"))  # where the agent itself lies
        self.standing = [Standing() for _ in range(LAPTOPS)]
        self.refusals: list[str] = []

    @property
    def luck(self) -> Calm:
        return self.system.luck

    def replacements(self) -> list[tuple[Any, str, Any]]:
        return [
            *replacements(self.kernel),
            *self.children.replacements(),
            *self.kind.replacements(),
            (worktree, "place_of", lambda job, number, host="": job.work),
            (runtimes, "facts", dict),
        ]

    # -- processes --------------------------------------------------------------------------------

    def spawn(self, role: str, body: Callable[[], Any]) -> Process:
        """One that dray's code runs in, and that may meet a fault."""
        process = self.kernel.spawn(role, body)
        process.fault = self.luck.fault(role)
        process.skew = self.luck.skew()
        process.meets_full_disk = True
        process.host = "login" if role == "agent" else f"node-{process.pid}"
        self.truth.counts[role + "s"] += 1
        return process

    def _attempt(self, place: Place) -> Process:
        process = self.spawn("attempt", lambda: self.kind.run_attempt(place))
        process.at_end.append(self._check_attempt)
        return process

    def _check_attempt(self, process: Process) -> None:
        if not is_expected(process.error) and not isinstance(process.error, SystemExit):
            assert process.error is not None
            self.kernel.say(f"{process} ends by {describe(process.error)}")
            self.truth.counts["attempts ended by an exception"] += 1

    def laptop(self, act: Callable[[Laptop], Any], number: int = 0) -> Process:
        """Each command is a process of its own; what stays is the standing connection."""
        laptop = Laptop(self, number, self.standing[number])
        process = self.kernel.spawn(laptop.name, lambda: act(laptop))
        process.fault = self.luck.fault("laptop")
        process.at_end.append(self._check_laptop)
        return process

    def cancel(self, one: Any) -> None:
        """Have somebody cancel something in the queue, behind dray's back."""
        self.truth.cancelled.add(one.job)
        self.system.cancel(one)

    def _check_laptop(self, process: Process) -> None:
        if process.error is not None:
            self.truth.violate(ONE_JOB, f"the laptop met {describe(process.error)}")

    def refused(self, what: str, error: DrayError) -> None:
        self.truth.counts[f"{what} refused"] += 1
        self.refusals.append(f"{what}: {type(error).__name__}: {error}")

    # -- the command ------------------------------------------------------------------------------

    def _command(self, env: dict[str, str]) -> Command:
        job, attempt = env["DRAY_JOB_ID"], int(env["DRAY_ATTEMPT"])
        run = Run(job, attempt, self.kernel.now)
        run.supervisor = simulated()
        expected = SECRET + job.partition(".")[0]
        has_secret = KEY not in self._spec(job).secrets or env.get(KEY) == expected
        run.gpus = [int(one) for one in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        self.truth.started(run, has_secret)
        plan = self.luck.command()
        self.kernel.say(f"{job}: {run} starts: {plan}")
        return Command(self, run, plan, env["DRAY_OUTPUTS"])

    def _spec(self, job: str) -> JobSpec:
        array = job.rpartition(".")[0]
        return self.arrays[array].common if array in self.arrays else self.jobs[job]

    # -- time -------------------------------------------------------------------------------------

    def let(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.kernel.now + seconds
        while self.kernel.now < until:
            self.kernel.run(min(TICK, until - self.kernel.now))
            self.system.tick()
        self.kernel.run(0)

    def finish(self, process: Process) -> Any:
        """What it returns in the end."""
        until = self.kernel.now + LONGEST
        while not process.ended and self.kernel.now < until:
            self.let(TICK)
        return process.result

    def calm_down(self) -> None:
        """The faults are over."""
        self.system.luck = Calm()
        self.kernel.full_until = 0.0
        for process in self.kernel.processes:
            process.fault = None
        for standing in self.standing:
            standing.hang_up()

    # -- what may happen --------------------------------------------------------------------------

    def new_job(self, retries: int, secret: bool, limit: float | None) -> JobSpec:
        job = self._make_job(f"job-{len(self.jobs)}", retries, secret, limit)
        self.jobs[job.id] = job
        self.truth.retries[job.id] = retries
        if job.limits.total_time:
            self.truth.total_time[job.id] = job.limits.total_time
        return job

    def new_array(self, size: int, retries: int, secret: bool) -> JobArray:
        common = self._make_job(f"sweep-{len(self.arrays)}", retries, secret, None)
        if self.kind.per_node > 1:
            array = trials(common, self.kind.per_node, size)
        else:
            array = JobArray(common, tuple(("train", str(index)) for index in range(size)))
        self.arrays[array.id] = array
        self.truth.retries.update(dict.fromkeys(array.ids, retries))
        return array

    def _make_job(self, job_id: str, retries: int, secret: bool, limit: float | None) -> JobSpec:
        created = self.kernel.now
        has_limits = limit == 60.0
        limits = Limits(total_time=TOTAL, start_by=created + PATIENCE) if has_limits else Limits()
        return JobSpec(
            id=job_id,
            name=job_id,
            command=("train",),
            resources=Resources(time=limit, gpus=self.kind.gpus),
            limits=limits,
            resume=Resume(checkpoint="c-*.json", grace=5.0, backoff=10.0),
            retries=retries,
            secrets=(KEY,) if secret else (),
            created=created,
        )

    def ids(self) -> list[str]:
        return [*self.jobs, *(job for array in self.arrays.values() for job in array.ids)]


def trials(common: JobSpec, per_node: int, size: int) -> JobArray:
    space = (Parameter("lr", "float", low=1e-5, high=1e-1, log=True),)
    study = Study(common.id, space, sampler="random", created=common.created)
    job = replace(common, sweep={"id": common.id, "first": 0, "per_node": per_node})
    return JobArray(job, trials=size, study=study.to_dict())


class Command:
    """A user's command: trains, saves, ends."""

    def __init__(self, world: World, run: Run, plan: CommandPlan, outputs: str) -> None:
        self.world = world
        self.record = run
        self.plan = plan
        self.outputs = outputs

    def run(self) -> int:
        for step in range(self.plan.steps):
            if self._is_asked(self.plan.pause):
                return self._leave()
            self._save(f"c-{self.record.attempt:03d}-{step}.json")
        return self._leave() if self._is_asked(self.plan.pause) else self._code(self.plan.code)

    def _is_asked(self, seconds: float) -> bool:
        """Whether it was, and heeds it."""
        kernel, process = self.world.kernel, simulated()
        assert process is not None
        until = kernel.now + seconds
        while kernel.now < until:
            kernel.sleep(process, until - kernel.now)
            if signal.SIGTERM in process.signals and not self.plan.deaf:
                return True
        return False

    def _leave(self) -> int:
        self.record.heeded = True
        if self.plan.saves_at_end:
            self._save(f"c-{self.record.attempt:03d}-end.json")
        return self._code(0 if self.plan.saves_at_end else 143)

    def _code(self, code: int) -> int:
        self.record.code = code
        return code

    def _save(self, name: str) -> None:
        with suppress(OSError), open(os.path.join(self.outputs, name), "wb") as file:
            file.write(b"{}")

    def ended(self, process: Process) -> None:
        """One that is asked to end at the moment at which it does so by itself is taken for one
        that heeded it."""
        assert self.record.supervisor is not None
        asked = process.dead or signal.SIGTERM in process.signals
        stopped = self.record.job in self.world.truth.stops
        is_ending = self.record.supervisor.place.state == batch.ENDING
        self.record.asked = asked or stopped or is_ending
        self.record.ended = self.world.kernel.now
        self.world.kernel.say(f"{self.record.job}: {self.record} ends")


@contextmanager
def made(
    seed: int,
    kind: str,
    luck: Calm,
    resume_with: str | None = None,
    trace: Callable[[str], None] | None = None,
) -> Iterator[World]:
    """A world, in the machine's memory where it can be; nothing of it is left."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="dray-simulation-", dir=place))
    try:
        world = World(seed, kind, luck, folder, resume_with, trace)
        with replaced(world.replacements()):
            try:
                yield world
            finally:
                world.kernel.end_all()
    finally:
        shutil.rmtree(folder)
