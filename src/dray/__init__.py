"""dray takes a training run to any cluster and keeps it alive until it is done.

import dray
job = dray.run(["python", "train.py"], gpus=1)
job.wait()
job.pull()
"""

TYPE_CHECKING = False  # as typing has it, which takes longer to import than a quick command does
if TYPE_CHECKING:
    from dray.api import Job, Jobs, jobs, run, run_many
    from dray.errors import (
        ClusterError,
        ConfigError,
        DrayError,
        NotFound,
        Refused,
        SnapshotError,
        StorageError,
        StoreError,
        TimedOut,
        UsageError,
    )
    from dray.job.keywords import JobSettings, LimitSettings
    from dray.job.model import Attempt, JobSpec, JobState, JobView, Series

__version__ = "0.1.0"
__all__ = [
    "Attempt",
    "ClusterError",
    "ConfigError",
    "DrayError",
    "Job",
    "JobSettings",
    "JobSpec",
    "JobState",
    "JobView",
    "Jobs",
    "LimitSettings",
    "NotFound",
    "Refused",
    "Series",
    "SnapshotError",
    "StorageError",
    "StoreError",
    "TimedOut",
    "UsageError",
    "__version__",
    "jobs",
    "run",
    "run_many",
]
SOURCES = {
    "dray.api": ("Job", "Jobs", "jobs", "run", "run_many"),
    "dray.job.keywords": ("JobSettings", "LimitSettings"),
    "dray.job.model": ("Attempt", "JobSpec", "JobState", "JobView", "Series"),
}

if not TYPE_CHECKING:  # so that type checkers know of no other name

    def __getattr__(name):
        # Imported on first use, so that 'import dray' and the command line stay quick.
        if name not in __all__:
            raise AttributeError(f"module 'dray' has no attribute '{name}'")
        from importlib import import_module

        source = next((one for one, names in SOURCES.items() if name in names), "dray.errors")
        return getattr(import_module(source), name)
