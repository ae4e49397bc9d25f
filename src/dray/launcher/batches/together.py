"""Makes one job of the jobs of a batch that run together. Pure.

They get one allocation, on one node, so that none of them ever waits for another to be placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dray.config.batch_file import BatchFile, BatchJob
from dray.config.loading import Config
from dray.description import side_by_side
from dray.job.options import GpuRequest, value_of
from dray.launcher.batches.settings import settings_for

NAME = "together"
GPUS, CPUS = "job.resources.gpus", "job.resources.cpus"
MEMORY, TIME = "job.resources.memory", "job.resources.time"
OWN = (GPUS, CPUS, MEMORY, TIME, "job.env", "job.name")  # what they may differ in


def as_one_job(file: BatchFile, config: Config) -> BatchFile:
    """Return a batch of one job, which asks for what all of them need."""
    settings = [settings_for(config, file, one).job for one in file.jobs]
    require_plain(file.jobs)
    for one, its in zip(file.jobs, settings, strict=True):
        require_alike(one, its, settings[0])
    common = {key: one for key, one in settings[0].items() if key not in OWN}
    names = names_of(file.jobs)
    members = [
        {"name": name, "words": list(command), "gpus": whole_gpus(one, its), **env_of(its)}
        for one, its, some in zip(file.jobs, settings, names, strict=True)
        for name, command in zip(some, one.commands, strict=True)
    ]
    copies = [
        its for one, its in zip(file.jobs, settings, strict=True) for _ in range(len(one.commands))
    ]
    first = file.jobs[0]
    lead = [some[0] for one, some in zip(file.jobs, names, strict=True) if one.is_lead]
    job = BatchJob(
        first.where,
        NAME,
        side_by_side.together(members, lead[0] if lead else "", config.job.get("job.python", ())),
        {**common, **sum_of(copies, first)},
        tuple(dict.fromkeys(text for one in file.jobs for text in one.after)),
    )
    return file._replace(jobs=(job,), together=False, defaults=MappingProxyType({}))


def names_of(jobs: Sequence[BatchJob]) -> list[list[str]]:
    """Return what the commands of each job are called, by which they find each other."""
    found = []
    for number, one in enumerate(jobs):
        name = one.name or f"job-{number}"
        many = range(len(one.commands))
        found.append([name] if one.number is None else [f"{name}-{index}" for index in many])
    return found


def require_plain(jobs: Sequence[BatchJob]) -> None:
    names = {one.name for one in jobs if one.name}
    leads = [one for one in jobs if one.is_lead]
    if len(leads) > 1:
        raise leads[1].mistake("lead: there is one already")
    for one in jobs:
        if one.share > 1 or one.inputs:
            raise one.mistake("share and inputs are not for jobs that run together")
        if any(text.partition(":")[0] in names for text in one.after):
            raise one.mistake("after: jobs that run together cannot wait for each other")


def require_alike(job: BatchJob, its: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    for key in sorted({*its, *first}):
        if key not in OWN and its.get(key) != first.get(key):
            name = key.rpartition(".")[2]
            raise job.mistake(
                f"{name}: jobs that run together are on one node, and have this in common",
                hint="For a command on several nodes, write one job: nodes = 2, or dray run "
                "--nodes 2.",
            )


def whole_gpus(job: BatchJob, settings: Mapping[str, Any]) -> int:
    number = value_of(settings, GPUS).number
    if number % 1:
        raise job.mistake("gpus: jobs that run together have whole GPUs, or share one (share = N)")
    return int(number)


def env_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    env = value_of(settings, "job.env")
    return {"env": dict(env)} if env else {}


def sum_of(settings: Sequence[Mapping[str, Any]], first: BatchJob) -> dict[str, Any]:
    """Return what all need at once; the longest of them decides on the time."""
    gpus = [value_of(one, GPUS) for one in settings]
    kinds = {one.kind for one in gpus if one.number}
    memory = [one.get(MEMORY) for one in settings]
    times = [one.get(TIME) for one in settings]
    if len(kinds) > 1:
        raise first.mistake("gpus: jobs that run together have GPUs of one type")
    if any(memory) and not all(memory):
        raise first.mistake("memory: of jobs that run together all say how much, or none")
    found: dict[str, Any] = {
        GPUS: GpuRequest(sum(one.number for one in gpus), next(iter(kinds), None)),
        CPUS: sum(value_of(one, CPUS) for one in settings),
    }
    if all(memory):
        found[MEMORY] = sum(one for one in memory if one)
    if all(times):
        found[TIME] = max(one for one in times if one)
    return found
