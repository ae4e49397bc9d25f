"""The settings of this machine. Light: they are read before anything is done there."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.option import Option
from dray.job.options.shared import CAPACITY, ORDER, RUNTIME
from dray.job.options.shared import KIND as KIND_OPTION
from dray.job.options.values import text

OPTIONS = (
    KIND_OPTION._replace(example='"local"'),
    Option(
        key="clusters.*.root",
        parse=text,
        help="The folder for jobs and code; ~ and $VARIABLES are filled in.",
        example='"$SCRATCH/dray"',
        default_text="dray's data folder",
    ),
    *CAPACITY,
    RUNTIME,
    ORDER,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.local:LocalCluster")
