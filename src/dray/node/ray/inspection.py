"""Looks at the nodes of a Ray cluster, for ``dray cluster check``: whether a job there sees the GPU
that it gets, and only that, which Ray its Python imports, and whether it sees the root.

A small task goes to each node with GPUs, or to all where none has any. One that is busy is not
waited for."""

import json
import os
import sys

from ..formats import files
from . import host
from .placing import connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple  # noqa: F401

MOST_NODES = 200
ANSWERING = 30.0  # seconds
BUSY = "not looked at: none of its GPUs is free now"


def chosen(nodes: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    """Return the nodes to look at."""
    alive = [one for one in nodes if one.get("Alive")]
    with_gpus = [one for one in alive if gpus_of(one)]
    return sorted(with_gpus or alive, key=lambda one: str(one.get("NodeManagerAddress")))[
        :MOST_NODES
    ]


def gpus_of(node: "Dict[str, Any]") -> int:
    return int((node.get("Resources") or {}).get("GPU") or 0)


def inspect(ray: "Any", root: str, python: str) -> "List[Dict[str, Any]]":
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(host)
    sight, token = os.path.join(root, ".seen-" + os.urandom(6).hex()), os.urandom(16)
    files.write_bytes(sight, token, durable=False)
    nodes = chosen(ray.nodes())
    try:
        tasks = [
            ray.remote(host.look_around)
            .options(
                num_cpus=0,
                num_gpus=min(gpus_of(node), 1),
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(python, sight, token)
            for node in nodes
        ]
        done, waiting = ray.wait(tasks, num_returns=len(tasks), timeout=ANSWERING)
        for one in waiting:
            ray.cancel(one, force=True)
        return [seen(ray, node, one, one in done) for node, one in zip(nodes, tasks)]  # noqa: B905
    finally:
        files.discard(sight)


def seen(ray: "Any", node: "Dict[str, Any]", task: "Any", is_done: bool) -> "Dict[str, Any]":
    found = {"address": str(node["NodeManagerAddress"]), "gpus": gpus_of(node), "trouble": BUSY}
    if is_done:
        try:
            found.update(ray.get(task), trouble="")
        except Exception as error:
            found["trouble"] = " ".join(str(error).split())[-300:]
    return found


def main(root: str, python: str) -> int:
    told = inspect(connect(), root, python)
    sys.stdout.write(json.dumps(told) + "\n")
    return 0
