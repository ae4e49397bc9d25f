"""Slurm, from a laptop over SSH: the batch job is the job itself."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.agent.cluster import ARRAY_SIZE, BatchCluster
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
from dray.clusters.options.slurm import EXCLUSIVE, GPU_FLAG
from dray.clusters.protocol import Entrance, Situation
from dray.clusters.queues.slurm_reasons import reason_of
from dray.job.model import Equipment, Finding, JobArray, JobSpec, Plan
from dray.node.formats import files
from dray.node.jobs import arrays
from dray.node.processes import layout
from dray.node.schedulers.slurm import SUBMIT, array_name, minutes, parse_time_left
from dray.records import replace

OVERLAPS = (20, 11)  # the Slurm in which steps began to share what a job has


# -- pure ---------------------------------------------------------------------------------------


def batch_script(job: JobSpec, settings: Mapping[str, Any]) -> str:
    """Write the script for sbatch. It contains nothing of the user's command, which is in
    job.json."""
    folder = f"{ROOT}/jobs/{job.id}"
    flags = [f"--output={folder}/batch.log", *sbatch_flags(job, settings)]
    return script_of(flags, attempt_lines(folder, settings))


def array_script(array: JobArray, settings: Mapping[str, Any]) -> str:
    """Write the script of an array. Where several jobs share a batch job, that asks for what all of
    them need, and has the number of the first of them."""
    folder, name = f"{ROOT}/arrays/{array.id}", array_name(array.id, array.per_node)
    flags = [f"--output={folder}/%a.log", *sbatch_flags(array.common, settings, name)]
    flags.append(array_flag(array))
    entry = "task" if array.per_node > 1 else "attempt"
    return script_of(flags, attempt_lines(folder, settings, entry))


def script_of(flags: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join(["#!/bin/bash -l", *(f"#SBATCH {flag}" for flag in flags), *lines]) + "\n"


def array_flag(array: JobArray) -> str:
    """Return the flag that numbers the batch jobs: each counts for all jobs that share it."""
    step = f":{array.per_node}" if array.per_node > 1 else ""
    most = max(array.at_once // array.per_node, 1) if array.at_once else None
    return f"--array=0-{array.size - 1}{step}{f'%{most}' if most else ''}"


def sbatch_flags(job: JobSpec, settings: Mapping[str, Any], name: str = "") -> list[str]:
    wanted, spread = job.resources, job.to_dict()
    flags = [
        f"--job-name={name or job.id}",
        f"--comment=dray:{job.id}",
        "--open-mode=append",
        "--requeue",
        f"--nodes={wanted.nodes}",
        # A command that is started once may spread itself: its srun is not to be held to a number.
        f"--ntasks-per-node={layout.tasks_per_node(spread)}"
        if layout.is_spread(spread)
        else f"--ntasks={wanted.nodes}",
        f"--cpus-per-task={layout.cpus_per_task(spread)}",
    ]
    if wanted.memory:
        flags.append(f"--mem={math.ceil(wanted.memory / 2**20)}M")
    if wanted.time:
        flags.append(f"--time={minutes(wanted.time)}")
    if wanted.time and wanted.time_min:
        flags.append(f"--time-min={minutes(wanted.time_min)}")
    if wanted.gpus:
        flags.append(gpu_flag(job, settings))
    if EXCLUSIVE.of(settings):
        flags.append("--exclusive")
    flags += [f"--{key}={settings[key]}" for key in PASSED_ON if settings.get(key)]
    if settings.get("mail"):
        flags += [f"--mail-user={settings['mail']}", "--mail-type=END,FAIL"]
    return [*flags, *settings.get("extra", ())]


def gpu_flag(job: JobSpec, settings: Mapping[str, Any]) -> str:
    """Return the flag for GPUs as this cluster spells it; all but --gpus count those of one
    node."""
    wanted = job.resources
    kind = wanted.gpu_type or settings.get("gpu_type")
    flag = GPU_FLAG.of(settings)
    # One that shared a GPU with others, and is resumed alone, has one for itself.
    count = math.ceil(wanted.gpus) * (wanted.nodes if flag == "gpus" else 1)
    asked = f"{kind}:{count}" if kind else f"{count}"
    return f"--{flag}=gpu:{asked}" if flag == "gres" else f"--{flag}={asked}"


PASSED_ON = ("account", "partition", "qos", "constraint", "reservation", "nodelist", "exclude")


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any]) -> Plan:
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description(job, settings)).decode(),
            "batch.sh": batch_script(job, settings),
        },
        command=(*SUBMIT, f"{ROOT}/jobs/{job.id}/batch.sh"),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


def description(job: JobSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of job.json. It includes the submission command, which a job uses again to
    submit its own successor."""
    scheduler = {"kind": "slurm", "resume_with": settings.get("resume_with"), "command": SUBMIT}
    return {**job.to_dict(), "scheduler": scheduler}


