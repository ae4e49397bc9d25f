"""Lets several trials of a sweep share what was asked for (``--per-node``). Pure.

Where a cluster gives out whole GPUs or nodes only, they share a batch job. Where it gives out
parts, each trial asks for its part, which needs nothing else: others may have the rest."""

from __future__ import annotations

from dray.errors import Refused
from dray.job.model import JobSpec, Resources
from dray.job.quantities import show_count
from dray.launcher.sweep_dealing import Load
from dray.node.jobs.arrays import part_of
from dray.records import asdict, replace


def packed(load: Load, per_node: int) -> Load:
    """Describe trials of which so many have together what ``load`` describes."""
    if per_node == 1:
        return load
    require_one_node(load.common)
    can, name = load.cluster.capabilities, load.cluster.name
    if can.shared_batch_jobs:
        shared = noted(load.common, f"on {name}, {per_node} trials at a time share a batch job")
        return load._replace(common=shared, per_node=per_node)
    if can.whole_nodes:
        raise Refused(
            f"on {name}, trials cannot share a batch job",
            hint="Leave out --per-node, and ask for what one trial needs.",
        )
    resources = divided(load.common.resources, per_node, name)
    note = f"{name} gives out parts of a node: each trial asks for {in_words(resources)}"
    return load._replace(common=replace(noted(load.common, note), resources=resources))


def noted(job: JobSpec, note: str) -> JobSpec:
    return replace(job, notes=(*job.notes, note))


def require_one_node(job: JobSpec) -> None:
    if job.resources.nodes > 1 or job.launch != "none":
        raise Refused(
            "--per-node is for commands that are started once, on one node",
            hint="Leave out --nodes and --launch, or --per-node.",
        )


def divided(resources: Resources, per_node: int, cluster: str) -> Resources:
    """Return the part of one trial, which is of whole GPUs, or a part of one."""
    found = Resources(**part_of(asdict(resources), per_node))
    if found.gpus > 1 and found.gpus % 1:
        wanted = show_count(resources.gpus, "GPU")
        raise Refused(
            f"{wanted} cannot be divided among {per_node} trials on {cluster}: it gives out whole "
            "ones, or parts of one",
            hint="Leave out --per-node, and write --gpus for one trial.",
        )
    return found


def in_words(resources: Resources) -> str:
    told = [f"{resources.gpus:g} GPU{'' if resources.gpus <= 1 else 's'}"] if resources.gpus else []
    told.append(show_count(resources.cpus, "CPU"))
    return " and ".join(told)
