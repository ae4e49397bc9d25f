"""Makes the description of a job from settings and a command. Pure but for the id's randomness."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from os import urandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dray.config import loading as configuration
from dray.config.loading import Config
from dray.errors import UsageError
from dray.job.model import Container, JobSpec, Limits, Metrics, Resources, Resume
from dray.job.options import env_name, value_of
from dray.job.options.shared import RUNTIME
from dray.job.quantities import show_duration
from dray.node.sessions.commands import is_session
from dray.records import replace

if TYPE_CHECKING:
    from datetime import datetime

    from dray.recipes import Filled

CONTAINER = "job.container."
LONG_SLOT = 4 * 3600.0  # seconds; a job that asks for this much often has to wait
LEAST_SLOT = 3600.0
LONGEST_WAIT = 10 * 366 * 86400.0
ID_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"

# How secrets are called, and how those of well-known services begin.
SECRET_NAME = r"(^|_)(KEY|TOKEN|PAT)$|APIKEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
SECRET_VALUE = (
    r"\s*(hf_\w{8}|gh[opsur]_\w{8}|github_pat_|glpat-|sk-[\w-]{8}|(AKIA|ASIA)[A-Z0-9]{8}|xox[a-z]-"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY)"
)


def describe(
    command: Sequence[str],
    config: Config,
    base: Mapping[str, str],
    now: float,
    filled: Filled | None = None,
) -> JobSpec:
    """Return the job that the settings and this command make.

    ``base``: the environment to start from. ``filled``: what is already filled in, if the command
    is another job's.
    """
    if not command and filled is None:
        raise UsageError(
            "there is no command", hint="Write it behind --: dray run -- python train.py"
        )
    filled = filled or fill_in(command, config, base)
    settings, command = filled.settings, filled.command
    name = settings.get("job.name") or name_of(command)
    both = sorted(set(value_of(settings, "job.secrets")) & set(value_of(settings, "job.env")))
    if both:
        raise UsageError(
            f"{both[0]} is given both as a variable and as a secret",
            hint="A variable's value is written down in the job's description: leave out --env.",
        )
    cluster = config.cluster(value_of(settings, "job.on")).settings
    resources = describe_resources(settings, cluster)
    limits = describe_limits(settings, resources, now)
    if is_session(command) and limits.total_time is None:  # nobody would be there for the next one
        limits = replace(limits, total_time=resources.time)
    container = describe_container(settings, cluster, base)
    return JobSpec(
        id=new_id(name),
        name=name,
        command=tuple(command),
        folder=config.folder,
        project=str(config.project),
        resources=resources,
        resume=describe_resume(settings, shortest(resources, limits)),
        metrics=Metrics(
            main=tuple(value_of(settings, "job.metrics.main")),
            tensorboard=settings.get("job.metrics.tensorboard"),
            pattern=settings.get("job.metrics.pattern"),
        ),
        container=container,
        retries=value_of(settings, "job.retries"),
        recipe=settings.get("job.recipe", ""),
        launch=settings.get("job.launch") or default_launch(resources.nodes),
        outputs=value_of(settings, "job.outputs"),
        env={**({} if container else base), **value_of(settings, "job.env")},
        secrets=value_of(settings, "job.secrets"),
        links=dict(filled.links),
        notes=filled.notes
        + unused_binds(settings)
        + notes_on_unheld_checkpoint(settings)
        + notes_on_exposed_secrets(value_of(settings, "job.env")),
        created=now,
        limits=limits,
        hold=settings.get("job.hold"),
        stall=settings.get("job.stall"),
        **describe_codes(settings),
    )


def fill_in(
    command: Sequence[str], config: Config, base: Mapping[str, str] = MappingProxyType({})
) -> Filled:
    """Return the command and all settings, with the recipe's if there is one. Its paths are
    relative to where the command starts."""
    from dray import recipes  # not for a listing
    from dray.clusters import registry

    name = config.job.get("job.recipe")
    if not name:
        return recipes.Filled(tuple(command), config.job)
    recipe = recipes.find(name)
    on = config.cluster(config.on)
    gpus = value_of(config.job, "job.resources.gpus")
    filled = recipe.fill(
        recipes.Request(
            command=tuple(command),
            folder=config.project / config.folder,
            on=registry.capabilities_of(on.kind),
            nodes=value_of(config.job, "job.resources.nodes"),
            gpus=int(gpus.number),
            launch=config.job.get("job.launch"),
            python=config.job.get("job.python", ()),
            image=config.job.get("job.image", ""),
            is_whole=not config.folder,
            env={**base, **value_of(config.job, "job.env")},
        )
    )
    metrics = dict(recipe.metrics)
    if config.folder and "tensorboard" in metrics:
        metrics["tensorboard"] = f"{config.folder}/{metrics['tensorboard']}"
    settings = configuration.from_folder({**recipe.settings, **filled.settings}, config.folder)
    settings.update((f"job.metrics.{key}", value) for key, value in metrics.items())
    configuration.combine(settings, config.job)
    return filled._replace(settings=settings)


def describe_resources(settings: Mapping[str, Any], cluster: Mapping[str, Any]) -> Resources:
    """Return what the job asks for; else, for each GPU, what is usual on the cluster."""
    gpus = value_of(settings, "job.resources.gpus")
    usual = {
        f"job.resources.{name}": math.ceil(cluster[f"{name}_per_gpu"] * gpus.number)
        for name in ("cpus", "memory")
        if gpus.number and f"{name}_per_gpu" in cluster
    }
    return Resources(
        nodes=value_of(settings, "job.resources.nodes"),
        gpus=gpus.number,
        gpu_type=gpus.kind,
        cpus=value_of({**usual, **settings}, "job.resources.cpus"),
        memory=value_of({**usual, **settings}, "job.resources.memory"),
        time=settings.get("job.resources.time"),
        time_min=shortest_slot(settings),
    )


def shortest_slot(settings: Mapping[str, Any]) -> float | None:
    """Return the shortest time slot that a job that resumes accepts. Each start costs it minutes,
    and Slurm may give no more than this: a quarter, but at least an hour, is worth starting for."""
    time, least = settings.get("job.resources.time"), settings.get("job.resources.time_min")
    resumes = bool(settings.get("job.resume.checkpoint"))
    if least is None:
        return max(time / 4, LEAST_SLOT) if resumes and time and time >= LONG_SLOT else None
    if not least:
        return None
    if not resumes:
        raise UsageError(
            "--time-min (time_min) is set, but no checkpoint: a shorter slot would end the run",
            hint="Say which files are checkpoints: --checkpoint 'logs/**/model_*.pt'",
        )
    if time is None or least > time:
        raise UsageError(
            f"--time-min is {show_duration(least)}, which is not within --time",
            hint="Say how long an attempt takes at most: --time 8h",
        )
    return float(least)


def describe_limits(settings: Mapping[str, Any], resources: Resources, now: float) -> Limits:
    """Return the job's own limits. A time that was given as a duration counts from now."""
    hours = settings.get("job.limits.gpu_hours")
    if hours is not None and not resources.gpus:
        raise UsageError(
            "--gpu-hours (gpu_hours) is set, but no GPUs are asked for",
            hint="Ask for them (--gpus 1), or limit its running time: --total-time 24h",
        )
    return Limits(
        total_time=settings.get("job.limits.total_time"),
        gpu_hours=hours,
        start_by=moment_of(settings.get("job.limits.start_by"), now),
    )


