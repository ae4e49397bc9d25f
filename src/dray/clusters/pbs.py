"""PBS (OpenPBS, PBS Pro, Torque), from a laptop over SSH: the batch job is the job itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.agent.cluster import BatchCluster
from dray.clusters.agent.facts import (
    NO_VERSION,
    Facts,
    Placement,
    Problem,
    Shape,
    partition_names,
    problem,
)
from dray.clusters.agent.script import ROOT, attempt_lines
from dray.clusters.options.pbs import DIALECT, GPU_RESOURCE
from dray.clusters.protocol import Entrance, Situation
from dray.job.model import Equipment, Finding, JobArray, JobSpec, Plan
from dray.job.quantities import show_size
from dray.node.formats import files
from dray.node.schedulers.pbs import SUBMIT, parse_duration
from dray.records import replace

YES = ("True", "yes")
TORQUE_NAME = 15  # characters
RESOURCES = {"ngpus": "GPUs", "gpus": "GPUs", "ncpus": "CPUs", "mem": "memory", "nodect": "nodes"}

# What PBS says of a job that does not start yet, in plain words.
REASONS = (
    (r"Dependency$", "waiting for the attempt before it to end"),
    (r"Held u", "held by you (qrls)"),
    (r"Held \S+ ?(.*)", "held by an administrator, or by PBS itself{}"),
    (r"BeginTime", "waiting for its start time"),
    (r"Suspended", "suspended by PBS"),
    (r"Can Never Run:? *(.*)", "it can never run{}"),
    (r".*user.*limit.*resource (\w+)", "you use as much as you may{}"),
    (r".*(?:group|project).*limit.*resource (\w+)", "your group uses as much as it may{}"),
    (r".*user.*limit|.*limit.*user", "you have as many jobs running as you may"),
    (r".*group.*limit|.*limit.*group", "your group has as many jobs running as it may"),
    (r".*Insufficient amount of (?:\w+ )?resource:? *(\w+)", "not enough free{}"),
    (r".*Not enough .*nodes", "waiting for enough free nodes"),
    (r".*conflict with reservation or top job|.*strict order", "others are before it in the queue"),
    (r".*Queue not started", "its queue is stopped"),
)


# -- pure ---------------------------------------------------------------------------------------


def batch_script(job: JobSpec, settings: Mapping[str, Any]) -> str:
    """Write the script for qsub. It contains nothing of the user's command, which is in job.json.

    PBS puts its own output file, ``pbs.log``, in place only when the batch job ends, and replaces
    one that is there."""
    lines = ["#!/bin/bash -l", *(f"#PBS {flag}" for flag in qsub_flags(job, settings))]
    folder = f"{ROOT}/jobs/{job.id}"
    lines.append(f"exec >>'{folder}/batch.log' 2>&1")
    return "\n".join([*lines, *attempt_lines(folder, settings)]) + "\n"


def qsub_flags(job: JobSpec, settings: Mapping[str, Any]) -> list[str]:
    is_torque = DIALECT.of(settings) == "torque"
    flags = [
        f"-N {name_for(job.id, TORQUE_NAME if is_torque else len(job.id))}",
        "-S /bin/bash",  # else the user's shell, whatever the first line says
        f"-o {ROOT}/jobs/{job.id}/pbs.log",  # by which the job is found again
        "-j oe",
        "-r y",
        *(torque_resources(job, settings) if is_torque else resources(job, settings)),
    ]
    if job.resources.time:
        minutes = math.ceil(job.resources.time / 60)
        flags.append(f"-l walltime={minutes // 60:02d}:{minutes % 60:02d}:00")
    names = {"account": "-A", "project": "-P", "queue": "-q"}
    flags += [f"{flag} {settings[key]}" for key, flag in names.items() if settings.get(key)]
    flags += ["-m ae", f"-M {settings['mail']}"] if settings.get("mail") else ["-m n"]
    return [*flags, *settings.get("extra", ())]


def name_for(job_id: str, most: int) -> str:
    """Return a name for people who look at the queue: it begins with a letter and ends like the
    id."""
    name = job_id if job_id[0].isalpha() else f"j{job_id}"
    return name if len(name) <= most else f"{name[: most - 5].rstrip('-')}{name[-5:]}"


def resources(job: JobSpec, settings: Mapping[str, Any]) -> list[str]:
    wanted = job.resources
    parts = ["1", f"ncpus={wanted.cpus}"]
    parts += [f"mem={megabytes(wanted.memory)}mb"] if wanted.memory else []
    if wanted.gpus:
        kind = wanted.gpu_type or settings.get("gpu_type")
        parts.append(f"ngpus={wanted.gpus:.0f}")
        parts += [f"{GPU_RESOURCE.of(settings)}={kind}"] if kind else []
    parts += [settings["chunk"]] if settings.get("chunk") else []
    return [f"-l select={':'.join(parts)}"]


def torque_resources(job: JobSpec, settings: Mapping[str, Any]) -> list[str]:
    """Return the resource flags of Torque, where a GPU's type is a property of the node."""
    wanted = job.resources
    parts = ["1", f"ppn={wanted.cpus}"]
    if wanted.gpus:
        kind = wanted.gpu_type or settings.get("gpu_type")
        parts.append(f"gpus={wanted.gpus:.0f}")
        parts += [kind] if kind else []
    parts += [settings["chunk"]] if settings.get("chunk") else []
    memory = [f"-l mem={megabytes(wanted.memory)}mb"] if wanted.memory else []
    return [f"-l nodes={':'.join(parts)}", *memory]


