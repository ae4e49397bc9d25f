"""Requests that need only the root: each is read here, and carried out by dray.node.root."""

from ..checkpoints import selecting
from ..formats import shapes
from ..formats.wire import Refusal
from ..jobs import arrays
from ..root import outputs as root_outputs
from ..root.root import checked_id
from . import snapshots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple  # noqa: F401

    from ..formats.records import Answer, Curve, Request, StudyFiles
    from .agent import Agent


def named(request: "Request") -> "List[str]":
    """Return the ids that a request names, one by one."""
    try:
        return [checked_id(one) for one in arrays.unfold(request["ids"])]
    except ValueError as error:
        raise Refusal("Refused", str(error))


def bring(agent: "Agent", request: "Request") -> "Answer":
    """Store files that are not code as a snapshot; return what of it is still missing."""
    return {"missing": snapshots.stage(agent, request)}


def ids(agent: "Agent", _: "Request") -> "Answer":
    return {"ids": arrays.fold(agent.root.ids() + agent.root.ids_in_arrays())}


def log(agent: "Agent", request: "Request") -> "Answer":
    rank = request.get("rank", 0)
    job_id, attempt, offset = request["id"], request["attempt"], request["offset"]
    size, piece = agent.root.read_log(job_id, attempt, offset, rank)
    return {"size": size, "payload": len(piece), "pieces": [piece]}


def log_times(agent: "Agent", request: "Request") -> "Answer":
    return {"times": agent.root.log_times(request["id"], request["attempt"])}


def curve(agent: "Agent", request: "Request") -> "Curve":
    return agent.root.curve(request["id"], str(request.get("name") or ""))


def outputs(agent: "Agent", request: "Request") -> "Answer":
    """List the selected files and links among a job's outputs."""
    return {"files": agent.root.list_outputs(request["id"], *selection_of(request))}


def selection_of(request: "Request") -> "Tuple[List[str], bool]":
    globs = request.get("globs", [])
    if not shapes.is_texts(globs) or len(globs) > selecting.MOST_GLOBS:
        raise Refusal("Refused", "these are no globs")
    if any(len(one) > selecting.LONGEST_GLOB for one in globs):
        raise Refusal("Refused", "a glob is too long")
    return globs, request.get("latest_checkpoint") is True


def checkpoint(agent: "Agent", request: "Request") -> "Answer":
    """Find the checkpoint of a job that another job may begin from, and its files."""
    found = agent.root.checkpoint(request["id"], request["name"], request["rules"])
    wanted = agent.root.describe_outputs(request["id"], found.files)
    return {"path": found.path, "files": wanted, "remarks": found.remarks}


def pull(agent: "Agent", request: "Request") -> "Answer":
    """Send these outputs: what they are now, then their contents."""
    wanted = agent.root.describe_outputs(request["id"], request["paths"])
    pieces = root_outputs.contents(agent.root.outputs(request["id"]), wanted)
    return {"files": wanted, "payload": root_outputs.length(wanted), "pieces": pieces}


def appended(agent: "Agent", request: "Request") -> "Answer":
    """Send what was written to the selected outputs since the laptop last asked."""
    globs, _ = selection_of(request)
    known = request["known"]
    if not shapes.is_record(known) or not all(map(shapes.is_count, known.values())):
        raise Refusal("Refused", "these are no lengths of files")
    found, pieces = agent.root.appended_outputs(request["id"], globs, known)
    return {"parts": found, "payload": sum(map(len, pieces)), "pieces": pieces}


def remove(agent: "Agent", request: "Request") -> "Answer":
    return {"left": agent.root.remove(named(request))}


def sweep(agent: "Agent", request: "Request") -> "StudyFiles":
    return agent.root.sweep_files(request["id"])


def hear_of_others(agent: "Agent", request: "Request") -> "Answer":
    agent.root.hear_of_others(request["id"], request["others"])
    return {}


def close_sweep(agent: "Agent", request: "Request") -> "Answer":
    agent.root.close_sweep(request["id"])
    return {}


def settle(agent: "Agent", request: "Request") -> "Answer":
    """Mark messages as settled: the laptop has sent them, or given up on them."""
    agent.root.settle(named(request), request["over"] is True)
    return {}
