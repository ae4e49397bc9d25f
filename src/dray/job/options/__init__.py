"""Every setting, declared once: config key, flag, type, default, help. CLI, config and docs read
this. Those of a kind of cluster are declared beside the kind: see ``kinds``."""

from dray.job.options.job import DECLARED, JOB, LIMITS, RECIPE_ONLY, value_of
from dray.job.options.kinds import CLUSTERS
from dray.job.options.option import Option
from dray.job.options.other import NOTIFY, SNAPSHOT, SNAPSHOT_SIZE
from dray.job.options.values import (
    GpuRequest,
    bind,
    binds,
    cache,
    caches,
    counting_pattern,
    env_name,
    output_path,
    remote_path,
    ssh_host,
)

__all__ = [
    "CLUSTERS",
    "DECLARED",
    "JOB",
    "LIMITS",
    "NOTIFY",
    "RECIPE_ONLY",
    "SNAPSHOT",
    "SNAPSHOT_SIZE",
    "GpuRequest",
    "Option",
    "bind",
    "binds",
    "cache",
    "caches",
    "counting_pattern",
    "env_name",
    "output_path",
    "remote_path",
    "ssh_host",
    "value_of",
]
