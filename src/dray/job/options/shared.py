"""Settings that several kinds of cluster have in common; a kind names those that it has."""

from __future__ import annotations

from dray.job.options.option import Option
from dray.job.options.values import (
    Choice,
    absolute_path,
    count_from_zero,
    one_word,
    remote_path,
    runtime_name,
    ssh_host,
    text,
    texts,
)
from dray.job.quantities import parse_count, parse_size

KIND = Option(
    key="clusters.*.kind", parse=text, help="What sort of cluster it is.", example='"local"'
)

# What clusters with a login node have in common.
HOST = Option(
    key="clusters.*.host",
    parse=ssh_host,
    help="What `ssh HOST` reaches; without it, the scheduler is on this machine.",
    example='"euler"',
    default_text="this machine",
)
ROOT = Option(
    key="clusters.*.root",
    parse=remote_path,
    help="The folder for jobs and code, on a file system that all nodes share.",
    example='"$SCRATCH/dray"',
    default="$HOME/.dray",
)
PYTHON = Option(
    key="clusters.*.python",
    parse=text,
    help="A Python 3.6 or newer, on the login and compute nodes.",
    example='"/usr/bin/python3"',
    default="python3",
)
MODULES = Option(
    key="clusters.*.modules",
    many=True,
    parse=texts,
    help="Modules to load before the attempt; one that cannot be loaded ends the job.",
    example='["eth_proxy"]',
)
SETUP = Option(
    key="clusters.*.setup",
    many=True,
    parse=texts,
    help="Shell commands to run before the attempt, each whole in itself; one that fails ends the"
    " job.",
    example='["ulimit -c 0"]',
)
RUNTIME = Option(
    key="clusters.*.container",
    parse=runtime_name,
    help="What runs containers on its nodes: `apptainer`, `singularity` or `enroot`.",
    example='"apptainer"',
    default="auto",
    default_text="the first of them that is there",
    harmless=True,
)
CONVERT = Option(
    key="clusters.*.convert",
    parse=Choice("auto", "cluster", "laptop"),
    help="Where the file that containers start from is made: on the `cluster`, by a job, so that"
    " only new layers are sent; or on the `laptop`.",
    example='"laptop"',
    default="auto",
    default_text="the cluster where it has apptainer, else the laptop",
)
RESUME_WITH = Option(
    key="clusters.*.resume_with",
    parse=Choice("requeue", "chain"),
    help="How the next attempt is asked for: `requeue`, or `chain` (a new batch job that"
    " depends on this one).",
    example='"chain"',
    default_text="requeue, and chain where that is refused",
    harmless=True,
)


def word(
    name: str, meaning: str, example: str, *, default: str | None = None, harmless: bool = True
) -> Option:
    """Declare a cluster's setting that is one word."""
    return Option(
        key=f"clusters.*.{name}",
        parse=one_word,
        help=meaning,
        example=example,
        default=default,
        harmless=harmless,
    )


# What leads to a namespace of Kubernetes, by the user's own kubectl.
NAMESPACE = word(
    "namespace", "The namespace of your jobs.", '"runai-lab"', harmless=False
)._replace(default_text="that of the context")
CONTEXT = word("context", "A context of your kubeconfig.", '"lab"', harmless=False)._replace(
    default_text="the current one"
)
KUBECONFIG = Option(
    key="clusters.*.kubeconfig",
    parse=text,
    help="The kubeconfig to use.",
    example='"~/.kube/lab.yaml"',
    default_text="kubectl's own choice",
)

EXTRA = Option(
    key="clusters.*.extra",
    many=True,
    parse=texts,
    help="Further flags for the scheduler's command, as they are.",
    example='["--licenses=matlab"]',
)

# What a job gets with each of its GPUs, where it does not say itself.
PER_GPU = (
    Option(
        key="clusters.*.cpus_per_gpu",
        parse=parse_count,
        help="CPU cores for each GPU, where a job does not say how many.",
        example="8",
        harmless=True,
    ),
    Option(
        key="clusters.*.memory_per_gpu",
        parse=parse_size,
        help="Memory for each GPU, where a job does not say how much.",
        example='"60G"',
        harmless=True,
    ),
)

ORDER = Option(
    key="clusters.*.order",
    parse=Choice("scheduler", "fair-gpu"),
    help="How `dray queue` shows the queue: as the `scheduler` goes by it, or by the rule"
    " `fair-gpu`: everybody's first GPU before anybody's second. With `share`, jobs start by that"
    " rule where all who wait have set it.",
    example='"fair-gpu"',
    default="scheduler",
    harmless=True,
)

SUPPORT = Option(
    key="clusters.*.support",
    parse=one_word,
    help="The address that `dray ticket` writes to: that of the cluster's admins.",
    example='"help@example.org"',
)
QUOTA_COMMAND = Option(
    key="clusters.*.quota_command",
    many=True,
    parse=texts,
    help="The words of a command on the login node that prints your quota; `dray quota` shows what"
    " it says.",
    example='["lquota"]',
)

# What jobs may use of one machine, and with whom they share it.
SHARE = Option(
    key="clusters.*.share",
    parse=absolute_path,
    help="A folder through which several accounts of the machine share its GPUs, CPUs and memory:"
    " one queue for all that name it.",
    example='"/var/lib/dray-share"',
    default_text="each account has a queue of its own",
)
CAPACITY = (
    Option(
        key="clusters.*.gpus",
        parse=count_from_zero,
        help="GPUs that jobs may use.",
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
    SHARE,
)
