"""What a site is like: its root, its scheduler, its container runtimes."""

import errno
import os
import sys
import time

from ..formats import files, leases, shapes
from ..jobs import staging
from ..schedulers.scheduler import SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401

    from ..formats.records import Answer, Request, SiteFacts
    from .agent import Agent

# What file systems say that have no hard links: SMB, and object stores that pose as a folder.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EMLINK)
FACTS_AGE = 3600.0  # seconds after which it is asked anew what the cluster has


def probe(agent: "Agent", request: "Request") -> "SiteFacts":
    """Look at this site and remember what was found; the laptop checks jobs by it before it
    submits."""
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
        "links": can_link(agent.root.path),
    }  # type: SiteFacts
    found.update(agent.scheduler.describe())
    if request.get("share"):
        from ..schedulers import sharing  # only where accounts share the machine

        found["share"] = sharing.facts(request["share"])
    if agent.scheduler.is_told:  # jobs run elsewhere, where there may be no Python at all
        found.update(python_for_jobs(agent.root.path))
    files.write_json(facts_of(agent), found, durable=False)
    return found


def nodes(agent: "Agent", request: "Request") -> "Answer":
    """Look at each node by a process of its own there, where the scheduler has any free."""
    return {
        "inspected": agent.scheduler.inspect_nodes(str(request.get("python") or sys.executable))
    }


def python_for_jobs(root: str) -> "SiteFacts":
    """Bring this Python to where all pods see it; say how it is started there, or why not."""
    from ..formats.interpreters import words
    from ..interpreter import plan, tree

    try:
        return {"machine": os.uname().machine, "pod_python": words(tree.carry(root))}
    except (plan.CannotCarry, OSError) as error:
        return {"machine": os.uname().machine, "pod_python_error": str(error)}


def can_link(folder: str) -> bool:
    """Return whether a file there can have two names: a job keeps its code by that."""
    path = os.path.join(folder, "{}probe-{}".format(staging.LINK, os.urandom(6).hex()))
    try:
        files.write_bytes(path, b"", durable=False)
        os.link(path, path + ".too")
        return True
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return False
    finally:
        for one in (path, path + ".too"):
            files.discard(one)


def facts_of(agent: "Agent") -> str:
    return os.path.join(agent.root.path, "facts.json")


def facts_if_changed(agent: "Agent", request: "Request") -> "Answer":
    """Add what is known of this site to an answer, unless the laptop has it. If that is old, it is
    looked up again once the answer has been sent."""
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
        probe(agent, {})
    except (OSError, SchedulerError):  # nobody waits for it
        pass


def is_young(moment: float, age: float) -> bool:
    return 0 <= time.time() - moment < age
