"""The settings of a PBS cluster. Light: they are read before anything is done there."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.option import Option
from dray.job.options.shared import (
    CONVERT,
    EXTRA,
    HOST,
    MODULES,
    ORDER,
    PYTHON,
    QUOTA_COMMAND,
    RESUME_WITH,
    ROOT,
    RUNTIME,
    SETUP,
    SUPPORT,
    word,
)
from dray.job.options.shared import KIND as KIND_OPTION
from dray.job.options.values import Choice

DIALECT = Option(
    key="clusters.*.dialect",
    parse=Choice("openpbs", "torque"),
    help="How resources are asked for: `openpbs` (also PBS Pro: `-l select=…`) or `torque`"
    " (`-l nodes=…`).",
    example='"torque"',
    default="openpbs",
    default_text="openpbs; `dray cluster add` finds out",
)
GPU_RESOURCE = word(
    "gpu_resource", "The resource that names the type of GPU.", '"gpu_model"', default="gpu_type"
)
OPTIONS = (
    KIND_OPTION._replace(example='"pbs"'),
    HOST,
    ROOT,
    PYTHON,
    DIALECT,
    word("account", "The account to charge.", '"my_account"'),
    word("project", "The project to charge.", '"my_project"'),
    word("queue", "The queue, or QUEUE@SERVER.", '"gpu"', harmless=False),
    word("gpu_type", "The type of GPU to ask for.", '"a100"'),
    GPU_RESOURCE,
    word("chunk", "More to ask of the node, as it is.", '"system=polaris"', harmless=False),
    word("mail", "Where PBS writes when a job ends or fails.", '"me@example.org"', harmless=False),
    RUNTIME,
    CONVERT,
    MODULES,
    SETUP,
    EXTRA._replace(help="Further flags for qsub, as they are.", example='["-l place=excl"]'),
    RESUME_WITH,
    ORDER,
    SUPPORT,
    QUOTA_COMMAND,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.pbs:PbsCluster")
