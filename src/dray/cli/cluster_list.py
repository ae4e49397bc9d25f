"""Lists the clusters, with the jobs there and whether they answer."""

from __future__ import annotations

from collections.abc import Mapping

from dray.cli.arguments import JSON, Parameter, Verb
from dray.cli.output import age, launcher, print_json, table
from dray.cli.terminal import say, tell, visible
from dray.errors import ClusterError
from dray.launcher import Launcher
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dray.clusters.protocol import Cluster

REACHED_BY = ("host", "address", "kuberay", "context")  # the settings that say where one is
SECONDS = 5.0  # for each cluster to answer


class Known(NamedTuple):
    """A cluster in the listing."""

    name: str
    kind: str
    host: str | None
    default: bool
    queued: int
    running: int
    answered: float | None
    answers: bool | None
    problem: str


def list_clusters(check: bool, as_json: bool) -> None:
    """List the clusters of the config files, and local.

    Shows the jobs that are queued and running on each, and how long ago it answered a command of
    yours. No cluster is contacted for that; --check contacts all of them, side by side. A cluster
    that asks for a password counts as not answering, unless a connection to it is open.
    """
    found = look(launcher(), check)
    if as_json:
        print_json([one._asdict() for one in found])
        return
    rows = [
        (
            f"{one.name} (default)" if one.default else one.name,
            one.kind,
            one.host or "this machine",
            show_jobs(one),
            show_answer(one),
        )
        for one in found
    ]
    tell(table(("NAME", "KIND", "HOST", "JOBS", "ANSWERED"), rows))
    for one in found:
        if one.problem:
            say(f"{one.name} does not answer: {visible(one.problem)}")


CHECK = Parameter(("--check",), "check", "Ask each cluster whether it answers (5 s at most).")
VERB = Verb("list", list_clusters, (CHECK, JSON))


def look(verbs: Launcher, check: bool) -> list[Known]:
    config = verbs.config
    problems = unusable(verbs)
    usable = [name for name in config.clusters if name not in problems]
    problems |= verbs.reach(usable, SECONDS) if check else {}
    numbers = verbs.active_numbers()
    return [
        Known(
            name=name,
            kind=one.kind,
            host=place_of(one.settings, verbs.cluster(name) if name in usable else None),
            default=name == config.on,
            queued=numbers.get(name, {}).get("queued", 0),
            running=numbers.get(name, {}).get("running", 0),
            answered=verbs.cluster(name).last_answer() if name in usable else None,
            answers=not problems[name] if check else None,
            problem=problems.get(name, ""),
        )
        for name, one in config.clusters.items()
    ]


def place_of(settings: Mapping[str, Any], cluster: Cluster | None) -> str | None:
    """Return the host, or what stands for it; None for this machine."""
    named = [settings[key] for key in REACHED_BY if settings.get(key)]
    if named or cluster is None:
        return str(named[0]) if named else None
    can = cluster.capabilities
    return None if can.is_local or can.has_host else can.found_by or cluster.kind


def unusable(verbs: Launcher) -> dict[str, str]:
    """Say of each cluster whose kind's package is broken why it cannot be used."""
    found = {}
    for name in verbs.config.clusters:
        try:
            verbs.cluster(name)
        except ClusterError as error:
            found[name] = error.message
    return found


def show_jobs(one: Known) -> str:
    numbers = ((one.running, "running"), (one.queued, "queued"))
    return ", ".join(f"{number} {state}" for number, state in numbers if number) or "-"


def show_answer(one: Known) -> str:
    if one.answers or (not one.host and not one.problem):
        return "now"
    last = f"{age(one.answered)} ago" if one.answered else "not yet"
    return f"not now, {last}" if one.problem else last
