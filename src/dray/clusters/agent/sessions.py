"""The way into a running job through the machine where the agent is."""

from __future__ import annotations

from collections.abc import Callable

from dray.clusters.protocol import Entrance
from dray.transport.link import AgentLink
from dray.transport.ways import Way


class AgentSessions:
    """``entrance`` is what the kind of cluster says of it."""

    def __init__(self, agent: AgentLink, entrance: Callable[[], Entrance]) -> None:
        self.agent = agent
        self.entrance = entrance

    def way(self, job_id: str, rank: int) -> Way:
        return self.agent.way_into(job_id, rank)
