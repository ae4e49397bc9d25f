"""The settings of this machine. Light: they are read before anything is done there."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.option import Option
from dray.job.options.shared import KIND as KIND_OPTION
from dray.job.options.shared import RUNTIME
from dray.job.options.values import count_from_zero, text
from dray.job.quantities import parse_count, parse_size

OPTIONS = (
    KIND_OPTION._replace(example='"local"'),
    Option(
        key="clusters.*.root",
        parse=text,
        help="The folder for jobs and code; ~ and $VARIABLES are filled in.",
        example='"$SCRATCH/dray"',
        default_text="dray's data folder",
    ),
    Option(
        key="clusters.*.gpus",
        parse=count_from_zero,
        help="GPUs of this machine.",
        example="2",
        default_text="as many as nvidia-smi lists",
        harmless=True,
    ),
    Option(
        key="clusters.*.cpus",
        parse=parse_count,
        help="CPU cores that jobs may use.",
        example="8",
        default_text="all",
        harmless=True,
    ),
    Option(
        key="clusters.*.memory",
        parse=parse_size,
        help="Memory that jobs may use.",
        example='"64G"',
        default_text="all",
        harmless=True,
    ),
    RUNTIME,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.local:LocalCluster")
