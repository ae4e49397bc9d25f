"""The settings of the jobs of a batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dray.config import loading as configuration
from dray.config.batch_file import BatchFile, BatchJob
from dray.config.loading import Config
from dray.errors import UsageError
from dray.launcher.sweep_dealing import names_in


def dealt(config: Config, file: BatchFile) -> BatchFile:
    """Deal the jobs that name no cluster out among those that the command names, one by one."""
    on = config.flags.get("job.on") or file.defaults.get("job.on") or config.on
    names = names_in(str(on))
    if len(names) == 1:
        return file
    if file.together:
        raise UsageError("--on: jobs that run together run on one cluster")
    jobs, free = [], 0
    for job in file.jobs:
        if "job.on" not in job.settings:
            on = names[free % len(names)]
            job, free = job._replace(settings={**job.settings, "job.on": on}), free + 1
        jobs.append(job)
    return file._replace(jobs=tuple(jobs))


def settings_for(config: Config, file: BatchFile, job: BatchJob) -> Config:
    """Return the settings of one job: its own win over the file's defaults, and those over the
    project's; but a cluster that the command names wins over a default one."""
    settings = dict(config.job)
    defaults = dict(file.defaults)
    if "job.on" in config.flags:
        defaults.pop("job.on", None)
    for stronger in (defaults, job.settings):
        require_known_secrets(config, job, stronger)
        configuration.combine(settings, configuration.from_folder(stronger, config.folder))
    settings["job.name"] = job.name or None
    return config._replace(job={key: one for key, one in settings.items() if one is not None})


def require_known_secrets(config: Config, job: BatchJob, settings: Mapping[str, object]) -> None:
    """Refuse a file that names secrets which the user has not: it may be somebody else's."""
    wanted = settings.get("job.secrets", ())
    known = config.job.get("job.secrets", ())
    for name in wanted if isinstance(wanted, tuple) else ():
        if name not in known:
            raise job.mistake(
                f"secrets: {name} leaves this machine only where you say so yourself",
                hint=f"Name it on the command line: dray batch --secret {name} …",
            )
