"""What a site is like: its root, its scheduler, its container runtimes."""

import os
import sys
import time

from ..formats import files, leases, shapes
from ..schedulers import sharing
from ..schedulers.scheduler import SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict  # noqa: F401

    from .agent import Agent

    Record = Dict[str, Any]

FACTS_AGE = 3600.0  # seconds after which it is asked anew what the cluster has


def hello(agent: "Agent", request: "Record") -> "Record":
    """What this place is like, asked anew; the laptop checks jobs by it before it submits."""
    from ..containers import runtimes  # not for every request

    files.make_folder(agent.root.path)
    usage = os.statvfs(agent.root.path)
    found = {
        "time": time.time(),
        "root": agent.root.path,
        "python": sys.version.split()[0],
        "free": usage.f_bavail * usage.f_frsize,
        "files": usage.f_favail if usage.f_files else None,
        "container_facts": runtimes.facts(),
        "locks": leases.facts(agent.root.path),
    }  # type: Record
    found.update(agent.scheduler.describe())
    if request.get("share"):
        found["share"] = sharing.facts(request["share"])
    files.write_json(facts_of(agent), found, durable=False)
    return found


def facts_of(agent: "Agent") -> str:
    return os.path.join(agent.root.path, "facts.json")


def news_of_this_place(agent: "Agent", request: "Record") -> "Record":
    """What is known of it goes along with an answer, unless the laptop has it; what is old is
    asked anew once the answer is on its way."""
    known = files.read_record(facts_of(agent)) or {}
    if not shapes.is_number(known.get("time")) or not is_young(known["time"], FACTS_AGE):
        return {"afterwards": lambda: refresh(agent)}
    news = {"facts": known} if known["time"] != request.get("facts") else {}  # type: Record
    return dict(news, afterwards=agent.root.tidy)


def refresh(agent: "Agent") -> None:
    agent.root.tidy()
    try:
        hello(agent, {})
    except (OSError, SchedulerError):  # nobody waits for it
        pass


def is_young(moment: float, age: float) -> bool:
    return 0 <= time.time() - moment < age
