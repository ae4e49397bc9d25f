"""What a site is like: its root, its scheduler, its container runtimes."""

import os
import sys
import time

from ..formats import files, leases, shapes
from ..schedulers.scheduler import SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401

    from ..formats.records import Answer, Request, SiteFacts
    from .agent import Agent

FACTS_AGE = 3600.0  # seconds after which it is asked anew what the cluster has


def hello(agent: "Agent", _: "Request") -> "SiteFacts":
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
    }  # type: SiteFacts
    found.update(agent.scheduler.describe())
    files.write_json(facts_of(agent), found, durable=False)
    return found


def facts_of(agent: "Agent") -> str:
    return os.path.join(agent.root.path, "facts.json")


def news_of_this_place(agent: "Agent", request: "Request") -> "Answer":
    """What is known of it goes along with an answer, unless the laptop has it; what is old is
    asked anew once the answer is on its way."""
    found = files.read_record(facts_of(agent)) or {}  # type: Any
    if not shapes.is_number(found.get("time")) or not is_young(found["time"], FACTS_AGE):
        return {"afterwards": lambda: refresh(agent)}
    known = found  # type: SiteFacts
    news = {"afterwards": agent.root.tidy}  # type: Answer
    if known["time"] != request.get("facts"):
        news["facts"] = known
    return news


def refresh(agent: "Agent") -> None:
    agent.root.tidy()
    try:
        hello(agent, {})
    except (OSError, SchedulerError):  # nobody waits for it
        pass


def is_young(moment: float, age: float) -> bool:
    return 0 <= time.time() - moment < age