def renewed_limits(job: JobSpec, given: Mapping[str, Any], now: float) -> Limits:
    """Return the limits of a job that is resumed: its own, except for those given now. ``start_by``
    applied to its first start only."""
    own = {
        "job.limits.total_time": job.limits.total_time,
        "job.limits.gpu_hours": job.limits.gpu_hours,
    }
    return describe_limits({**own, **given}, job.resources, now)


def moment_of(given: float | datetime | None, now: float) -> float | None:
    if given is None:
        return None
    moment = now + given if isinstance(given, float) else given.timestamp()
    if not now < moment < now + LONGEST_WAIT:
        raise UsageError("--start-by (start_by) is over already, or years away")
    return moment


def shortest(resources: Resources, limits: Limits) -> float | None:
    """Return the time within which an attempt has to end, whatever limits it."""
    hours = limits.gpu_hours
    budget = hours * 3600 / (resources.gpus * resources.nodes) if hours else None
    known = [one for one in (resources.time, limits.total_time, budget) if one]
    return min(known) if known else None


def describe_codes(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: settings.get(f"job.{key}", ()) for key in ("retry_on", "fail_on")}
    both = sorted(set(found["retry_on"]) & set(found["fail_on"]))
    if both:
        raise UsageError(f"exit code {both[0]} is both in retry_on and in fail_on")
    return found


def describe_container(
    settings: Mapping[str, Any], cluster: Mapping[str, Any], base: Mapping[str, str]
) -> Container | None:
    """Return the container, with the image as the user calls it: which one that is on the cluster
    is found out later."""
    image = settings.get("job.image")
    given = {
        key.removeprefix(CONTAINER): value
        for key, value in settings.items()
        if key.startswith(CONTAINER)
    }
    if image:
        runtime = RUNTIME.of(cluster)
        return Container(image=image, name=image, runtime=runtime, outside=base, **given)
    return None


def unused_binds(settings: Mapping[str, Any]) -> tuple[str, ...]:
    if settings.get("job.image") or not settings.get("job.container.binds"):
        return ()
    return ("the binds are not used: there is no image, so the command sees all of the node",)


