"""Jobs that end on nodes which Kubernetes does not hear of any more: in the simulated one, with the
laptop's requests, the helper's agent and the pods as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dray.job.model import JobState
from tests.simulation import batch
from tests.simulation.kernel import FOREVER
from tests.simulation.luck import Calm, CommandPlan, NodeLoss
from tests.simulation.world import World, made

LONG = 600.0  # seconds: longer than any patience with a node


class CutOff(Calm):
    """A lost node runs on, and never comes back; the first command ends with this code."""

    code = 0

    def node_loss(self) -> NodeLoss:
        return NodeLoss(FOREVER, FOREVER)

    def command(self) -> CommandPlan:
        code, self.code = self.code, 0
        return CommandPlan(code=code)


@pytest.fixture
def luck() -> CutOff:
    return CutOff()


@pytest.fixture
def world(luck: CutOff) -> Iterator[World]:
    with made(0, "kubernetes", luck) as world:
        yield world
        assert not world.truth.violations


def ends_on_a_lost_node(world: World) -> str:
    """Submit a job whose node is lost before it ends; return its id."""
    job = world.new_job(retries=0, secret=True, limit=None)
    world.finish(world.laptop(lambda laptop: laptop.submit(job)))
    while job.id not in world.truth.runs:
        world.let(1.0)
    (pod,) = [one for one in world.system.running() if one.job.job == job.id]
    world.system.end(pod, batch.NODE_FAIL, at_once=True)
    world.let(LONG)
    return job.id


def look(world: World, job: str) -> JobState:
    views: dict[str, Any] = world.finish(world.laptop(lambda laptop: laptop.look([job])))
    return JobState(views[job].state)


def test_its_job_goes(world: World) -> None:
    """It would wait there for as long as its node does not come back."""
    job = ends_on_a_lost_node(world)
    assert [one.name for one in world.system.live()] == [job]
    assert look(world, job) is JobState.DONE
    assert world.system.live() == []


def test_a_resume_takes_the_former_job_away(world: World, luck: CutOff) -> None:
    luck.code = 3
    job = ends_on_a_lost_node(world)
    world.finish(world.laptop(lambda laptop: laptop.resume(job)))
    world.let(LONG)
    assert look(world, job) is JobState.DONE
    assert world.system.live() == []
