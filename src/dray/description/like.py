"""Goes from a job's description back to the settings that make the same one (``dray run
--like``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dray.config import loading as configuration
from dray.config.loading import Config
from dray.description.describing import (
    CONTAINER,
    default_grace,
    default_launch,
    name_of,
    shortest_slot,
)
from dray.job.model import JobSpec
from dray.job.options import GpuRequest
from dray.node.sessions.commands import is_session
from dray.recipes import Filled
from dray.records import asdict

# What a recipe fills in. It would be wrong for another recipe.
FILLED = ("job.resume.", "job.metrics.", CONTAINER, "job.outputs", "job.launch")
# What only a session has so; its image, variables, outputs and resources are the user's.
OF_SESSION = (
    "job.name",
    "job.recipe",
    "job.launch",
    "job.limits.total_time",
    "job.resume.",
    "job.metrics.",
)
RENAMED = {"args": "resume_args", "signal": "checkpoint_signal"}
NOT_SET: tuple[Any, ...] = (None, "", (), {}, False)
# What a trial of a sweep has besides: another job is none.
TRIAL_VARIABLES = (
    "DRAY_SWEEP",
    "DRAY_TRIAL",
    "DRAY_PARAMS",
    "DRAY_SEED",
    "WANDB_RUN_GROUP",
    "WANDB_RUN_ID",
    "WANDB_RESUME",
)
SHAPE = ("job.recipe", "job.python", "job.resources.gpus", "job.resources.nodes")


def config_like(config: Config, spec: JobSpec, cluster: str, *, anew: bool) -> Config:
    """Return the settings of a job like this one, with the flags that were given. What the
    project's file says about jobs today is ignored; but for a job like a session, which had no
    trainer, its recipe counts. ``anew``: with another command."""
    settings = settings_of(spec, cluster, keep_name=not anew)
    recipe = config.flags.get("job.recipe", spec.recipe)
    if is_session(spec.command):
        settings = {key: one for key, one in settings.items() if not key.startswith(OF_SESSION)}
        if config.job.get("job.recipe"):
            settings["job.recipe"] = config.job["job.recipe"]
    elif recipe != spec.recipe:
        settings = {key: one for key, one in settings.items() if not key.startswith(FILLED)}
    elif anew and recipe:
        settings.pop("job.launch", None)
    configuration.combine(settings, config.flags)
    return config._replace(job=settings)


def settings_of(spec: JobSpec, cluster: str, *, keep_name: bool = True) -> dict[str, Any]:
    """Return the settings that make this description, by config key."""
    wanted, container = spec.resources, spec.container
    found: dict[str, Any] = {
        "job.on": cluster,
        "job.name": spec.name if keep_name or spec.name != name_of(spec.command) else None,
        "job.recipe": spec.recipe,
        "job.image": container.name or container.image if container else None,
        "job.resources.nodes": wanted.nodes,
        "job.resources.gpus": GpuRequest(wanted.gpus, wanted.gpu_type),
        "job.resources.cpus": wanted.cpus,
        "job.resources.memory": wanted.memory,
        "job.resources.time": wanted.time,
        "job.launch": spec.launch if spec.launch != default_launch(wanted.nodes) else None,
        "job.retries": spec.retries,
        "job.retry_on": spec.retry_on,
        "job.fail_on": spec.fail_on,
        "job.hold": spec.hold,
        "job.stall": spec.stall,
        # That job's start_by is over.
        "job.limits.total_time": spec.limits.total_time,
        "job.limits.gpu_hours": spec.limits.gpu_hours,
        "job.outputs": spec.outputs,
        "job.env": own_variables(spec.env, without=TRIAL_VARIABLES if spec.sweep else ()),
        "job.secrets": spec.secrets,
    }
    for key, value in asdict(spec.resume).items():
        found[f"job.resume.{RENAMED.get(key, key)}"] = value
    if spec.resume.grace == default_grace(wanted.time):
        del found["job.resume.grace"]
    found.update((f"job.metrics.{key}", value) for key, value in asdict(spec.metrics).items())
    if container is not None:
        own = ("image", "name", "runtime", "outside")
        parts = asdict(container).items()
        found.update((f"{CONTAINER}{key}", value) for key, value in parts if key not in own)
    found = {key: value for key, value in found.items() if value not in NOT_SET}
    if wanted.time_min != shortest_slot(found):
        found["job.resources.time_min"] = wanted.time_min or 0.0
    return found


def own_variables(env: Mapping[str, str], without: Collection[str] = ()) -> dict[str, str]:
    """Return the variables without those that a local job has from the shell it was submitted
    from."""
    own = (name for name in env if name not in without)
    return {name: env[name] for name in own if not configuration.is_inherited(name)}


def as_before(spec: JobSpec, config: Config) -> Filled:
    """Return that job's command as it was, for a new job with these settings."""
    is_other = bool(spec.recipe) and any(key in config.flags for key in SHAPE)
    made_then = (
        f"the command is that of {spec.id}, as the recipe made it then: write its arguments behind "
        "-- to have it made anew"
    )
    return Filled(spec.command, config.job, (made_then,) if is_other else (), spec.links)
