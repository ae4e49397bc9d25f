"""What a kind of cluster is to the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from dray.clusters.agent.cluster import BatchCluster
from dray.node.schedulers.scheduler import Scheduler
from tests.simulation.kernel import Kernel, Process, simulated
from tests.simulation.luck import Calm

if TYPE_CHECKING:
    from tests.simulation.laptop import Laptop
    from tests.simulation.world import World


class Place(Protocol):
    """Where an attempt is made: a batch job, or a pod."""

    state: str


class System(Protocol):
    """What starts attempts, and takes away where they are."""

    kernel: Kernel
    luck: Calm
    jobs: list[Any]  # all that were submitted
    submitted: Callable[[Any, Any], None]  # with another one that does the same, if there is one

    def tick(self) -> None:
        """Do what there is to do by now."""

    def live(self) -> list[Any]:
        """What somebody could cancel."""

    def cancel(self, job: Any) -> None:
        """Do that."""

    def running(self) -> list[Any]:
        """The places of attempts that could be taken away."""

    def end(self, place: Any, fate: str, *, at_once: bool = False) -> None:
        """Do that."""

    def is_idle(self) -> bool:
        """Whether nothing will be started any more."""


class Kind:
    cluster: type[BatchCluster]
    scheduler: type[Scheduler]
    has_arrays = True
    gpus = 0.0  # that jobs ask for
    arrays = 0.25  # how many of the submissions are arrays
    per_node = 1  # jobs of an array that share a place; where there are more, they are trials
    goes_on_by_looks = False  # whether some things only happen when somebody looks
    system: System

    def make_system(self, kernel: Kernel, luck: Calm, start: Callable[[Any], Process]) -> System:
        """Make what starts the attempts."""
        raise NotImplementedError

    def settings(self, world: World) -> dict[str, Any]:
        return {"host": "login", "root": world.root, "resume_with": world.resume_with}

    def make_scheduler(self, root: str) -> Scheduler:  # noqa: ARG002
        """What an agent asks."""
        return self.scheduler()

    def equip(self, laptop: Laptop) -> None:
        """Give a laptop what it needs besides the link."""

    def host(self, agent: Process) -> None:
        """Start an agent; raises LinkLost where it cannot be reached."""

    def run_attempt(self, place: Any) -> Any:
        """What is started in a place."""
        raise NotImplementedError

    def replacements(self) -> list[tuple[Any, str, Any]]:
        raise NotImplementedError

    def event(self, world: World) -> None:
        """What may happen there besides."""

    def left(self) -> list[str]:
        """What is left there of jobs that were removed."""
        return []


def place() -> Any:
    """Where this process is."""
    process = simulated()
    assert process is not None
    return process.place
