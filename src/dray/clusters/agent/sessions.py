"""The way into a running job through the machine where the agent is."""

from __future__ import annotations

from dray.transport.link import AgentLink
from dray.transport.ways import Way


class AgentSessions:
    def __init__(self, agent: AgentLink) -> None:
        self.agent = agent

    def way(self, job_id: str, rank: int) -> Way:
        return self.agent.way_into(job_id, rank)