def megabytes(size: int) -> int:
    return math.ceil(size / 2**20)


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any]) -> Plan:
    scheduler = {"kind": "pbs", "resume_with": settings.get("resume_with"), "command": SUBMIT}
    description = {**job.to_dict(), "scheduler": scheduler}
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description).decode(),
            "batch.sh": batch_script(job, settings),
        },
        command=(*SUBMIT, f"{ROOT}/jobs/{job.id}/batch.sh"),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


def find_problem(
    job: JobSpec, settings: Mapping[str, Any], found: Mapping[str, Any]
) -> Problem | None:
    if job.resources.gpus % 1:
        return Problem("PBS gives whole GPUs only", "Ask for a whole number of GPUs.")
    if job.resources.nodes > 1 or job.launch != "none":
        what = "on PBS, a command is started once, on one node"
        return Problem(what, "Leave out --nodes and --launch, or choose a Slurm cluster.")
    queue, extra = settings.get("queue", ""), settings.get("extra", ())
    if "@" in queue or any(re.match(r"-q|-l *(select|nodes)", flag) for flag in extra):
        return None  # nobody knows what these come to
    # What a type of GPU is called differs from site to site: only their number is certain.
    untyped = replace(job, resources=replace(job.resources, gpu_type=None))
    return problem(untyped, Placement(partitions=(queue,) if queue else ()), facts_of(found))


def facts_of(found: Mapping[str, Any]) -> Facts:
    """Combine queues and nodes. PBS does not tell which nodes a queue has, so each queue may have
    any of them."""
    return Facts(
        shapes=tuple(
            Shape(
                partition=name,
                open=about.get("enabled") in YES,
                default=False,
                time=parse_duration(about.get("resources_max.walltime", "")[:20]),
                nodes=node["nodes"],
                cpus=node["cpus"],
                memory=node["kilobytes"] << 10 or None,
                gpus={"": node["gpus"]},
            )
            for name, about in found.get("queues", {}).items()
            for node in found.get("nodes", ())
        ),
        partition_word="queue",
    )


