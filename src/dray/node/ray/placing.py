"""Nodes of a Ray cluster for one job: a placement group, and an actor on each. The only module that
imports Ray, which is there wherever this runs."""

import functools
import logging
import time

from ..processes import layout
from . import host
from .refusals import said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence  # noqa: F401

    from ..formats.records import Description

STARTING = 300.0  # seconds for Ray to start an actor on a node that it has given us
CLEARING = 120.0  # seconds for the other nodes of a job once one is lost
LOOK = 1.0
CHOICE = 30.0  # seconds in which a node that was chosen has to be free
THREADS = 4  # of an actor: one waits for the program, and others care for files
ASKING = 600.0  # seconds for a node to answer, which may have to read much
NAMESPACE = "dray"


class Lost(Exception):
    """A node died, or Ray has ended what ran there."""


class Refused(Lost):
    """A node that is there cannot take the job's files."""

    def __init__(self, address: str, reason: str) -> None:
        Lost.__init__(self, "its node {} could not take its files: {}".format(address, reason))
        self.address = address
        self.reason = reason


def connect() -> "Any":
    """Import Ray, and join the cluster as a driver."""
    import ray

    ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    return ray


def bundle_of(job: "Description") -> "Dict[str, float]":
    """Return what one node has to have, in Ray's words."""
    wanted = job["resources"]
    bundle = {"CPU": float(wanted["cpus"])}
    if wanted["gpus"]:
        bundle["GPU"] = float(wanted["gpus"])
    memory = wanted.get("memory")
    if memory:
        bundle["memory"] = float(memory)
    kind = wanted.get("gpu_type")
    if kind:
        bundle["accelerator_type:" + kind] = 0.001  # nodes say their type by such a resource
    return bundle


def wanted_in_words(ray: "Any", job: "Description") -> str:
    """Say what the job waits for, and what is free in the cluster."""
    bundle, nodes = bundle_of(job), layout.nodes_of(job)
    kinds = [one for one in ("GPU", "CPU") if one in bundle]
    wanted = ", ".join(asked_for(job, bundle, kinds))
    wanted += " on each of {} nodes".format(nodes) if nodes > 1 else ""
    try:
        free, have = ray.available_resources(), ray.cluster_resources()
        is_there = len(fitting(ray, job)) >= nodes
    except Exception:  # it serves people only
        return "waiting for " + wanted
    if not is_there:
        return "waiting for {}, which Ray has {} now".format(
            wanted, "no node for" if nodes == 1 else "too few nodes for"
        )
    known = [
        "{:g} of {:g} {}s".format(free.get(one, 0.0), have.get(one, 0.0), one) for one in kinds
    ]
    return "waiting for {}; free in the whole cluster: {}".format(wanted, ", ".join(known))


def asked_for(
    job: "Description", bundle: "Dict[str, float]", kinds: "Sequence[str]"
) -> "List[str]":
    """Return what one node has to have, in people's words."""
    found = ["{:g} {}".format(bundle[one], one) for one in kinds]
    kind, memory = job["resources"].get("gpu_type"), bundle.get("memory")
    if kind:
        found[0] += " of type " + kind
    return found + (["{:.1f} GB of memory".format(memory / 2.0**30)] if memory else [])


def fitting(ray: "Any", job: "Description") -> "List[str]":
    """Return the addresses of the nodes that could have the job, whether they are free or not."""
    bundle = bundle_of(job)
    try:
        nodes = list(ray.nodes())
    except Exception:  # nothing is known, then
        return []
    found = []  # type: List[str]
    for node in nodes:
        have = node.get("Resources") or {}
        if node.get("Alive") and all(have.get(name, 0.0) >= bundle[name] for name in bundle):
            found.append(str(node.get("NodeManagerAddress")))
    return found


def bundles_of(
    bundle: "Dict[str, float]", nodes: int, wanted: "Sequence[str]"
) -> "List[Dict[str, float]]":
    """Return what each node has to have, with the nodes that are wanted by name."""
    named = [{"node:" + one: 0.001} for one in wanted[:nodes]]  # each node has such a resource
    return [dict(bundle, **one) for one in named] + [bundle] * (nodes - len(named))


def make_host(ray: "Any") -> "Any":
    """Make the actor's class. Its module is sent to the nodes as it is, since dray is not there."""
    ray.cloudpickle.register_pickle_by_value(host)
    return ray.remote(max_restarts=0, max_concurrency=THREADS)(host.Host)


