"""One schedule: what a seed lets happen, then the faults are over, then nothing is left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from dray.job.model import JobState, JobView
from tests.simulation import batch
from tests.simulation.laptop import Laptop
from tests.simulation.luck import Luck
from tests.simulation.truth import ENDS, GONE, LEFT, RESUMES, SECRET_LEFT, Violation
from tests.simulation.world import World, made

KINDS = ("slurm", "slurm", "pbs")  # which, by chance; the others are slower: --kind
PAUSES = (0.0, 0.001, 0.005, 0.05, 0.5, 2.0, 5.0, 12.0, 40.0, 130.0)
ROUNDS = 100  # looks at what is left to be done, once the faults are over
LOOK = 30.0
QUIET = 300.0  # seconds; what another machine was killed in the middle of is left alone before


class Report(NamedTuple):
    seed: int
    violations: tuple[Violation, ...]
    counts: Counter[str]
    only: str  # the kind, where it was not the seed that chose it

    @property
    def line(self) -> str:
        """What reproduces it."""
        first = self.violations[0]
        kind = f" KIND={self.only}" if self.only else ""
        return f"make simulate SEED={self.seed}{kind}  # {first.invariant}: {first.detail}"


def play(seed: int, trace: Callable[[str], None] | None = None, only: str = "") -> Report:
    random = Random(seed)
    kind = only or random.choice(KINDS)
    resume_with = random.choice((None, None, "chain"))
    with made(seed, kind, Luck(random.getrandbits(64)), resume_with, trace) as world:
        Events(world, random).play()
        settle(world)
        counts = world.truth.counts
        counts["batch jobs"] = len(world.system.jobs)
        counts["operations"] = world.kernel.operations
        counts["deaths"] = world.kernel.deaths
        counts["errors"] = world.kernel.errors
        return Report(seed, tuple(world.truth.violations), counts, only)


class Events:
    """What happens, by chance."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.to_submit = random.choice((1, 1, 2, 3))
        users = (self.submit, self.submit, self.look, self.look, self.stop, self.resume)
        others = (self.preempt, self.lose_node, self.cancel, self.kill_attempt, self.fill_disk)
        self.events = (*users, self.resume, *others, lambda: world.kind.event(world))

    def play(self) -> None:
        self.submit()
        for _ in range(self.random.randrange(8, 30)):
            self.world.let(self.random.choice(PAUSES))
            self.random.choice(self.events)()
            if self.world.truth.violations:  # what follows would be a consequence of it
                return

    def _laptop(self) -> int:
        return self.random.choice((0, 0, 0, 1))

    def _some_id(self) -> str:
        return self.random.choice(self.world.ids())

    def submit(self) -> None:
        if not self.to_submit:
            return
        self.to_submit -= 1
        random, world = self.random, self.world
        retries, secret = random.choice((0, 1, 2)), random.random() < 0.8
        if random.random() < world.kind.arrays:
            array = world.new_array(random.choice((1, 2, 3)), retries, secret)
            world.laptop(lambda laptop: laptop.submit_array(array), self._laptop())
        else:
            job = world.new_job(retries, secret, random.choice((None, 60.0, 120.0)))
            world.laptop(lambda laptop: laptop.submit(job), self._laptop())

    def look(self) -> None:
        ids = self.world.ids()
        self.world.laptop(lambda laptop: laptop.look(ids), self._laptop())

    def stop(self) -> None:
        job, now = self._some_id(), self.random.random() < 0.3
        if self.random.random() < 0.5:
            self.world.laptop(lambda laptop: laptop.stop([job], now), self._laptop())

    def resume(self) -> None:
        job = self._some_id()
        self.world.laptop(lambda laptop: laptop.resume(job), self._laptop())

    def preempt(self) -> None:
        fate = self.random.choice((batch.REQUEUE, batch.REQUEUE, batch.PREEMPTED))
        self._end_one(fate, at_once=False)

    def lose_node(self) -> None:
        self._end_one(self.random.choice((batch.REQUEUE, batch.NODE_FAIL)), at_once=True)

    def cancel(self) -> None:
        """Behind dray's back."""
        live = self.world.system.live()
        if live and self.random.random() < 0.3:
            self.world.cancel(self.random.choice(live))

    def kill_attempt(self) -> None:
        self._end_one(batch.OUT_OF_MEMORY, at_once=True)

    def fill_disk(self) -> None:
        kernel = self.world.kernel
        if self.random.random() < 0.3:
            kernel.full_until = kernel.now + self.random.choice((0.01, 1.0, 25.0))

    def _end_one(self, fate: str, at_once: bool) -> None:
        running = self.world.system.running()
        if running and self.random.random() < 0.4:
            self.world.system.end(self.random.choice(running), fate, at_once=at_once)


