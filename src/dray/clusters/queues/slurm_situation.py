"""Asks a Slurm cluster about its queue."""

from __future__ import annotations

from dray.clusters.agent.situation import AgentSituation
from dray.clusters.queues import slurm, slurm_explaining
from dray.clusters.queues.disks import with_disks
from dray.clusters.queues.slurm_explaining import LIMITS, VIEW
from dray.job.model import JobView
from dray.job.situation import Allowance, Explanation, QueueView

NO_LIMITS = "Slurm does not tell you of limits: {}"


class SlurmSituation(AgentSituation):
    def view(self) -> QueueView:
        return slurm_explaining.queue_view(self.ask(*VIEW))

    def explain(self, view: JobView) -> Explanation:
        """Ask for the queue, then for this job, with what might start it sooner."""
        told = self.ask(*dict.fromkeys((*VIEW, *LIMITS)))
        queue = slurm_explaining.queue_view(told)
        array = view.id.partition(".")[0]  # whose jobs wait together
        mine = [one for one in queue.waiting if one.job in (view.id, array)]
        entry = mine[0] if mine else None
        changes = slurm_explaining.changes_for(view.spec, entry, told, self.cluster.settings)
        number, about, guesses = self.ask_about(view.id, [[one.flag] for one in changes])
        found = slurm_explaining.explanation(view.spec, number, about, told)
        if found.reason.never:
            return found
        now, host = told.as_of, self.cluster.host
        sooner = [
            *slurm_explaining.before_maintenance(view.spec, found, number, now, host),
            *slurm_explaining.alternatives(changes, guesses, number, found.start, now, host),
        ]
        return found._replace(sooner=tuple(sooner))

    def allowance(self) -> Allowance:
        told = self.ask(*LIMITS)
        remarks = [NO_LIMITS.format(told.errors["limits"])] if "limits" in told.errors else []
        allowed = Allowance(
            limits=tuple(slurm.limits(told.text("limits"), told.user, told.uid)),
            shares=tuple(slurm.shares(told.text("shares"), told.text("config"), told.user)),
            remarks=tuple(remarks),
        )
        return with_disks(allowed, self.cluster.name, self.storage())
