"""Names a job's settings as keywords of the Python API, with their types.

They are those of ``dray.job.options``; a test holds the two together. A name that says little
without its table (``number`` of [job.resume]) has a longer one here (``checkpoint_number``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from dray.job.options import Option

Texts = list[str] | tuple[str, ...]
Codes = list[int] | tuple[int, ...]
Duration = str  # "4h", "90s", "1d12h"
Count = int | str

# By the setting's key; all others are called by the last part of theirs.
KEYWORDS = {
    "job.resume.number": "checkpoint_number",
    "job.resume.partner": "checkpoint_partner",
    "job.resume.total": "iterations_flag",
    "job.resume.keep": "keep_checkpoints",
    "job.resume.saves": "checkpoint_mode",
    "job.metrics.main": "metrics",
    "job.metrics.pattern": "metric_pattern",
    "job.container.writable": "container_writable",
    "job.container.home": "container_home",
    "job.container.workdir": "container_workdir",
    "job.container.caches": "container_caches",
    "job.container.local_copy": "container_local_copy",
}


def keyword(option: Option) -> str:
    return KEYWORDS.get(option.key, option.name)


class LimitSettings(TypedDict, total=False):
    """The limits of a job as a whole: those that ``Job.resume`` takes."""

    total_time: Duration
    gpu_hours: float | str
    start_by: str


class JobSettings(LimitSettings, total=False):
    """The settings of a job, all of them optional: docs/reference/api.md explains each."""

    name: str
    recipe: str
    python: str
    image: str
    nodes: Count
    gpus: float | str
    cpus: Count
    memory: int | str
    time: Duration
    time_min: Duration
    launch: str
    retries: Count
    retry_on: Codes
    fail_on: Codes
    hold: Duration
    stall: Duration
    outputs: Texts
    env: Mapping[str, str | int | float]
    secrets: Texts
    checkpoint: str
    checkpoint_number: str
    checkpoint_partner: str
    iterations_flag: str
    keep_checkpoints: Count
    resume_args: Texts
    checkpoint_signal: str
    checkpoint_mode: Literal["on-request", "periodically"]
    grace: Duration
    backoff: Duration
    metrics: Texts
    tensorboard: str
    metric_pattern: str
    binds: Texts
    pass_env: Texts
    containall: bool
    container_writable: Literal["no", "tmpfs", "overlay"]
    container_home: Literal["scratch", "cluster"]
    container_workdir: str
    container_caches: Texts
    container_local_copy: Literal["auto", "yes", "no"]