def make_array_plan(array: JobArray, cluster: str, settings: Mapping[str, Any]) -> Plan:
    """Plan one directory and one batch job for the whole array; job.sh is for a job of it that is
    resumed alone."""
    common = {**description(array.common, settings), **array.to_dict()}
    alone = replace(array.common, id=arrays.JOB, resources=array.resources)
    plan = Plan(
        job=array.common,
        cluster=cluster,
        files={
            "job.json": json.dumps(common),
            "batch.sh": array_script(array, settings),
            "job.sh": batch_script(alone, settings),
        },
        command=(*SUBMIT, f"{ROOT}/arrays/{array.id}/batch.sh"),
        is_array=True,
    )
    return plan.of_sweep(array)


def find_problem(
    job: JobSpec, settings: Mapping[str, Any], found: Mapping[str, Any]
) -> Problem | None:
    if job.resources.gpus % 1:
        return Problem("Slurm gives whole GPUs only", "Ask for a whole number of GPUs.")
    extra = settings.get("extra", ())
    if any(flag.startswith(("-p", "--partition", "--reservation", "-A")) for flag in extra):
        return None  # nobody knows what these come to
    placement = Placement(
        partitions=tuple(name for name in settings.get("partition", "").split(",") if name),
        account=settings.get("account"),
        gpu_type=settings.get("gpu_type"),
        time_is_checked=not settings.get("qos") and not settings.get("reservation"),
    )
    return problem(job, placement, facts_of(found))


def facts_of(found: Mapping[str, Any]) -> Facts:
    rows = parse_partitions(found.get("partitions", ""))
    return Facts(
        shapes=tuple(
            Shape(
                partition=row["name"],
                open=row["state"] in ("up", "down"),  # a partition that is down still takes jobs
                default=row["default"] == "yes",
                time=parse_time_left(row["time"][:20]),
                nodes=number(row["nodes"]),
                cpus=number(row["cpus"]),
                memory=number(row["memory"]) << 20 or None,
                gpus=gpus_by_type(row["gres"]),
            )
            for row in rows
        ),
        accounts=tuple(sorted(set(found.get("accounts", "").split()))),
    )


def waiting_reason(queued: Mapping[str, str]) -> str:
    """Return why a job is not running yet, and when it may."""
    why = queued["why"]
    text = "" if why in ("None", "") else reason_of(why).words
    start = queued["start"]
    return f"{text}; start expected at {start}" if text and start not in ("N/A", "") else text


def parse_partitions(text: str) -> list[dict[str, str]]:
    names = ("name", "state", "time", "nodes", "cpus", "memory", "gres")
    rows = [line.split("|") for line in text.splitlines()]
    found = [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]
    for row in found:
        row["default"] = "yes" if row["name"].endswith("*") else "no"
        row["name"] = row["name"].rstrip("*")
    return found


