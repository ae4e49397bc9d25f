"""The verbs for Python programs: ``dray.run([...], gpus=1)`` gives a ``Job``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from dray.clusters.protocol import Selection
from dray.config import loading as configuration
from dray.errors import UsageError, nearest
from dray.job import options
from dray.job.model import JobState, JobView, Series
from dray.launcher import Launcher


class Job:
    """A handle to one job. Everything it tells is asked of the cluster anew."""

    def __init__(self, job_id: str, launcher: Launcher | None = None) -> None:
        self._launcher = launcher or Launcher(configuration.load())
        self.id = self._launcher.find(job_id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    @property
    def view(self) -> JobView:
        """All that is known: description, state, attempts."""
        return self._launcher.show(self.id)

    @property
    def state(self) -> JobState:
        return self.view.state

    def wait(self, timeout: float | None = None) -> JobState:
        """Return the state it ended in; with a timeout, raise if it is still active then."""
        return self._launcher.wait(self.id, timeout).state

    def logs(
        self, *, attempt: int | None = None, rank: int = 0, follow: bool = False
    ) -> Iterator[bytes]:
        """The command's raw output, piece by piece."""
        for _, piece in self._launcher.logs(self.id, attempt=attempt, rank=rank, follow=follow):
            yield piece

    def curve(self) -> Series:
        """The main metric over all attempts: its name, and points of (step, value, attempt)."""
        return self._launcher.metrics(self.view)

    def stop(self, *, now: bool = False) -> JobState:
        return self._launcher.stop(self.id, now=now).state

    def resume(
        self,
        *,
        update_code: bool = False,
        start_from: str = "",
        secrets: Sequence[str] = (),
        **limits: Any,
    ) -> None:
        """Start another attempt, from the newest checkpoint or the one that ``start_from`` names;
        ``secrets`` come in addition to those it was submitted with. ``limits`` are those of
        [job.limits] in the place of its own: total_time="48h", gpu_hours=64, start_by="2h"."""
        self._launcher.resume(
            self.id,
            update_code=update_code,
            start_from=start_from,
            secrets=secrets,
            limits=parse_settings(limits, options.LIMITS),
        )

    def pull(
        self,
        target: str | PathLike[str] | None = None,
        *,
        only: Sequence[str] = (),
        latest_checkpoint: bool = False,
    ) -> Path:
        """Bring the outputs home, or those that fit one of the globs ``only`` and the newest whole
        checkpoint; return the folder."""
        folder = Path(target) if target is not None else None
        return self._launcher.pull(
            self.id, folder, Selection(tuple(only), latest_checkpoint)
        ).folder

    def remove(self) -> None:
        self._launcher.remove(self.id)


def run(
    command: Sequence[str] = (),
    *,
    on: str | None = None,
    project: str | PathLike[str] | None = None,
    snapshot: bool = True,
    start_from: str | PathLike[str] = "",
    like: str = "",
    **settings: Any,
) -> Job:
    """Submit a job. ``settings`` are those of dray.toml's [job] tables by name: gpus=1, time="4h",
    outputs=["logs"], checkpoint="logs/*.pt", resume_args=[…], env={…}, secrets=[…] …

    Its first attempt begins from the checkpoint that ``start_from`` names: a job's id, "JOB:NAME",
    or a path. With ``like``, it is described as that job, and may do without a command."""
    refuse_text(command)
    launcher = _launcher(on, project, settings)
    words, begin = [str(word) for word in command], os.fspath(start_from)
    return Job(launcher.run(words, snapshot=snapshot, start_from=begin, like=like), launcher)


def refuse_text(command: Sequence[str]) -> None:
    if isinstance(command, str):
        raise UsageError(
            "the command is one text", hint='Write it as a list: ["python", "train.py"]'
        )


def _launcher(
    on: str | None, project: str | PathLike[str] | None, settings: Mapping[str, Any]
) -> Launcher:
    flags = parse_settings({**settings, **({"on": on} if on is not None else {})})
    start = Path(project).absolute() if project is not None else None
    return Launcher(configuration.load(start, flags))


def run_many(
    commands: Sequence[Sequence[str]],
    *,
    on: str | None = None,
    project: str | PathLike[str] | None = None,
    snapshot: bool = True,
    **settings: Any,
) -> list[Job]:
    """Submit many jobs that differ only in their commands, at once: on a batch system a thousand
    are one array, and one call. ``settings`` as for ``run``."""
    for command in commands:
        refuse_text(command)
    launcher = _launcher(on, project, settings)
    words = [[str(word) for word in command] for command in commands]
    return [Job(job_id, launcher) for job_id in launcher.run_many(words, snapshot=snapshot)]


def jobs() -> list[Job]:
    """Active jobs and those of the last day, newest first."""
    launcher = Launcher(configuration.load())
    return [Job(row.id, launcher) for row in launcher.listing().rows]


def parse_settings(
    settings: Mapping[str, Any], among: Sequence[options.Option] = options.JOB
) -> dict[str, Any]:
    known = {option.name: option for option in among}
    parsed = {}
    for name, value in settings.items():
        if name not in known:
            raise UsageError(
                f"there is no setting '{name}'.{nearest(name, known)}",
                hint=f"There is: {', '.join(sorted(known))}.",
            )
        try:
            parsed[known[name].key] = known[name].parse(value)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from error
    return parsed
