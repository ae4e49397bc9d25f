"""Every setting, declared once: config key, flag, type, help. CLI, config and docs read this."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from dray.checks import VARIABLE
from dray.job.quantities import (
    parse_count,
    parse_duration,
    parse_gpus,
    parse_hours,
    parse_moment,
    parse_shortest,
    parse_size,
)
from dray.node.notifications.notify import EVENTS, MAIL, is_address
from dray.node.processes.layout import LAUNCHES

LONGEST_PATH = 4096  # Linux has no longer ones
LARGEST_CODE = 255


class Option(NamedTuple):
    """``key`` is the place in dray.toml; ``parse`` reads a TOML value or a flag's text."""

    key: str
    help: str
    parse: Callable[[object], Any]
    example: str
    flag: str = ""
    metavar: str = "TEXT"
    many: bool = False  # a list in TOML, a flag that may be repeated
    default: str = ""  # in words, where there is one
    # Heeded also from a project's file that the user has not trusted: it decides neither where
    # programs are started, nor what is run outside the job, nor which secrets go out.
    harmless: bool = False

    @property
    def table(self) -> str:
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text in quotes")
    return value


def texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f'{value!r} is not a list of texts: write ["…"]')
    return tuple(text(one) for one in value)


def job_name(value: object) -> str:
    name = text(value)
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", name):
        raise ValueError(
            f"the name '{name}' must be of lower-case letters, digits and '-', 40 at the most"
        )
    return name


def output_path(value: object) -> str:
    path = text(value)
    parts = path.rstrip("/").split("/")
    if len(path) > LONGEST_PATH:
        raise ValueError(f"the output '{path[:20]}…' is longer than a path can be")
    if path.startswith("/") or ".." in parts or not path.strip("/.") or set("*?[\0") & set(path):
        raise ValueError(f"the output '{path}' must be a path below the project's folder")
    return "/".join(part for part in parts if part not in ("", "."))


def output_paths(value: object) -> tuple[str, ...]:
    return tuple(output_path(one) for one in texts(value))


def signal_name(value: object) -> str:
    import signal  # its enums take a while to make: only where one is named

    name = text(value).upper().removeprefix("SIG")
    number = signal.Signals.__members__.get(f"SIG{name}")
    if number is None or number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        raise ValueError(f"'{value}' is not a signal that a program can answer: write USR1 or USR2")
    return name


def env_table(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table of variables")
    return {env_name(key): env_value(key, one) for key, one in value.items()}


def env_value(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError(f"{name}: {value!r} is not a text in quotes, or a number")
    return str(value)


def env_name(value: object) -> str:
    name = text(value)
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"'{name}' is not the name of a variable")
    return name


def env_names(value: object) -> tuple[str, ...]:
    return tuple(env_name(one) for one in texts(value))


def mailbox(value: object) -> str:
    address = text(value)
    if not is_address(MAIL, address):
        raise ValueError(f"'{address}' is not a mail address")
    return address


def events(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one_of(one, EVENTS) for one in texts(value)))


class GpuRequest(NamedTuple):
    number: float
    kind: str | None = None


def gpu_request(value: object) -> GpuRequest:
    kind, colon, count = str(value).rpartition(":")
    if colon and not re.fullmatch(r"[A-Za-z0-9_.-]+", kind):
        raise ValueError(f"cannot read the GPUs '{value}': write 2, 0.5 or a100:2")
    return GpuRequest(parse_gpus(count if colon else value), kind or None)


def remote_path(value: object) -> str:
    path = text(value)
    if not path.startswith(("/", "~/", "$")):  # the agent fills in no other home than one's own
        raise ValueError(f"'{path}' must begin with /, ~/ or a $VARIABLE")
    if not re.fullmatch(r"(~|\$\w++|\$\{\w+\})?/?[\w./@:+,=$-]*", path):
        raise ValueError(f"'{path}' must be a path of letters, digits and /._-@:+,= or $VARIABLES")
    return path


def one_word(value: object) -> str:
    word = text(value)
    if not word or re.search(r"\s", word):
        raise ValueError(f"'{word}' must be one word without spaces")
    return word


def ssh_host(value: object) -> str:
    host = one_word(value)
    # ssh would take it for an option, or hand it to the shell of a ProxyCommand.
    if host.startswith("-") or re.search(r"""['"`$\\;&<>|(){}*?!#]""", host):
        raise ValueError(f"'{host}' is not a host")
    return host