def gpus_by_type(gres: str) -> dict[str, int]:
    """Parse a list of GPUs: 'gpu:a100:4(S:0-1),gpu:2' → {"a100": 4, "": 2}."""
    found: dict[str, int] = {}
    for kind, count in re.findall(r"gpu(?::([^:,(]+))?:(\d{1,9})(?=[,(]|$)", gres):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def slurm_findings(hello: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Finding]:
    if "slurm_error" in hello:
        advice = "Does it need a module, or another PATH, on the login node?"
        return [Finding(ok=False, what="slurm", detail=hello["slurm_error"], advice=advice)]
    findings = [
        Finding(ok=True, what="slurm", detail=hello["slurm"] or NO_VERSION),
        Finding(ok=True, what="resuming", detail=way_to_resume(hello, settings)),
    ]
    chosen = [name for name in settings.get("partition", "").split(",") if name]
    rows = parse_partitions(hello.get("partitions", ""))
    for row in rows:
        detail = f"{row['name']}: {row['nodes']} nodes, {row['cpus']} CPUs, {row['gres']}, "
        detail += f"limit {row['time']}, {row['state']}"
        detail += ", the default" if row["default"] == "yes" else ""
        ok = row["state"] == "up" or row["name"] not in chosen
        findings.append(Finding(ok=ok, what="partition", detail=detail))
    findings += [
        Finding(ok=False, what="partition", detail=f"there is no partition '{name}'")
        for name in chosen
        if name not in {row["name"] for row in rows}
    ]
    accounts = sorted(set(hello.get("accounts", "").split()))
    return [*findings, *account_findings(accounts, settings.get("account"))]


def way_to_resume(hello: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    config = hello.get("config", {})
    if settings.get("resume_with") == "chain":
        way = "by a batch job that depends on the one before (resume_with)"
    elif config.get("JobRequeue") == "0":
        way = "by requeue where Slurm allows it, else by a batch job that depends on the one before"
    else:
        way = "by requeue"
    preemption = config.get("PreemptMode", "OFF")
    return way if preemption == "OFF" else f"{way}; preemption: {preemption}"


def entrance_of(version: str) -> Entrance:
    """Say how a running job is entered, by the version that Slurm tells: 'slurm 22.05.8'."""
    found = re.search(r"([0-9]{1,4})\.([0-9]{1,4})", version)
    if found and (int(found[1]), int(found[2])) < OVERLAPS:
        return Entrance("", f"srun --overlap came with Slurm 20.11, and this is {version}")
    return Entrance("srun --overlap, from the login node")


def account_findings(accounts: list[str], chosen: str | None) -> list[Finding]:
    """Check the chosen account; return nothing where Slurm keeps no accounts."""
    if not accounts:
        return []
    names = ", ".join(accounts)
    if chosen and chosen not in accounts:
        detail = f"you have no account '{chosen}'; yours: {names}"
        return [Finding(ok=False, what="account", detail=detail)]
    return [Finding(ok=True, what="account", detail=names)]


def number(text: str) -> int:
    """Parse a number of sinfo's, which writes 8+ where nodes differ."""
    found = re.match(r"\d{1,12}", text)
    return int(found[0]) if found else 0


# -- acting ---------------------------------------------------------------------------------------


class SlurmCluster(BatchCluster):
    kind = "slurm"
    capabilities = BatchCluster.capabilities._replace(
        arrays=True,
        limits_at_once=True,
        shared_batch_jobs=True,
        launchers=("srun",),
        batch_variables="SLURM_",
        found_by="sbatch",
    )

    def equipment(self) -> Equipment:
        """Return what the largest node in any partition has."""
        shapes = facts_of(self.facts()).shapes
        return Equipment(
            cpus=max((one.cpus for one in shapes), default=0),
            memory=max((one.memory or 0 for one in shapes), default=0) or None,
            gpus=max((sum(one.gpus.values()) for one in shapes), default=0),
        )

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        return find_problem(job, self.settings, facts)

    def partitions(self) -> Sequence[str]:
        return partition_names(facts_of(self.known_facts()))

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return make_array_plan(work, self.name, self.settings)
        return make_plan(work, self.name, self.settings)

    @property
    def array_size(self) -> int:
        most = self.known_facts().get("config", {}).get("MaxArraySize", "")
        return min(number(most) or 1, ARRAY_SIZE) if most else ARRAY_SIZE

    def entrance(self) -> Entrance:
        return entrance_of(self.known_facts().get("slurm", ""))

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        return waiting_reason(queued)

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        return slurm_findings(about, self.settings)

    @property
    def situation(self) -> Situation:
        from dray.clusters.queues.slurm_situation import SlurmSituation  # not for a listing

        return SlurmSituation(self)
