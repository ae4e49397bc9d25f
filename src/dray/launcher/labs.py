"""JupyterLab on a cluster: finds the one that runs or starts one, and says how it is reached."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dray import checks
from dray.checks import Malformed
from dray.errors import ClusterError, DrayError, Refused
from dray.job.model import JobView
from dray.job.quantities import show_duration
from dray.launcher.context import Context
from dray.launcher.sessions import Sessioning
from dray.launcher.watching import Watching
from dray.node.formats import shapes
from dray.records import NamedTuple
from dray.sessions.executing import read_output

MODULE = ("-m", "dray_node")  # on the path of every Python in a job
NEVER = "never"
LOOK = 1.0  # seconds
PATIENCE = 60.0
MOST_NOTES = 1 << 16  # bytes


class Reached(NamedTuple):
    """How a notebook server is reached from beside it."""

    socket: str
    token: str


def lab_command(python: Sequence[str], idle: float | None) -> list[str]:
    """Return the command of a job that is a notebook server."""
    return [*python, *MODULE, "lab", NEVER if idle is None else f"{idle:g}"]


def notes_command(command: Sequence[str]) -> list[str]:
    """Return the command that tells how such a job is reached, in the job."""
    return [*command[: lab_at(command)], "lab-notes"]


def lab_at(command: Sequence[str]) -> int:
    """Return where in a job's command the word ``lab`` is; 0 where it is no notebook server."""
    words = (*MODULE, "lab")
    places = range(1, len(command) - len(words) + 1)
    found = (at for at in places if tuple(command[at : at + len(words)]) == words)
    return next(found, -len(MODULE)) + len(MODULE)


class Labs:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = Watching(context)
        self.sessions = Sessioning(context)

    def running(self, on: str) -> str | None:
        """Return the notebook server of this project on this cluster that runs or waits."""
        self.watching.refresh(on)
        project = str(self.context.config.project)
        store = self.context.open_store()
        for job_id in store.active().get(on, {}):
            view = store.view(job_id)
            if view and view.spec.project == project and lab_at(view.spec.command):
                return job_id
        return None

    def wait(self, job_id: str) -> Reached:
        """Wait until the server answers; say what it waits for."""
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
                reached = self._ask(view) if view.attempts else None
                if reached is not None:
                    return reached
            time.sleep(LOOK)

    def _ask(self, view: JobView) -> Reached | None:
        """Ask how it is reached; None where it is just starting."""
        way = self.sessions.way(view.id, self.context.cluster(view.cluster))
        text = read_output(way, notes_command(view.spec.command), MOST_NOTES)
        try:
            return reached_by(text)
        except Malformed as error:
            raise ClusterError(f"{view.id}: how it is reached cannot be read: {error}") from None

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


def reached_by(text: bytes) -> Reached | None:
    """Read how a server is reached, from what the job said: hostile until checked."""
    try:
        record = json.loads(text.decode("utf-8", "replace").strip().splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        raise Malformed(checks.brief(text.decode("utf-8", "replace"))) from None
    if record is None:
        return None
    read = checks.required(record, socket=checks.text, token=checks.text)
    if not shapes.is_text(read["socket"]) or not read["socket"].startswith("/"):
        raise Malformed("its socket has no path")
    if not read["token"].isalnum() or not read["token"].isascii():
        raise Malformed("its token is none")
    return Reached(**read)