def waiting_reason(queued: Mapping[str, str]) -> str:
    """Return why a job is not running yet, and when it may."""
    why = re.sub(r"^Not Running:? *", "", queued["why"].strip())
    text = f"PBS says: {why}" if why else ""
    for pattern, words in REASONS:
        found = re.match(pattern, why, re.IGNORECASE)
        if found:
            detail = found[1] if found.lastindex else ""
            text = words.format(f": {RESOURCES.get(detail, detail)}" if detail else "")
            break
    start = queued["start"]
    return f"{text}; start expected at {start}" if text and start else text


def pbs_findings(hello: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Finding]:
    if "queues_error" in hello:
        advice = "Does it need a module, or another PATH, on the login node?"
        return [Finding(ok=False, what="pbs", detail=hello["queues_error"], advice=advice)]
    version = hello["version"] or NO_VERSION
    findings = [Finding(ok=True, what="pbs", detail=version), *dialect_findings(hello, settings)]
    queues: Mapping[str, Mapping[str, str]] = hello["queues"]
    chosen = settings.get("queue", "").partition("@")[0]
    for name, about in queues.items():
        is_open = about.get("enabled") in YES and about.get("started") in YES
        detail = f"{name}: {queue_limits(about)}{'open' if is_open else 'closed'}"
        findings.append(Finding(ok=is_open or name != chosen, what="queue", detail=detail))
    if chosen and chosen not in queues and "@" not in settings["queue"]:
        detail = f"there is no queue '{chosen}'"
        findings.append(Finding(ok=False, what="queue", detail=detail))
    return findings + [
        Finding(ok=True, what="nodes", detail=node_detail(shape)) for shape in hello["nodes"]
    ]


def dialect_findings(hello: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Finding]:
    here = hello["dialect"]
    if DIALECT.of(settings) == here:
        return []
    advice = f'Set dialect = "{here}" for this cluster.'
    return [Finding(ok=False, what="dialect", detail=f"this looks like {here}", advice=advice)]


def queue_limits(about: Mapping[str, str]) -> str:
    names = {"walltime": "limit", "ngpus": "GPUs", "ncpus": "CPUs", "mem": "memory"}
    known = [
        f"{text} {about[f'resources_max.{name}']}"
        for name, text in names.items()
        if f"resources_max.{name}" in about
    ]
    return "".join(f"{one}, " for one in known)


def node_detail(shape: Mapping[str, int]) -> str:
    memory = show_size(shape["kilobytes"] << 10)
    return f"{shape['nodes']} nodes of {shape['cpus']} CPUs, {memory}, {shape['gpus']} GPUs"


# -- acting ---------------------------------------------------------------------------------------


class PbsCluster(BatchCluster):
    kind = "pbs"
    capabilities = BatchCluster.capabilities._replace(found_by="qsub", whole_nodes=True)

    def equipment(self) -> Equipment:
        """Return what the largest node has; empty where PBS does not show its nodes."""
        hello = self.facts()
        shapes = hello["nodes"]
        return Equipment(
            cpus=max((shape["cpus"] for shape in shapes), default=0),
            memory=max((shape["kilobytes"] << 10 for shape in shapes), default=0) or None,
            gpus=max((shape["gpus"] for shape in shapes), default=0),
            suggested=() if hello["dialect"] == "openpbs" else (("dialect", hello["dialect"]),),
        )

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        return find_problem(job, self.settings, facts)

    def partitions(self) -> Sequence[str]:
        return partition_names(facts_of(self.known_facts()))

    def plan(self, work: JobSpec | JobArray) -> Plan:
        """Plan the jobs of an array one by one: arrays differ from dialect to dialect."""
        if isinstance(work, JobArray):
            return Plan.one_by_one(work, self.name, map(self.plan, work.jobs()))
        return make_plan(work, self.name, self.settings)

    def entrance(self) -> Entrance:
        return Entrance("a connection from the job to the login node, else ssh to its node")

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        return waiting_reason(queued)

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        return pbs_findings(about, self.settings)

    @property
    def situation(self) -> Situation:
        from dray.clusters.queues.pbs import PbsSituation  # not for a listing

        return PbsSituation(self)