class Turn:
    """The nodes of one placement, for as long as they last. ``wanted``: addresses of those that it
    is to have; others are not taken."""

    def __init__(self, ray: "Any", job: "Description", wanted: "Sequence[str]" = ()) -> None:
        self.ray = ray
        self.bundle = bundle_of(job)
        self.nodes = layout.nodes_of(job)
        self.wanted = wanted
        self.group = None  # type: Any
        self.asked = 0.0
        self.hosts = []  # type: List[Any]
        self.addresses = []  # type: List[str]

    def __enter__(self) -> "Turn":
        self._ask_for_nodes()
        return self

    def _ask_for_nodes(self) -> None:
        from ray.util.placement_group import placement_group

        strategy = "STRICT_SPREAD" if self.nodes > 1 else "PACK"
        bundles = bundles_of(self.bundle, self.nodes, self.wanted)
        self.group = placement_group(bundles, strategy=strategy)
        self.asked = time.monotonic()

    def __exit__(self, *_: object) -> None:
        for one in self.hosts:
            self.ray.kill(one)
        self._leave_nodes()

    def _leave_nodes(self) -> None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self.group)

    def is_in_vain(self) -> bool:
        """Return whether the nodes that it is to have are busy, and others may be free."""
        return bool(self.wanted) and time.monotonic() - self.asked > CHOICE

    def choose(self, wanted: "Sequence[str]") -> None:
        """Wait for other nodes instead."""
        self._leave_nodes()
        self.wanted = wanted
        self._ask_for_nodes()

    def is_ready(self) -> bool:
        """Wait a moment; return whether all nodes are there."""
        return bool(self.group.wait(LOOK))

    def start(self) -> "List[str]":
        """Start an actor on each node; return their addresses."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        more = {name: self.bundle[name] for name in self.bundle if ":" in name}
        make = make_host(self.ray)
        for place in range(self.nodes):
            strategy = PlacementGroupSchedulingStrategy(
                self.group, placement_group_bundle_index=place
            )
            options = {
                "num_cpus": self.bundle["CPU"],
                "num_gpus": self.bundle.get("GPU", 0),
                "resources": more,
                "scheduling_strategy": strategy,
            }
            if "memory" in self.bundle:
                options["memory"] = self.bundle["memory"]
            self.hosts.append(make.options(**options).remote())
        self.addresses = self._get([one.address.remote() for one in self.hosts], STARTING)
        return self.addresses

    def sees(self, path: str, content: bytes) -> bool:
        """Return whether all nodes see this file."""
        return all(self._get([one.sees.remote(path, content) for one in self.hosts], STARTING))

    def ask(self, place: int, method: str, *arguments: "Any") -> "Any":
        """Call a method of one node's host. What goes wrong there is raised here."""
        return self._get([getattr(self.hosts[place], method).remote(*arguments)], ASKING)[0]

    def asker(self, place: int) -> "Callable[..., Any]":
        return functools.partial(self.ask, place)

    def run(
        self,
        words: "Sequence[str]",
        variables: "Sequence[Dict[str, str]]",
        log: str,
        ends: "Callable[[], bool]",
        look: "Optional[Callable[[], None]]" = None,
    ) -> "List[int]":
        """Run the words on every node; return their exit codes. Once ``ends`` says so, or a node is
        lost, the others are asked to end. Raises Lost where one was. ``look`` is called now and
        then: where it is given, nodes see nothing of each other, and end with the first."""
        running = [
            one.run.remote(list(words), variables[place], log)
            for place, one in enumerate(self.hosts)
        ]
        first = running[0]
        codes, lost, until = [], "", None  # type: List[int], str, Any
        while running:
            if look is not None:
                look()
            done, running = self.ray.wait(running, num_returns=1, timeout=LOOK)
            try:
                codes += self._get(done, STARTING)
            except (Lost, OSError) as error:  # the program could not even be started
                lost = lost or said(error)
            is_over = look is not None and first not in running
            if (lost or is_over or ends()) and until is None:
                until = time.monotonic() + CLEARING
                for one in self.hosts:
                    one.end.remote()
            if (lost or is_over) and until is not None and time.monotonic() > until:
                break
        if lost:
            raise Lost(lost)
        return codes

    def _get(self, references: "List[Any]", seconds: float) -> "List[Any]":
        from ray import exceptions

        try:
            return list(self.ray.get(references, timeout=seconds))
        except (exceptions.RayActorError, exceptions.GetTimeoutError) as error:
            raise Lost("a node was lost: {}".format(said(error)))
