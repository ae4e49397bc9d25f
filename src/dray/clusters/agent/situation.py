"""Asks the agent what its scheduler tells of the queue; each kind reads that itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dray.clusters.agent import answers
from dray.clusters.agent.answers import Told
from dray.errors import ClusterError
from dray.job.model import JobView
from dray.job.situation import Allowance, Explanation, QueueView

if TYPE_CHECKING:
    from dray.clusters.agent.cluster import BatchCluster
    from dray.node.formats.records import Asked


class AgentSituation:
    def __init__(self, cluster: BatchCluster) -> None:
        self.cluster = cluster

    def ask(self, *names: str) -> Told:
        """Put these questions, of which the agent may know the answers already."""
        known = self.cluster.probed_settings()
        answer = self.cluster.agent.ask("situation", names=list(names), **known)
        with answers.reading(self.cluster.name):
            return answers.told(answer)

    def ask_about(
        self, job_id: str, changes: Sequence[Sequence[str]] = ()
    ) -> tuple[str, Told, list[str]]:
        """Ask about one job: return its number, what the scheduler says of it, and its guesses when
        it would start with these changes."""
        asked = [list(one) for one in changes]
        answer = self.cluster.agent.ask("explain", id=job_id, changes=asked)
        with answers.reading(self.cluster.name):
            number = answers.line(answer.get("scheduler_id", ""))
            return number, answers.told(answer), answers.guesses(answer)

    def storage(self) -> Mapping[str, Any]:
        """Ask what may be stored there, and what is; raw: see dray.clusters.queues.disks."""
        words = self.cluster.settings.get("quota_command")
        request: Asked = {"quota_command": list(words)} if words else {}
        return self.cluster.agent.ask("storage", **request)

    def view(self) -> QueueView:
        raise self._untold()

    def explain(self, view: JobView) -> Explanation:  # noqa: ARG002
        raise self._untold()

    def allowance(self) -> Allowance:
        raise self._untold("what each of their users may have")

    def _untold(self, what: str = "their queue") -> ClusterError:
        """Return the error of a kind that reads nothing of its scheduler's answers."""
        return ClusterError(f"{self.cluster.name}: clusters of this kind do not tell of {what}")

    def description(self, job_id: str) -> Mapping[str, str]:
        """Return what the scheduler itself says of a job, and of what it waits for."""
        number, told, _ = self.ask_about(job_id)
        return {f"{name} {number}".strip(): text for name, text in told.texts.items() if text}
