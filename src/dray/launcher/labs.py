"""JupyterLab on a cluster: finds the one that runs or starts one, and says how it is reached."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dray import checks
from dray.checks import Malformed
from dray.errors import ClusterError
from dray.job.model import JobView
from dray.launcher.arriving import Arriving
from dray.launcher.context import Context
from dray.launcher.sessions import Sessioning
from dray.launcher.watching import Watching
from dray.node.formats import shapes
from dray.node.sessions.commands import LAB, lab_at
from dray.records import NamedTuple
from dray.sessions.executing import read_output

NEVER = "never"
MOST_NOTES = 1 << 16  # bytes


class Reached(NamedTuple):
    """How a notebook server is reached from beside it."""

    socket: str
    token: str


def lab_command(python: Sequence[str], idle: float | None) -> list[str]:
    """Return the command of a job that is a notebook server."""
    return [*python, *LAB, NEVER if idle is None else f"{idle:g}"]


def notes_command(command: Sequence[str]) -> list[str]:
    """Return the command that tells how such a job is reached, in the job."""
    return [*command[: lab_at(command)], "lab-notes"]


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
        return Arriving(self.context).wait(job_id, self._ask)

    def _ask(self, view: JobView) -> Reached | None:
        """Ask how it is reached; None where it is just starting."""
        way = self.sessions.way(view.id, self.context.cluster(view.cluster))
        text = read_output(way, notes_command(view.spec.command), MOST_NOTES)
        try:
            return reached_by(text)
        except Malformed as error:
            raise ClusterError(f"{view.id}: how it is reached cannot be read: {error}") from None


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