def resume_way(value: object) -> str:
    if value not in ("requeue", "chain"):
        raise ValueError(f"'{value}' is neither 'requeue' nor 'chain'")
    return str(value)


def launch_way(value: object) -> str:
    return one_of(value, LAUNCHES)


def regular_expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"'{pattern}' is not a regular expression: {error}") from error


def metric_pattern(value: object) -> str:
    pattern = text(value)
    compiled = regular_expression(pattern)
    if compiled.groups == ("step" in compiled.groupindex):
        raise ValueError(f"'{pattern}' has no group for the value: write reward: ([-0-9.e]+)")
    return pattern


def gpu_flag(value: object) -> str:
    return one_of(value, ("gres", "gpus-per-node", "gpus"))


def one_of(value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"'{value}' is none of {', '.join(choices)}")
    return str(value)


def yes_or_no(value: object) -> bool:
    if value not in (True, False, "true", "false"):
        raise ValueError(f"'{value}' is neither true nor false")
    return value in (True, "true")


def pbs_dialect(value: object) -> str:
    return one_of(value, ("openpbs", "torque"))


def words(value: object) -> tuple[str, ...]:
    import shlex  # only where one is given

    found = tuple(shlex.split(text(value)))
    if not found:
        raise ValueError("it is empty")
    return found


def retries(value: object) -> int:
    return parse_count(value, least=0)


