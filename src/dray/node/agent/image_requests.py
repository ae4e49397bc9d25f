"""Requests about images: see dray.node.root.images."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..formats.records import Answer, ImageLook, Request
    from .agent import Agent


def look(agent: "Agent", request: "Request") -> "ImageLook":
    return agent.images.look(request["id"], request["layers"])


def announce(agent: "Agent", request: "Request") -> "Answer":
    agent.images.announce(request["record"])
    return {}


def take_part(agent: "Agent", request: "Request") -> "Answer":
    part = (request["layer"], request["offset"], request["length"], request["last"])
    agent.receive(agent.images.part(*part), request["sha256"])
    return {}


def listing(agent: "Agent", _: "Request") -> "Answer":
    return {"images": agent.images.listing()}


def remove(agent: "Agent", request: "Request") -> "Answer":
    agent.images.remove(request["id"])
    return {}