def notes_on_unheld_checkpoint(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note if no declared output can hold what the checkpoint's pattern matches."""
    from glob import has_magic  # not for a listing

    pattern = settings.get("job.resume.checkpoint") or ""
    outputs = value_of(settings, "job.outputs")
    fixed = list(takewhile(lambda part: not has_magic(part), pattern.split("/")))
    if (
        not pattern
        or not outputs
        or not fixed
        or any(overlap(fixed, one.split("/")) for one in outputs)
    ):
        return ()
    where = f"lies in no declared output ({', '.join(outputs)})"
    found = "it is found only where the command writes it below $DRAY_OUTPUTS"
    return (f"the checkpoint {pattern} {where}: {found}",)


def overlap(path: Sequence[str], output: Sequence[str]) -> bool:
    """Return whether one of the two lies below the other."""
    shorter = min(len(path), len(output))
    return list(path[:shorter]) == list(output[:shorter])


def notes_on_exposed_secrets(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note for each variable that looks like a secret."""
    return tuple(
        f"{name} looks like a secret, and its value is written down in the job's description: "
        f"give it with --secret {name} instead"
        for name, value in variables.items()
        if value and (re.search(SECRET_NAME, name, re.I) or re.match(SECRET_VALUE, value))
    )


def describe_resume(settings: Mapping[str, Any], limit: float | None) -> Resume:
    checkpoint = settings.get("job.resume.checkpoint")
    if not checkpoint:
        for key, flag in (
            ("resume_args", "resume-arg"),
            ("checkpoint_signal", "checkpoint-signal"),
            ("number", "checkpoint-number"),
            ("partner", "checkpoint-partner"),
            ("keep", "keep-checkpoints"),
        ):
            if settings.get(f"job.resume.{key}"):
                raise UsageError(
                    f"--{flag} ({key}) is set, but no checkpoint",
                    hint="Say which files are checkpoints: --checkpoint 'logs/**/model_*.pt'",
                )
    elif checkpoint.startswith("/") or ".." in checkpoint.split("/"):
        raise UsageError(f"the checkpoint '{checkpoint}' must be relative to the outputs")
    if settings.get("job.resume.partner") and not settings.get("job.resume.number"):
        raise UsageError(
            "--checkpoint-partner (partner) is set, but not how a checkpoint is numbered",
            hint=r"Say it: --checkpoint-number 'model_(\d+)'",
        )
    for word in value_of(settings, "job.resume.resume_args"):
        require_placeholders(word)
    grace = settings.get("job.resume.grace")
    if grace is None:
        grace = default_grace(limit)
    elif limit and grace >= limit:
        raise UsageError(f"the grace of {grace:g} s is not less than the time limit of {limit:g} s")
    return Resume(
        checkpoint=checkpoint,
        number=settings.get("job.resume.number"),
        total=settings.get("job.resume.total"),
        scale=value_of(settings, "job.resume.scale"),
        anew=value_of(settings, "job.resume.anew"),
        finished=settings.get("job.resume.finished"),
        partner=settings.get("job.resume.partner"),
        looks_for=settings.get("job.resume.looks_for"),
        beside=settings.get("job.resume.beside"),
        keep=settings.get("job.resume.keep"),
        args=value_of(settings, "job.resume.resume_args"),
        begin_args=value_of(settings, "job.resume.begin_args"),
        signal=settings.get("job.resume.checkpoint_signal"),
        saves=settings.get("job.resume.saves"),
        grace=grace,
        backoff=value_of(settings, "job.resume.backoff"),
    )


def default_grace(limit: float | None) -> float:
    grace: float = value_of({}, "job.resume.grace")
    return min(grace, limit / 10) if limit else grace


def default_launch(nodes: int) -> str:
    return "none" if nodes == 1 else "srun"


def require_placeholders(word: str) -> None:
    """Refuse what is meant as a placeholder but would be passed to the trainer as it is."""
    import difflib  # only for a job that resumes

    from dray.node.checkpoints.resuming import PLACEHOLDERS

    for name in re.findall(r"\{\w+\}", word):
        meant = difflib.get_close_matches(name, PLACEHOLDERS, n=1, cutoff=0.75)
        if meant and name not in PLACEHOLDERS:
            raise UsageError(
                f"--resume-arg {word}: {name} stands for nothing. Did you mean {meant[0]}?",
                hint=f"There is {', '.join(PLACEHOLDERS)}.",
            )


def name_of(command: Sequence[str]) -> str:
    """Return what a person would call it: the script, else the module behind -m, else the
    program."""
    scripts = [word for word in command if re.search(r"\.(py|sh)$", word)]
    if scripts:
        name = scripts[0].rpartition("/")[2].rpartition(".")[0]
    elif "-m" in command[:-1]:
        name = command[list(command).index("-m") + 1].rpartition(".")[2]
    else:
        name = command[0].rpartition("/")[2]
    cleaned = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-")
    return cleaned or "job"


def new_id(name: str, letters: int = 4) -> str:
    return f"{name}-{''.join(ID_LETTERS[byte % len(ID_LETTERS)] for byte in urandom(letters))}"


def add_to_environment(pairs: Sequence[str]) -> dict[str, str]:
    """Parse --env K=V, or --env K for the variable's current value."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            env_name(name)
        except ValueError as error:
            raise UsageError(f"--env {pair}: {error}") from error
        current = configuration.environment().get(name)
        if not equals and current is None:
            raise UsageError(f"--env {name}: the variable is not set here")
        found[name] = value if equals else current or ""
    return found
