"""The settings of a job."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.job.options.option import Option, joined, outermost, updated
from dray.job.options.values import (
    Choice,
    binds,
    caches,
    count_from_zero,
    counting_pattern,
    env_names,
    env_patterns,
    env_table,
    exit_codes,
    gpu_request,
    image,
    job_name,
    metric_pattern,
    output_paths,
    partner_name,
    place_inside,
    rule,
    rules,
    signal_name,
    text,
    texts,
    total_flag,
    words,
    yes_or_no,
)
from dray.job.quantities import (
    parse_count,
    parse_duration,
    parse_hours,
    parse_moment,
    parse_shortest,
    parse_size,
)
from dray.node.processes.layout import LAUNCHES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JOB = (
    Option(
        key="job.on",
        flag="--on",
        metavar="CLUSTER",
        parse=text,
        help="The cluster to run on.",
        example='"local"',
        default="local",
        default_text="DRAY_ON, else `on` in [job], else local",
        harmless=True,
    ),
    Option(
        key="job.name",
        flag="--name",
        metavar="NAME",
        parse=job_name,
        help="The job's name, the first part of its id.",
        example='"anymal"',
        default_text="taken from the command",
        harmless=True,
    ),
    Option(
        key="job.recipe",
        flag="--recipe",
        metavar="RECIPE",
        parse=text,
        help="What the trainer is: how it is started, spread and resumed (`dray recipe list`).",
        example='"isaaclab/rsl_rl"',
        harmless=True,
    ),
    Option(
        key="job.python",
        flag="--python",
        metavar="PYTHON",
        parse=words,
        help="The Python that the recipe starts the trainer with.",
        example='"/isaac-sim/python.sh"',
        default_text="`./isaaclab.sh -p` where there is one, else `python`; "
        "`/isaac-sim/python.sh` in a container of Isaac Lab",
        harmless=True,
    ),
    Option(
        key="job.image",
        flag="--image",
        metavar="IMAGE",
        parse=image,
        help="The container image to run in: a name that Docker or Podman knows here, a .sif file, "
        "a registry's (docker://…), or the absolute path of one on the cluster.",
        example='"isaac-lab-base"',
        default_text="none: the command runs on the node as it is",
        harmless=True,
    ),
    Option(
        key="job.resources.nodes",
        flag="--nodes",
        metavar="N",
        parse=parse_count,
        help="Nodes; GPUs, CPUs and memory are asked for on each of them.",
        example="2",
        default=1,
        harmless=True,
    ),
    Option(
        key="job.resources.gpus",
        flag="--gpus",
        metavar="N",
        parse=gpu_request,
        help="GPUs of a node; a fraction (0.5) shares one, a100:2 asks for a type.",
        example="1",
        default=0,
        harmless=True,
    ),
    Option(
        key="job.resources.cpus",
        flag="--cpus",
        metavar="N",
        parse=parse_count,
        help="CPU cores of a node.",
        example="4",
        default=1,
        harmless=True,
    ),
    Option(
        key="job.resources.memory",
        flag="--memory",
        metavar="SIZE",
        parse=parse_size,
        help="Memory of a node (512M, 32G); an attempt that uses more is ended.",
        example='"32G"',
        default_text="not limited",
        harmless=True,
    ),
    Option(
        key="job.resources.time",
        flag="--time",
        metavar="TIME",
        parse=parse_duration,
        help="Time limit of one attempt (90s, 30m, 4h, 1d12h); then the job is resumed.",
        example='"4h"',
        default_text="not limited",
        harmless=True,
    ),
    Option(
        key="job.resources.time_min",
        flag="--time-min",
        metavar="TIME",
        parse=parse_shortest,
        help="The shortest slot that the job takes on Slurm, where that lets it start earlier; 0"
        " takes only whole ones.",
        example='"1h"',
        default_text="a quarter of --time, at least 1h, for a job that resumes and asks for 4h or "
        "more",
        harmless=True,
    ),
    Option(
        key="job.limits.total_time",
        flag="--total-time",
        metavar="TIME",
        parse=parse_duration,
        help="How long the job may run in all, over its attempts; then it is stopped, after its "
        "last checkpoint.",
        example='"24h"',
        default_text="not limited",
        harmless=True,
    ),
    Option(
        key="job.limits.gpu_hours",
        flag="--gpu-hours",
        metavar="HOURS",
        parse=parse_hours,
        help="How many GPU hours (GPUs × nodes × running time) the job may use in all, over its "
        "attempts; then it is stopped, after its last checkpoint.",
        example="64",
        default_text="not limited",
        harmless=True,
    ),
    Option(
        key="job.limits.start_by",
        flag="--start-by",
        metavar="WHEN",
        parse=parse_moment,
        help="When the job has to have begun, or it is stopped: a time from submission (2h), or a "
        "moment (2026-11-17T08:00).",
        example='"12h"',
        default_text="it waits for as long as it takes",
        harmless=True,
    ),
    Option(
        key="job.launch",
        flag="--launch",
        metavar="HOW",
        parse=Choice(*LAUNCHES),
        help="How the command is spread: `srun` (once per GPU), `torchrun` (torchrun on each node)"
        " or `none` (once, on the first node).",
        example='"torchrun"',
        default_text="none on one node, srun on several",
        harmless=True,
    ),
    Option(
        key="job.retries",
        flag="--retries",
        metavar="N",
        parse=count_from_zero,
        help="How often a crash is retried.",
        example="2",
        default=0,
        harmless=True,
    ),
    Option(
        key="job.retry_on",
        flag="--retry-on",
        metavar="CODE",
        many=True,
        parse=exit_codes,
        help="An exit code after which the command is tried again without using up a retry, until "
        "it happens three times without progress. A command killed by signal N counts as 128+N.",
        example="[75, 137]",
        harmless=True,
    ),
    Option(
        key="job.fail_on",
        flag="--fail-on",
        metavar="CODE",
        many=True,
        parse=exit_codes,
        help="An exit code that is never retried.",
        example="[2]",
        harmless=True,
    ),
    Option(
        key="job.hold",
        flag="--hold",
        metavar="TIME",
        parse=parse_duration,
        help="Keep the allocation and the work tree for so long after the crash that ends the job,"
        " for a look; `dray stop` ends that.",
        example='"30m"',
        default_text="not at all",
        harmless=True,
    ),
    Option(
        key="job.stall",
        flag="--stall",
        metavar="TIME",
        parse=parse_duration,
        help="Take the command for hung when there was no output, no metric and no checkpoint for"
        " so long: it is ended, and tried again as after a crash.",
        example='"10m"',
        default_text="never",
        harmless=True,
    ),
    Option(
        key="job.outputs",
        flag="--output",
        metavar="PATH",
        many=True,
        merge=outermost,
        parse=output_paths,
        help="A file or folder that the command writes, kept with the job.",
        example='["logs"]',
        harmless=True,
    ),
    Option(
        key="job.env",
        flag="--env",
        metavar="K=V",
        many=True,
        merge=updated,
        parse=env_table,
        help="A variable for the command; K alone copies the variable's current value.",
        default={},
        example='{ OMP_NUM_THREADS = "4" }',
        harmless=True,
    ),
    Option(
        key="job.secrets",
        flag="--secret",
        metavar="NAME",
        many=True,
        merge=joined,
        parse=env_names,
        help="A secret variable, from the environment, the keyring or ~/.netrc.",
        example='["WANDB_API_KEY"]',
    ),
    Option(
        key="job.resume.checkpoint",
        flag="--checkpoint",
        metavar="GLOB",
        parse=text,
        help="Checkpoint files, relative to the outputs; the newest whole one is resumed from.",
        example='"logs/**/model_*.pt"',
        harmless=True,
    ),
    Option(
        key="job.resume.number",
        flag="--checkpoint-number",
        metavar="REGEX",
        parse=counting_pattern,
        help="What in a checkpoint's name tells how far it is, as its one group: those of a run are"
        " ordered by that instead of by time.",
        example="'_ep_([0-9]+)'",
        harmless=True,
    ),
    Option(
        key="job.resume.partner",
        flag="--checkpoint-partner",
        metavar="NAME",
        parse=partner_name,
        help="The file that is saved beside each checkpoint, with {number} in its name: where"
        " others have theirs, one without it is passed over. $DRAY_CHECKPOINT_PARTNER is its path.",
        example="'model_vecnormalize_{number}_steps.pkl'",
        harmless=True,
    ),
    Option(
        key="job.resume.total",
        flag="--iterations-flag",
        metavar="ARG",
        parse=total_flag,
        help="The command's argument that says how many iterations there are in all, for {left}.",
        example='"--max_iterations"',
        harmless=True,
    ),
    Option(
        key="job.resume.keep",
        flag="--keep-checkpoints",
        metavar="N",
        parse=parse_count,
        help="How many checkpoints stay; the newest whole one is never removed.",
        example="3",
        default_text="all",
        harmless=True,
    ),
    Option(
        key="job.resume.resume_args",
        flag="--resume-arg",
        metavar="ARG",
        many=True,
        parse=texts,
        help="Added to the command on a resume, in the place of the same arguments there;"
        " {checkpoint} is the checkpoint's path, {name} its file name, {run} the name of its"
        " folder, {run_pattern} a regular expression for that name, {number} how far it is, {left}"
        " how many iterations are left, {total} how many there are in all.",
        example='["--resume", "{checkpoint}"]',
        harmless=True,
    ),
    Option(
        key="job.resume.checkpoint_signal",
        flag="--checkpoint-signal",
        metavar="SIGNAL",
        parse=signal_name,
        help="The signal that asks the trainer for a checkpoint.",
        example='"USR1"',
        harmless=True,
    ),
    Option(
        key="job.resume.saves",
        flag="--checkpoint-mode",
        metavar="WHEN",
        parse=Choice("on-request", "periodically"),
        help="When the trainer saves: `on-request` (by the signal, or on SIGTERM), and it is asked "
        "as late as possible; or `periodically`, and it is ended right after the last checkpoint "
        "that fits into the time limit.",
        example='"periodically"',
        default_text="learned from the attempts before",
        harmless=True,
    ),
    Option(
        key="job.resume.grace",
        flag="--grace",
        metavar="TIME",
        parse=parse_duration,
        help="Time to save and stop before the command is killed.",
        example='"30s"',
        default="30s",
        default_text="30s, or a tenth of --time if that is less",
        harmless=True,
    ),
    Option(
        key="job.resume.backoff",
        flag="--backoff",
        metavar="TIME",
        parse=parse_duration,
        help="Pause before the first retry of a crash; doubled for each further one.",
        example='"10s"',
        default="10s",
        harmless=True,
    ),
    Option(
        key="job.metrics.main",
        flag="--metric",
        metavar="NAME",
        many=True,
        parse=texts,
        help="The metric that `ps` and `show` tell of: a TensorBoard tag or a reported name; of "
        "several, the first that there is.",
        example='["Train/mean_reward"]',
        default_text="the first that is reported, else a tag that looks like a reward",
        harmless=True,
    ),
    Option(
        key="job.metrics.tensorboard",
        flag="--tensorboard",
        metavar="GLOB",
        parse=text,
        help="TensorBoard's event files, relative to the outputs.",
        example='"logs/**/events.out.tfevents.*"',
        default_text="all of them",
        harmless=True,
    ),
    Option(
        key="job.metrics.pattern",
        flag="--metric-pattern",
        metavar="REGEX",
        parse=metric_pattern,
        help="Reads the metric from lines of the log instead: a group named `step` is the step, "
        "the first other group the value.",
        example='"reward: ([-0-9.e]+)"',
        harmless=True,
    ),
    Option(
        key="job.container.binds",
        flag="--bind",
        metavar="BIND",
        many=True,
        merge=joined,
        parse=binds,
        help="A file or folder of the node that the container sees: SOURCE[:TARGET[:ro]]; ~ and "
        "$VARIABLES are the node's.",
        example='["/cluster/data:/data:ro"]',
        harmless=True,
    ),
    Option(
        key="job.container.pass_env",
        many=True,
        merge=joined,
        parse=env_patterns,
        help="Variables of the node that the container sees, by name or pattern. Those of the "
        "scheduler, of GPUs and of proxies it sees anyway.",
        example='["UCX_*"]',
        harmless=True,
    ),
    Option(
        key="job.container.containall",
        parse=yes_or_no,
        help="Whether processes, IPC and environment are the container's own, too.",
        example="true",
        default=False,
        harmless=True,
    ),
    Option(
        key="job.container.writable",
        parse=Choice("no", "tmpfs", "overlay"),
        help="Whether files of the image can be changed, for the length of an attempt: `tmpfs` "
        "keeps the changes in memory (often 64 MB at most), `overlay` on the node's disk.",
        example='"overlay"',
        default="no",
        harmless=True,
    ),
    Option(
        key="job.container.home",
        parse=Choice("scratch", "cluster"),
        help="The home inside: `scratch` is an empty one for each attempt, `cluster` yours.",
        example='"cluster"',
        default="scratch",
        harmless=True,
    ),
    Option(
        key="job.container.workdir",
        parse=place_inside,
        help="Where the work tree is inside.",
        example='"/workspace/isaaclab"',
        default="",
        default_text="where it is outside",
        harmless=True,
    ),
    Option(
        key="job.container.caches",
        many=True,
        parse=caches,
        help="Folders inside that are kept from job to job, each with a name; ~ is the home "
        "inside.",
        example='["pip:~/.cache/pip"]',
        harmless=True,
    ),
    Option(
        key="job.container.local_copy",
        parse=Choice("auto", "yes", "no"),
        help="Whether the image is copied to the node's own disk first; `auto` does where it lies "
        "on a network file system and there is room.",
        example='"no"',
        default="auto",
        harmless=True,
    ),
)

LIMITS = tuple(option for option in JOB if option.table == "job.limits")


# What only a recipe sets, by the rules of dray.node.checkpoints.resuming: no file and no flag has
# these keys.
RECIPE_ONLY = (
    Option(
        key="job.resume.total",
        parse=rule,
        help="How many iterations there are in all, as a rule.",
        example='{ flag = "--max_iterations", file = "params/agent.yaml", rest = true }',
    ),
    Option(
        key="job.resume.scale",
        many=True,
        parse=rules,
        help="Look-ups whose product is how many of a checkpoint's numbers make one iteration.",
        example='[{ file = "params/agent.yaml", pattern = "n_steps: ([0-9]+)" }]',
    ),
    Option(
        key="job.resume.anew",
        parse=yes_or_no,
        help="Whether the trainer counts from zero again when it is resumed.",
        example="true",
        default=False,
    ),
    Option(
        key="job.resume.finished",
        parse=text,
        help="A file in the run's folder that is written when all is done.",
        example='"model.zip"',
    ),
    Option(
        key="job.resume.looks_for",
        parse=text,
        help="The name under which the trainer looks for its checkpoint by itself.",
        example='"last.ckpt"',
    ),
    Option(
        key="job.resume.beside",
        parse=text,
        help="A pattern for files beside that one, which are overwritten with it.",
        example='"env_*.ckpt"',
    ),
    Option(
        key="job.resume.begin_args",
        many=True,
        parse=texts,
        help="As resume_args, where a run begins from a checkpoint of another one.",
        example='["--checkpoint", "{checkpoint}"]',
    ),
)

DECLARED: Mapping[str, Option] = MappingProxyType(
    {option.key: option for option in (*RECIPE_ONLY, *JOB)}
)


def value_of(settings: Mapping[str, Any], key: str) -> Any:
    """Return what the settings of a job say, else the option's default."""
    return DECLARED[key].of(settings)
