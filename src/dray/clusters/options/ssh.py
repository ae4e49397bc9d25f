"""The settings of a machine without a scheduler. Light: they are read before anything is done."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.shared import (
    CAPACITY,
    CONVERT,
    HOST,
    MODULES,
    ORDER,
    PYTHON,
    QUOTA_COMMAND,
    ROOT,
    RUNTIME,
    SETUP,
    SUPPORT,
)
from dray.job.options.shared import KIND as KIND_OPTION

OPTIONS = (
    KIND_OPTION._replace(example='"ssh"'),
    HOST._replace(help="What `ssh HOST` reaches.", example='"workstation"'),
    ROOT._replace(help="The folder for jobs and code."),
    PYTHON._replace(help="A Python 3.6 or newer on that machine."),
    *CAPACITY,
    RUNTIME,
    CONVERT,
    MODULES,
    SETUP,
    ORDER,
    SUPPORT,
    QUOTA_COMMAND,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.ssh:SshCluster")
