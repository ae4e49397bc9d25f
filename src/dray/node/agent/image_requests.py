"""Requests about images: see dray.node.root.images."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict  # noqa: F401

    from .agent import Agent

    Record = Dict[str, Any]


def look(agent: "Agent", request: "Record") -> "Record":
    return agent.images.look(request["id"], request["layers"])


def announce(agent: "Agent", request: "Record") -> "Record":
    agent.images.announce(request["record"])
    return {}


def take_part(agent: "Agent", request: "Record") -> "Record":
    part = (request["layer"], request["offset"], request["length"], request["last"])
    agent.receive(agent.images.part(*part), request["sha256"])
    return {}


def listing(agent: "Agent", _: "Record") -> "Record":
    return {"images": agent.images.listing()}


def remove(agent: "Agent", request: "Record") -> "Record":
    agent.images.remove(request["id"])
    return {}
