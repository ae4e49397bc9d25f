"""A machine without a scheduler, reached by SSH: dray's own queue there, a keeper for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters import share_findings
from dray.clusters.agent.cluster import BatchCluster
from dray.clusters.agent.facts import Problem
from dray.clusters.agent.script import ROOT, node_program, preparing_lines
from dray.clusters.protocol import Situation
from dray.clusters.share_findings import shared_by
from dray.job.model import Equipment, Finding, JobArray, JobSpec, Plan
from dray.job.quantities import show_count, show_size
from dray.node.formats import files

DECLARED = ("cpus", "gpus", "memory")  # what jobs may use, where that is not all there is


# -- pure ---------------------------------------------------------------------------------------


def keeper_script(job: JobSpec, settings: Mapping[str, Any]) -> str:
    """Write the script that starts the keeper, which inherits two open locks. It contains nothing
    of the user's command, which is in job.json."""
    folder = f"{ROOT}/jobs/{job.id}"
    lines = [
        "#!/bin/bash -l",
        f"exec >>'{folder}/batch.log' 2>&1",
        *preparing_lines(settings),
        f'exec {node_program(settings)} keep \'{folder}\' "$1" "$2"',
    ]
    return "\n".join(lines) + "\n"


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any]) -> Plan:
    declared = {key: settings[key] for key in DECLARED if settings.get(key) is not None}
    own = {"scheduler": {"kind": "ssh", **declared}}
    description = {**job.to_dict(), **own, **shared_by(settings)}
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description).decode(),
            "batch.sh": keeper_script(job, settings),
        },
        command=("bash", "-l", f"{ROOT}/jobs/{job.id}/batch.sh", "ALIVE", "TICKET"),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


def equipment_of(found: Mapping[str, Any], settings: Mapping[str, Any]) -> Equipment | None:
    """Return what jobs may use there, or None where nothing is known of the machine."""
    shapes = found.get("nodes", ())
    if not shapes:
        return None
    have = {
        "cpus": shapes[0]["cpus"],
        "gpus": shapes[0]["gpus"],
        "memory": shapes[0]["kilobytes"] << 10 or None,
        **{key: settings[key] for key in DECLARED if settings.get(key) is not None},
    }
    return Equipment(**have)


def find_problem(job: JobSpec, have: Equipment | None) -> Problem | None:
    wanted = job.resources
    if wanted.nodes > 1 or job.launch != "none":
        what = "a command is started once there, on one machine"
        advice = "Several GPUs: torchrun --standalone in front of the command."
        return Problem(what, f"Leave out --nodes and --launch. {advice}")
    if wanted.gpu_type:
        return Problem("GPUs are not asked for by type there", "Write --gpus N.")
    if have is None:
        return None
    advice = "Ask for less, or declare what there is in the cluster's settings."
    for what, asked, there in (("GPU", wanted.gpus, have.gpus), ("CPU", wanted.cpus, have.cpus)):
        if asked > there:
            problem = f"{show_count(asked, what)} asked for, and the machine has {there}"
            return Problem(problem, advice)
    if wanted.memory and have.memory and wanted.memory > have.memory:
        most = show_size(have.memory)
        what = f"{show_size(wanted.memory)} of memory asked for, and the machine has {most}"
        return Problem(what, advice)
    return None


# -- acting -------------------------------------------------------------------------------------


class SshCluster(BatchCluster):
    kind = "ssh"

    capabilities = BatchCluster.capabilities._replace(gpu_fractions=True, limits_at_once=True)

    def equipment(self) -> Equipment:
        return equipment_of(self.facts(), self.settings) or Equipment(cpus=0, memory=None, gpus=0)

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        return find_problem(job, equipment_of(facts, self.settings))

    def probed_settings(self) -> dict[str, Any]:
        return {"share": self.settings["share"]} if self.settings.get("share") else {}

    def partitions(self) -> Sequence[str]:
        return ()

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return Plan.one_by_one(work, self.name, map(self.plan, work.jobs()))
        return make_plan(work, self.name, self.settings)

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        return queued["why"]

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        have = equipment_of(about, self.settings)
        if have is None:
            return []
        cpus, gpus = show_count(have.cpus, "CPU"), show_count(have.gpus, "GPU")
        detail = f"{cpus}, {show_size(have.memory or 0)}, {gpus} for jobs"
        machine = Finding(ok=True, what="machine", detail=detail)
        share = self.settings.get("share", "")
        return [machine, *share_findings.findings(share, about.get("share"))]

    @property
    def situation(self) -> Situation:
        from dray.clusters.queues.machine import MachineSituation  # not for a listing

        return MachineSituation(self)
