"""The settings of a Slurm cluster. Light: they are read before anything is done there."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.option import Option
from dray.job.options.shared import (
    CONVERT,
    EXTRA,
    HOST,
    MODULES,
    ORDER,
    PER_GPU,
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
from dray.job.options.values import Choice, yes_or_no

GPU_FLAG = Option(
    key="clusters.*.gpu_flag",
    parse=Choice("gres", "gpus-per-node", "gpus"),
    help="How sbatch is asked for GPUs: `gres`, `gpus-per-node` or `gpus`.",
    example='"gpus-per-node"',
    default="gres",
    harmless=True,
)
EXCLUSIVE = Option(
    key="clusters.*.exclusive",
    parse=yes_or_no,
    help="Whether jobs have their nodes to themselves.",
    example="true",
    default=False,
    harmless=True,
)
OPTIONS = (
    KIND_OPTION._replace(example='"slurm"'),
    HOST,
    ROOT,
    PYTHON,
    word("account", "The account to charge.", '"my_account"'),
    word("partition", "Partition, or several with commas.", '"gpu"'),
    word("qos", "Quality of service.", '"normal"'),
    word("constraint", "Node features that are needed.", '"a100|h100"'),
    word("reservation", "A reservation to use.", '"course"'),
    word("nodelist", "Nodes to use.", '"node[1-4]"'),
    word("exclude", "Nodes not to use.", '"node7"'),
    word("gpu_type", "The GPU's name in gres.", '"a100"'),
    word(
        "mail", "Where Slurm writes when a job ends or fails.", '"me@example.org"', harmless=False
    ),
    GPU_FLAG,
    *PER_GPU,
    EXCLUSIVE,
    RUNTIME,
    CONVERT,
    MODULES,
    SETUP,
    EXTRA._replace(help="Further flags for sbatch, as they are.", example='["--licenses=matlab"]'),
    RESUME_WITH,
    ORDER,
    SUPPORT,
    QUOTA_COMMAND,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.slurm:SlurmCluster")