# -- once the faults are over ---------------------------------------------------------------------


def settle(world: World) -> None:
    """All comes to its end; what has not succeeded is resumed; what is removed is gone."""
    world.calm_down()
    world.let(QUIET)
    views = wait_for_ends(world)
    check_secrets(world)
    if world.truth.violations:
        return
    for job in world.truth.accepted - set(views):
        world.truth.violate(GONE, f"{job} was accepted")
    for view in views.values():
        world.truth.counts[f"ended {view.state}"] += 1
    resume_all(world, views)
    check_secrets(world)
    remove_all(world, list(views))


def wait_for_ends(world: World) -> dict[str, JobView]:
    views: dict[str, JobView] = {}
    for _ in range(ROUNDS):
        world.let(LOOK)
        if world.truth.violations:
            return views
        is_busy = not world.system.is_idle() or bool(world.kernel.processes)
        if is_busy and not world.kind.goes_on_by_looks:
            continue
        views = look(world)
        if not is_busy and not any(view.state.active for view in views.values()):
            return views
        follow_advice(world, views)
    world.truth.violate(ENDS, f"{told(views)}; {world.kernel.processes}")
    return views


def look(world: World) -> dict[str, JobView]:
    world.refusals.clear()
    process = world.laptop(lambda laptop: laptop.look(world.ids()))
    views: dict[str, JobView] = world.finish(process) or {}
    if world.refusals:
        world.truth.violate(ENDS, f"status: {world.refusals[-1]}")
    return views


def follow_advice(world: World, views: dict[str, JobView]) -> None:
    """Stop what is said to wait in vain; it is resumed later."""
    for view in views.values():
        if view.state.active and "dray stop it" in view.reason:
            world.finish(world.laptop(partial(Laptop.stop, ids=[view.id], now=False)))


def told(views: dict[str, JobView]) -> str:
    return ", ".join(f"{view.id} {view.state} ({view.reason})" for view in views.values())


def resume_all(world: World, views: dict[str, JobView]) -> None:
    again = [view.id for view in views.values() if view.state is not JobState.DONE]
    for job in again:
        world.refusals.clear()
        world.finish(world.laptop(partial(Laptop.resume, job_id=job)))
        if world.refusals:
            world.truth.violate(RESUMES, f"{job}: {world.refusals[-1]}")
    if not again:
        return
    after = wait_for_ends(world)
    for job in again:
        view = after.get(job)
        if view is None or view.state is not JobState.DONE:
            what = f"{view.state} ({view.reason})" if view else "gone"
            world.truth.violate(RESUMES, f"{job} was {views[job].state}, and is {what}")


def check_secrets(world: World) -> None:
    for path in world.truth.files_with_secrets():
        world.truth.violate(SECRET_LEFT, os.path.relpath(path, world.root))


def remove_all(world: World, ids: list[str]) -> None:
    world.refusals.clear()
    world.finish(world.laptop(lambda laptop: laptop.remove(ids)))
    if world.refusals:
        world.truth.violate(LEFT, world.refusals[-1])
    for folder in ("jobs", "arrays"):
        path = os.path.join(world.root, folder)
        for name in os.listdir(path) if os.path.isdir(path) else ():
            world.truth.violate(LEFT, f"{folder}/{name}")
    world.let(QUIET)
    for thing in world.kind.left():
        world.truth.violate(LEFT, thing)
