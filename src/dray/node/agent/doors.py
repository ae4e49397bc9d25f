"""Requests of those who want into a running job."""

from ..sessions import entering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from ..formats.records import Answer, Request
    from .agent import Agent


def door(agent: "Agent", request: "Request") -> "Answer":
    """Tell where the door of a job's rank is, to a laptop that gets to its node by itself."""
    found = entering.find_door(agent.root.job(request["id"]), request.get("rank", 0))
    return {"place": found["place"], "path": found["socket"], "words": found["words"]}


def enter(agent: "Agent", request: "Request") -> "NoReturn":
    """Become the way to the door of a job's rank: whatever comes after this request is for the job,
    and nobody asks this agent anything any more."""
    job_dir = agent.root.job(request["id"])
    raise SystemExit(entering.lead(job_dir, agent.scheduler, request.get("rank", 0)))