def exit_codes(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a list of exit codes: write [75, 137]")
    codes = tuple(dict.fromkeys(parse_count(one) for one in value))
    for code in codes:
        if code > LARGEST_CODE:
            raise ValueError(f"{code} is not the exit code of a failure: they are 1 to 255")
    return codes


def counting_pattern(value: object) -> str:
    pattern = text(value)
    if regular_expression(pattern).groups != 1:
        raise ValueError(f"'{pattern}' must have one group: the number, as in model_([0-9]+)")
    return pattern


def partner_name(value: object) -> str:
    name = one_word(value)
    if "{number}" not in name or "/" in name:
        raise ValueError(f"'{name}' is not the name of a file with {{number}} in it")
    return name


def total_flag(value: object) -> dict[str, str]:
    flag = one_word(value)
    if not flag.startswith("-"):
        raise ValueError(f"'{flag}' is not an argument of the command such as --max_iterations")
    return {"flag": flag}


def image(value: object) -> str:
    name = one_word(value)
    if name.startswith("-"):
        raise ValueError(f"'{name}' is not an image")
    return name


def bind(value: object) -> str:
    """SOURCE[:TARGET[:ro]], as Apptainer and Docker write it. The source is on the node, where ~
    and $VARIABLES are filled in; ~ in the target is the home inside."""
    source, *rest = text(value).split(":")
    target, *mode = rest or [source]
    absolute = source.startswith(("/", "~", "$")) and target.startswith(("/", "~", "$"))
    if not absolute or mode not in ([], ["ro"], ["rw"]) or set(",\0\n") & set(text(value)):
        raise ValueError(f"cannot read the bind '{value}': write /on/the/node:/inside:ro")
    return text(value)


def binds(value: object) -> tuple[str, ...]:
    return tuple(bind(one) for one in texts(value))


def cache(value: object) -> str:
    if not re.fullmatch(r"[\w][\w.-]*:(~|/)[^:,\0\n]*", text(value)):
        raise ValueError(f"cannot read the cache '{value}': write kit:/isaac-sim/kit/cache")
    return text(value)


def caches(value: object) -> tuple[str, ...]:
    return tuple(cache(one) for one in texts(value))


def env_patterns(value: object) -> tuple[str, ...]:
    for one in texts(value):
        if not re.fullmatch(r"[A-Za-z_*?][A-Za-z0-9_*?]*", one):
            raise ValueError(f"'{one}' is not the name of a variable, or a pattern such as NCCL_*")
    return texts(value)


def place_inside(value: object) -> str:
    path = text(value)
    if path and not re.fullmatch(r"/[^:,\0\n]+", path):
        raise ValueError(f"'{path}' must be an absolute path inside the container")
    return path.rstrip("/")


JOB = (
    Option(
        key="job.on",
        flag="--on",
        metavar="CLUSTER",
        parse=text,
        help="The cluster to run on.",
        example='"local"',
        default="DRAY_ON, else `on` in [job], else local",
        harmless=True,
    ),
    Option(
        key="job.name",
        flag="--name",
        metavar="NAME",
        parse=job_name,
        help="The job's name, the first part of its id.",
        example='"anymal"',
        default="taken from the command",
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
        default="`./isaaclab.sh -p` where there is one, else `python`; `/isaac-sim/python.sh` in a "
        "container of Isaac Lab",
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
        default="none: the command runs on the node as it is",
        harmless=True,
    ),
    Option(
        key="job.resources.nodes",
        flag="--nodes",
        metavar="N",
        parse=parse_count,
        help="Nodes; GPUs, CPUs and memory are asked for on each of them.",
        example="2",
        default="1",
        harmless=True,
    ),
    Option(
        key="job.resources.gpus",
        flag="--gpus",
        metavar="N",
        parse=gpu_request,
        help="GPUs of a node; a fraction (0.5) shares one, a100:2 asks for a type.",
        example="1",
        default="0",
        harmless=True,
    ),
    Option(
        key="job.resources.cpus",
        flag="--cpus",
        metavar="N",
        parse=parse_count,
        help="CPU cores of a node.",
        example="4",
        default="1",
        harmless=True,
    ),
    Option(
        key="job.resources.memory",
        flag="--memory",
        metavar="SIZE",
        parse=parse_size,
        help="Memory of a node (512M, 32G); an attempt that uses more is ended.",
        example='"32G"',
        default="not limited",
        harmless=True,
    ),
    Option(
        key="job.resources.time",
        flag="--time",
        metavar="TIME",
        parse=parse_duration,
        help="Time limit of one attempt (90s, 30m, 4h, 1d12h); then the job is resumed.",
        example='"4h"',
        default="not limited",
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
        default="a quarter of --time, at least 1h, for a job that resumes and asks for 4h or more",
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
        default="not limited",
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
        default="not limited",
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
        default="it waits for as long as it takes",
        harmless=True,
    ),
    Option(
        key="job.launch",
        flag="--launch",
        metavar="HOW",
        parse=launch_way,
        help="How the command is spread: `srun` (once per GPU), `torchrun` (torchrun on each node)"
        " or `none` (once, on the first node).",
        example='"torchrun"',
        default="none on one node, srun on several",
        harmless=True,
    ),
    Option(
        key="job.retries",
        flag="--retries",
        metavar="N",
        parse=retries,
        help="How often a crash is retried.",
        example="2",
        default="0",
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
        default="not at all",
        harmless=True,
    ),
    Option(
        key="job.outputs",
        flag="--output",
        metavar="PATH",
        many=True,
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
        parse=env_table,
        help="A variable for the command; K alone takes today's value.",
        example='{ OMP_NUM_THREADS = "4" }',
        harmless=True,
    ),
    Option(
        key="job.secrets",
        flag="--secret",
        metavar="NAME",
        many=True,
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
        flag="--total",
        metavar="ARG",
        parse=total_flag,
        help="The command's argument that says how many iterations there are in all, for {left}.",
        example='"--max_iterations"',
        harmless=True,
    ),
    Option(
        key="job.resume.keep",
        flag="--keep",
        metavar="N",
        parse=parse_count,
        help="How many checkpoints stay; the newest whole one is never removed.",
        example="3",
        default="all",
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
        flag="--saves",
        metavar="WHEN",
        parse=lambda value: one_of(value, ("on-request", "periodically")),
        help="When the trainer saves: `on-request` (by the signal, or on SIGTERM), and it is asked "
        "as late as possible; or `periodically`, and it is ended right after the last checkpoint "
        "that fits into the time limit.",
        example='"periodically"',
        default="learned from the attempts before",
        harmless=True,
    ),
    Option(
        key="job.resume.grace",
        flag="--grace",
        metavar="TIME",
        parse=parse_duration,
        help="Time to save and stop before the command is killed.",
        example='"30s"',
        default="30s, or a tenth of --time if that is less",
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
        default="the first that is reported, else a tag that looks like a reward",
        harmless=True,
    ),
    Option(
        key="job.metrics.tensorboard",
        flag="--tensorboard",
        metavar="GLOB",
        parse=text,
        help="TensorBoard's event files, relative to the outputs.",
        example='"logs/**/events.out.tfevents.*"',
        default="all of them",
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
        parse=binds,
        help="A file or folder of the node that the container sees: SOURCE[:TARGET[:ro]]; ~ and "
        "$VARIABLES are the node's.",
        example='["/cluster/data:/data:ro"]',
        harmless=True,
    ),
    Option(
        key="job.container.pass_env",
        many=True,
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
        default="false",
        harmless=True,
    ),
    Option(
        key="job.container.writable",
        parse=lambda value: one_of(value, ("no", "tmpfs", "overlay")),
        help="Whether files of the image can be changed, for the length of an attempt: `tmpfs` "
        "keeps the changes in memory (often 64 MB at most), `overlay` on the node's disk.",
        example='"overlay"',
        default="no",
        harmless=True,
    ),
    Option(
        key="job.container.home",
        parse=lambda value: one_of(value, ("scratch", "cluster")),
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
        default="where it is outside",
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
        parse=lambda value: one_of(value, ("auto", "yes", "no")),
        help="Whether the image is copied to the node's own disk first; `auto` does where it lies "
        "on a network file system and there is room.",
        example='"no"',
        default="auto",
        harmless=True,
    ),
)

LIMITS = tuple(option for option in JOB if option.table == "job.limits")

SNAPSHOT = (
    Option(
        key="snapshot.max_size",
        parse=parse_size,
        help="A larger tree is refused, with its biggest folders named.",
        example='"2G"',
        default="1G",
        harmless=True,
    ),
)

NOTIFY = (
    *(
        Option(key=f"notify.{name}", parse=env_name, help=meaning, example=example)
        for name, meaning, example in (
            ("ntfy", "The secret that holds the URL of an ntfy topic.", '"NTFY_URL"'),
            ("slack", "The secret that holds the URL of a Slack webhook.", '"SLACK_WEBHOOK_URL"'),
            ("webhook", "The secret that holds a URL to post JSON to.", '"RUNS_WEBHOOK_URL"'),
        )
    ),
    Option(
        key="notify.mail",
        parse=mailbox,
        help="A mail address, written to by the `sendmail` of the node, the login node or this"
        " machine.",
        example='"me@example.org"',
    ),
    Option(
        key="notify.desktop",
        parse=yes_or_no,
        help="Whether this machine shows a notification when a dray command here sees the end.",
        example="true",
        default="false",
    ),
    Option(
        key="notify.on",
        many=True,
        parse=events,
        help="What is told: `done`, `failed` (also given up, and lost), `stopped`, and `started`"
        " (after a long wait).",
        example='["failed"]',
        default="done, failed, started",
    ),
    Option(
        key="notify.after",
        parse=parse_duration,
        help="The end of a job that took less than this, from submission to end, is not told.",
        example='"10m"',
        default="none",
    ),
    Option(
        key="notify.long_wait",
        parse=parse_duration,
        help="How long a job has to wait for its first attempt for `started` to be told.",
        example='"15m"',
        default="1h",
    ),
)

KIND = Option(
    key="clusters.*.kind", parse=text, help="What sort of cluster it is.", example='"local"'
)

# What clusters with a login node have in common.
HOST = Option(
    key="clusters.*.host",
    parse=ssh_host,
    help="What `ssh HOST` reaches; without it, the scheduler is on this machine.",
    example='"euler"',
    default="this machine",
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
    parse=lambda value: one_of(value, ("auto", "apptainer", "singularity", "enroot")),
    help="What runs containers on its nodes: `apptainer`, `singularity` or `enroot`.",
    example='"apptainer"',
    default="the first of them that is there",
    harmless=True,
)
CONVERT = Option(
    key="clusters.*.convert",
    parse=lambda value: one_of(value, ("auto", "cluster", "laptop")),
    help="Where the file that containers start from is made: on the `cluster`, by a job, so that"
    " only new layers are sent; or on the `laptop`.",
    example='"laptop"',
    default="the cluster where it has apptainer, else the laptop",
)
RESUME_WITH = Option(
    key="clusters.*.resume_with",
    parse=resume_way,
    help="How the next attempt is asked for: `requeue`, or `chain` (a new batch job that"
    " depends on this one).",
    example='"chain"',
    default="requeue, and chain where that is refused",
    harmless=True,
)

CAPACITY = (
    Option(
        key="clusters.*.gpus",
        parse=lambda value: parse_count(value, least=0),
        help="GPUs that jobs may use.",
        example="2",
        default="as many as nvidia-smi lists",
        harmless=True,
    ),
    Option(
        key="clusters.*.cpus",
        parse=parse_count,
        help="CPU cores that jobs may use.",
        example="8",
        default="all",
        harmless=True,
    ),
    Option(
        key="clusters.*.memory",
        parse=parse_size,
        help="Memory that jobs may use.",
        example='"64G"',
        default="all",
        harmless=True,
    ),
)

CLUSTERS = {
    "local": (
        KIND._replace(example='"local"'),
        Option(
            key="clusters.*.root",
            parse=text,
            help="The folder for jobs and code; ~ and $VARIABLES are filled in.",
            example='"$SCRATCH/dray"',
            default="dray's data folder",
        ),
        *CAPACITY,
        RUNTIME,
    ),
    "slurm": (
        KIND._replace(example='"slurm"'),
        HOST,
        ROOT,
        PYTHON,
        *(
            Option(
                key=f"clusters.*.{name}",
                parse=one_word,
                help=f"{meaning}.",
                example=example,
                harmless=name != "mail",
            )
            for name, meaning, example in (
                ("account", "The account to charge", '"my_account"'),
                ("partition", "Partition, or several with commas", '"gpu"'),
                ("qos", "Quality of service", '"normal"'),
                ("constraint", "Node features that are needed", '"a100|h100"'),
                ("reservation", "A reservation to use", '"course"'),
                ("nodelist", "Nodes to use", '"node[1-4]"'),
                ("exclude", "Nodes not to use", '"node7"'),
                ("gpu_type", "The GPU's name in gres", '"a100"'),
                ("mail", "Where Slurm writes when a job ends or fails", '"me@example.org"'),
            )
        ),
        Option(
            key="clusters.*.gpu_flag",
            parse=gpu_flag,
            help="How sbatch is asked for GPUs: `gres`, `gpus-per-node` or `gpus`.",
            example='"gpus-per-node"',
            default="gres",
            harmless=True,
        ),
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
        Option(
            key="clusters.*.exclusive",
            parse=yes_or_no,
            help="Whether jobs have their nodes to themselves.",
            example="true",
            default="false",
            harmless=True,
        ),
        RUNTIME,
        CONVERT,
        MODULES,
        SETUP,
        Option(
            key="clusters.*.extra",
            many=True,
            parse=texts,
            help="Further flags for sbatch, as they are.",
            example='["--licenses=matlab"]',
        ),
        RESUME_WITH,
    ),
    "ssh": (
        KIND._replace(example='"ssh"'),
        HOST._replace(help="What `ssh HOST` reaches.", example='"workstation"'),
        ROOT._replace(help="The folder for jobs and code."),
        PYTHON._replace(help="A Python 3.6 or newer on that machine."),
        *CAPACITY,
        RUNTIME,
        CONVERT,
        MODULES,
        SETUP,
    ),
    # Of PBS, a queue can be another server's, and a chunk is passed on as it is.
    "pbs": (
        KIND._replace(example='"pbs"'),
        HOST,
        ROOT,
        PYTHON,
        Option(
            key="clusters.*.dialect",
            parse=pbs_dialect,
            help="How resources are asked for: `openpbs` (also PBS Pro: `-l select=…`) or `torque`"
            " (`-l nodes=…`).",
            example='"torque"',
            default="openpbs; `dray cluster add` finds out",
        ),
        *(
            Option(
                key=f"clusters.*.{name}",
                parse=one_word,
                help=f"{meaning}.",
                example=example,
                harmless=name not in ("queue", "chunk", "mail"),
            )
            for name, meaning, example in (
                ("account", "The account to charge", '"my_account"'),
                ("project", "The project to charge", '"my_project"'),
                ("queue", "The queue, or QUEUE@SERVER", '"gpu"'),
                ("gpu_type", "The type of GPU to ask for", '"a100"'),
                ("gpu_resource", "The resource that names the type of GPU", '"gpu_model"'),
                ("chunk", "More to ask of the node, as it is", '"system=polaris"'),
                ("mail", "Where PBS writes when a job ends or fails", '"me@example.org"'),
            )
        ),
        RUNTIME,
        CONVERT,
        MODULES,
        SETUP,
        Option(
            key="clusters.*.extra",
            many=True,
            parse=texts,
            help="Further flags for qsub, as they are.",
            example='["-l place=excl"]',
        ),
        RESUME_WITH,
    ),
}
