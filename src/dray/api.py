"""Offers the verbs to Python programs: ``dray.run([...], gpus=1)`` gives a ``Job``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Unpack, overload
from warnings import warn

from dray.clusters.protocol import Selection
from dray.config import loading as configuration
from dray.errors import NotFound, UsageError, nearest
from dray.job import options
from dray.job.keywords import JobSettings, LimitSettings, keyword
from dray.job.model import JobState, JobView, Series
from dray.launcher import Launcher
from dray.launcher.pipelines import Before


class Job:
    """A handle to one job. Every method asks its cluster; no property does."""

    def __init__(self, job_id: str, launcher: Launcher | None = None) -> None:
        self._launcher = launcher or Launcher(configuration.load())
        self.id = self._launcher.find(job_id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def show(self) -> JobView:
        """Return all that is known of it: description, state, reason, attempts."""
        return self._launcher.show(self.id)

    @property
    def view(self) -> JobView:
        _warn("Job.view asks the cluster each time: call Job.show()")
        return self.show()

    @property
    def state(self) -> JobState:
        _warn("Job.state asks the cluster each time: call Job.show().state")
        return self.show().state

    def wait(self, timeout: float | None = None) -> JobState:
        """Wait until it has ended, and return the state it ended in. Raise ``TimedOut`` where it
        is still active after ``timeout`` seconds."""
        return self._launcher.wait(self.id, timeout).state

    def logs(
        self, *, attempt: int | None = None, rank: int = 0, follow: bool = False
    ) -> Iterator[bytes]:
        """Read the command's raw output piece by piece, of all attempts or of one. With
        ``follow``, go on until the job has ended."""
        for _, piece in self._launcher.logs(self.id, attempt=attempt, rank=rank, follow=follow):
            yield piece

    def curve(self) -> Series:
        """Return the main metric over all attempts: its name, and points of (step, value,
        attempt)."""
        return self._launcher.metrics(self.show())

    def stop(self, *, now: bool = False) -> JobState:
        """Stop it after a checkpoint, or at once with ``now``; wait until it has ended."""
        return self._launcher.stop(self.id, now=now).state

    def resume(
        self,
        *,
        update_code: bool = False,
        start_from: str = "",
        secrets: Sequence[str] = (),
        **limits: Unpack[LimitSettings],
    ) -> None:
        """Start another attempt of an ended job, from its newest checkpoint or the one that
        ``start_from`` names. ``secrets`` are added to those it was submitted with. ``limits``
        replace its own: total_time="48h", gpu_hours=64, start_by="2h"."""
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
        """Bring its outputs into a folder of this machine, and return the folder. With globs in
        ``only`` or with ``latest_checkpoint``, bring no more than what they select."""
        folder = Path(target) if target is not None else None
        return self._launcher.pull(
            self.id, folder, Selection(tuple(only), latest_checkpoint)
        ).folder

    def remove(self) -> None:
        """Remove an ended job and all its files."""
        self._launcher.remove(self.id)


class Jobs(Sequence[Job]):
    """Several jobs. What is asked of all of them takes one question per cluster."""

    def __init__(self, jobs: Iterable[Job], launcher: Launcher) -> None:
        self._jobs = list(jobs)
        self._launcher = launcher

    @property
    def ids(self) -> list[str]:
        return [job.id for job in self._jobs]

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, at: int) -> Job: ...

    @overload
    def __getitem__(self, at: slice) -> Jobs: ...

    def __getitem__(self, at: int | slice) -> Job | Jobs:
        if isinstance(at, slice):
            return Jobs(self._jobs[at], self._launcher)
        return self._jobs[at]

    def __repr__(self) -> str:
        return f"Jobs({self.ids!r})"

    def show(self) -> list[JobView]:
        """Return all that is known of each, in order."""
        store = self._launcher.open_store()
        seen = [view for job_id in self.ids if (view := store.view(job_id)) is not None]
        for cluster in {view.cluster for view in seen if view.state.active}:
            self._launcher.refresh(cluster)
        return [self._known(job_id) for job_id in self.ids]

    def _known(self, job_id: str) -> JobView:
        view = self._launcher.open_store().view(job_id)
        if view is None:
            raise NotFound(f"there is no job '{job_id}' any more")
        return view

    def states(self) -> list[JobState]:
        """Return the state of each, in order."""
        return [view.state for view in self.show()]

    def wait(self, timeout: float | None = None) -> list[JobState]:
        """Wait until all have ended, and return the states they ended in, in order. Raise
        ``TimedOut`` where one is still active after ``timeout`` seconds."""
        return [view.state for view in self._launcher.wait_all(self.ids, timeout)]

    def stop(self, *, now: bool = False) -> list[JobState]:
        """Stop those that have not ended, after a checkpoint or at once with ``now``; wait until
        all have ended, and return their states, in order."""
        active = [view.id for view in self.show() if view.state.active]
        if active:
            self._launcher.stop_all(active, now=now)
        return self.wait()


def run(
    command: Sequence[str] = (),
    *,
    on: str | None = None,
    project: str | PathLike[str] | None = None,
    snapshot: bool = True,
    start_from: str | PathLike[str] = "",
    like: str = "",
    after: Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    **settings: Unpack[JobSettings],
) -> Job:
    """Submit a job and return a handle to it. ``settings`` win over those of dray.toml: gpus=1,
    time="4h", outputs=["logs"], checkpoint="logs/*.pt", env={…} … ``on`` names the cluster,
    ``project`` the folder whose code is sent along; with ``snapshot=False`` none is.

    With ``start_from``, its first attempt begins from a checkpoint: a job's id, "JOB:NAME", or a
    path. With ``like``, it is described as that job, and needs no command of its own.

    With ``after``, it starts once these jobs are done ("JOB"), or have ended ("JOB:any"). With
    ``inputs``, its command reads outputs of other jobs: {"policy": "JOB:PATH"} is
    $DRAY_INPUT_POLICY."""
    refuse_text(command)
    if isinstance(after, str):
        raise UsageError("after= is one text", hint=f'Write it as a list: ["{after}"]')
    launcher = _launcher(on, project, settings)
    words, begin = [str(word) for word in command], os.fspath(start_from)
    before = Before.of(after, inputs or {}) if after or inputs else None
    return Job(
        launcher.run(words, snapshot=snapshot, start_from=begin, like=like, before=before), launcher
    )


def refuse_text(command: Sequence[str]) -> None:
    if isinstance(command, str):
        raise UsageError(
            "the command is one text", hint='Write it as a list: ["python", "train.py"]'
        )


def _launcher(
    on: str | None, project: str | PathLike[str] | None, settings: Mapping[str, object]
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
    **settings: Unpack[JobSettings],
) -> Jobs:
    """Submit many jobs that differ only in their commands, and return handles to them. On Slurm a
    thousand are one array and one call. The other arguments are those of ``run``."""
    for command in commands:
        refuse_text(command)
    launcher = _launcher(on, project, settings)
    words = [[str(word) for word in command] for command in commands]
    ids = launcher.run_many(words, snapshot=snapshot)
    return Jobs((Job(job_id, launcher) for job_id in ids), launcher)


def jobs() -> Jobs:
    """Return active jobs and those of the last day, newest first."""
    launcher = Launcher(configuration.load())
    return Jobs((Job(row.id, launcher) for row in launcher.listing().rows), launcher)


def parse_settings(
    settings: Mapping[str, Any], among: Sequence[options.Option] = options.JOB
) -> dict[str, Any]:
    """Read keywords, and return the values by the settings' keys."""
    known = {keyword(option): option for option in among}
    earlier = {option.name: name for name, option in known.items() if option.name != name}
    parsed: dict[str, Any] = {}
    for given, value in settings.items():
        name = given
        if given in earlier and given not in known:
            name = earlier[given]
            _warn(f"the setting {given}= is now called {name}=", stacklevel=5)
        if name not in known:
            raise UsageError(
                f"there is no setting '{given}'.{nearest(given, known)}",
                hint=f"There is: {', '.join(sorted(known))}.",
            )
        if known[name].key in parsed:
            raise UsageError(f"{name}: it is given twice, as {given} too")
        try:
            plain = dict(value) if isinstance(value, Mapping) else value
            parsed[known[name].key] = known[name].parse(plain)
        except ValueError as error:
            raise UsageError(f"{given}: {error}") from error
    return parsed


def _warn(message: str, stacklevel: int = 3) -> None:
    warn(message, DeprecationWarning, stacklevel=stacklevel)
