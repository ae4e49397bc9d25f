"""dray takes a training run to any cluster and keeps it alive until it is done.

import dray
job = dray.run(["python", "train.py"], gpus=1)
job.wait()
job.pull()
"""

TYPE_CHECKING = False  # as typing has it, which takes longer to import than a quick command does
if TYPE_CHECKING:
    from typing import Any

    from dray.api import Job, jobs, run, run_many
    from dray.errors import DrayError

__version__ = "0.1.0"
__all__ = ["DrayError", "Job", "__version__", "jobs", "run", "run_many"]


def __getattr__(name: str) -> "Any":
    # Imported on first use, so that 'import dray' and the command line stay quick.
    if name in ("Job", "jobs", "run", "run_many"):
        from dray import api

        return getattr(api, name)
    if name == "DrayError":
        from dray.errors import DrayError

        return DrayError
    raise AttributeError(f"module 'dray' has no attribute '{name}'")
