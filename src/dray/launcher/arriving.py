"""Waits until somebody can get into a job, and says meanwhile what the job waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dray.errors import ClusterError, DrayError, Refused
from dray.job.model import JobView
from dray.job.quantities import show_duration
from dray.launcher.context import Context
from dray.launcher.watching import Watching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

LOOK = 1.0  # seconds
PATIENCE = 60.0


class Arriving:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)

    def wait(self, job_id: str, enter: Callable[[JobView], T | None]) -> T:
        """Wait until the job runs and ``enter`` returns something. Raises Refused where the job
        ends before."""
        said, trouble = "", Trouble()
        while True:
            view = self.watching.show(job_id)
            if not view.state.active:
                raise self._why_ended(view)
            state = f"{job_id} is {view.state}{': ' + view.reason if view.reason else ''}"
            if state != said:
                self.context.reporter.say(state)
                said = state
            with trouble.borne():
                entered = enter(view) if view.attempts else None
                if entered is not None:
                    return entered
            time.sleep(LOOK)

    def _why_ended(self, view: JobView) -> DrayError:
        from dray.launcher.logs import Logs

        lines = Logs(self.context).last_lines(view, 3)
        last = ": " + " / ".join(lines) if lines else ""
        spans = [one.ended - one.started for one in view.attempts if one.started and one.ended]
        after = f" after {show_duration(sum(spans))}" if spans else ""
        return Refused(f"{view.id} is {view.state}{after}{last}", hint=f"dray logs {view.id}")


class Trouble:
    """What keeps us out of a job that is just starting: borne for a while, then told."""

    def __init__(self) -> None:
        self._since: float | None = None

    @contextmanager
    def borne(self) -> Iterator[None]:
        try:
            yield
            self._since = None
        except (Refused, ClusterError):
            self._since = self._since or time.monotonic()
            if time.monotonic() - self._since > PATIENCE:
                raise
