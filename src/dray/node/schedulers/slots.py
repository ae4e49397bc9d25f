"""Where a machine has no scheduler: which trials of a sweep wait because only so many of it run at
once. They have no ticket of the machine's queue meanwhile, as other jobs need not wait for that."""

import os

from ..formats import files, shapes
from ..sweeps.study import Study
from .queue import Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List  # noqa: F401

FOLDER = "sweeps"


def slots_of(root: str, sweep_id: str) -> Queue:
    return Queue(Study(root, sweep_id).path)


def held_in_words(at_once: int) -> str:
    return "held: {} of its sweep at once".format(at_once)


class Held:
    """The trials that wait for a place in their sweep. Each sweep is looked at once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._lines = {}  # type: Dict[str, List[str]]

    def why(self, job_id: str, sweep: "Any") -> str:
        """Say why a job waits that is such a trial, by what its description says of its sweep; ''
        for any other."""
        known = sweep or {}
        if not known.get("at_once") or not shapes.is_id(known.get("id")):
            return ""
        return held_in_words(known["at_once"]) if job_id in self.line(known["id"]) else ""

    def line(self, sweep_id: str) -> "List[str]":
        if sweep_id not in self._lines:
            try:
                self._lines[sweep_id] = slots_of(self.root, sweep_id).in_line()
            except OSError:  # a reason less
                self._lines[sweep_id] = []
        return self._lines[sweep_id]

    def everywhere(self) -> "List[str]":
        """Return all jobs below this root that wait so."""
        sweeps = files.names_in(os.path.join(self.root, FOLDER))
        return [job for one in filter(shapes.is_id, sweeps) for job in self.line(one)]
