"""What a job waits for before its first attempt: the ends of other jobs (``dray run --after``).

``after`` in its description names jobs of the same root, folded as ``arrays.fold`` does it, each
with OK, if it has to be done, or ANY, if it only has to have ended. A job has ended once its own
files say so: its batch job may end several times before, by a time limit or a requeue, and goes on.
So a scheduler's own dependency only keeps the job from starting much too early; what counts is
looked at here, by the attempt itself, before anything is unpacked.
"""

import os

from ..formats import files, shapes
from . import arrays, policy, states
from .arrays import ArrayDir
from .jobdir import ENDED, JobDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional

    from ..formats.records import Description

OK, ANY = shapes.WHEN
REMOVED = "removed"
MOST_JOBS = 20000  # of one array
SOME = 3  # of many jobs, those that are named
HOW = {
    "failed": "which failed",
    "stopped": "which was stopped",
    "lost": "which was lost",
    REMOVED: "which has been removed",
}


def awaited(after: "Optional[Mapping[str, str]]") -> "Dict[str, str]":
    """Return the jobs that come before one, each with OK or ANY, from its description."""
    found = {}  # type: Dict[str, str]
    for folded, when in (after or {}).items():
        try:
            names = list(arrays.unfold([folded], MOST_JOBS))
        except ValueError:  # nobody has submitted so many
            continue
        found.update((name, when) for name in names if shapes.is_id(name))
    return found


def state_of(root: str, job_id: str, is_cared_for: "Callable[[str], bool]") -> str:
    """Return the state of a job of this root, or REMOVED. ``is_cared_for`` tells of one that has
    written down no end whether it is queued, or somebody runs it."""
    job_dir = JobDir(os.path.join(root, "jobs", job_id))
    end = job_dir.ended()
    if end is not None:
        return str(end["state"])
    if not files.exists(job_dir.job):
        return state_in_array(root, job_id, is_cared_for)
    cared_for = is_cared_for(job_id)
    facts = states.read(job_dir, is_running=cared_for)  # its end, too: it may have come meanwhile
    if facts is None:
        return REMOVED
    state = str(states.from_files(facts, cared_for)["state"])
    return "running" if state == "lost" and facts.is_beating else state


def state_in_array(root: str, job_id: str, is_cared_for: "Callable[[str], bool]") -> str:
    """Return the state of a job that has no directory of its own: it never ran."""
    place = arrays.split(job_id)
    array = ArrayDir(root, place[0]) if place else None
    if place is None or array is None or array.description_of(place[1]) is None:
        return REMOVED
    if place[1] in arrays.read_indices(array.stopped):
        return "stopped"
    return "queued" if is_cared_for(job_id) else "lost"


class Following:
    """The jobs that one job comes after. ``left`` are those that have not ended so far; ``end`` is
    the job's own end, where one of them did not end as it has to. ``may_come``: a job without a
    directory may get one yet, as it brings its own submission along."""

    def __init__(
        self,
        root: str,
        after: "Dict[str, str]",
        is_cared_for: "Callable[[str], bool]",
        may_come: bool = False,
    ) -> None:
        self.root = root
        self.left = dict(after)
        self.end = None  # type: Optional[policy.Decision]
        self.is_cared_for = is_cared_for
        self.over = ENDED if may_come else ENDED + (REMOVED,)

    def has_to_wait(self) -> bool:
        """Look at those that are left; return whether the job still has to wait for one. A disk
        that does not answer tells nothing of them."""
        for name, when in list(self.left.items()):
            try:
                state = state_of(self.root, name, self.is_cared_for)
            except OSError:
                continue
            if state not in self.over:
                continue
            del self.left[name]
            if state != "done" and when != ANY:
                reason = "never started: it comes after {}, {}".format(name, HOW[state])
                self.end = policy.Decision("stopped", reason)
                return False
        return bool(self.left)

    def in_words(self) -> str:
        return told(list(self.left))


def in_words(root: str, job: "Optional[Description]") -> str:
    """Say what a job that has made no attempt waits for, as far as its files tell; '' where that is
    no other job."""
    names = awaited(job.get("after")) if job else {}
    return told([one for one in names if JobDir(os.path.join(root, "jobs", one)).ended() is None])


def told(left: "List[str]") -> str:
    """Say which jobs another one comes after; '' where there are none."""
    if not left:
        return ""
    more = " and {} more".format(len(left) - SOME) if len(left) > SOME else ""
    return "comes after {}{}".format(", ".join(left[:SOME]), more)


def numbers(root: str, after: "Dict[str, str]") -> "List[str]":
    """Return the numbers, as far as they are known, of the batch jobs that may end the jobs that
    have not ended."""
    found = []
    for name in after:
        job_dir = JobDir(os.path.join(root, "jobs", name))
        if job_dir.ended() is not None:
            continue
        number = job_dir.known_number()
        place = arrays.split(name)
        if number is None and place is not None:
            array = ArrayDir(root, place[0])
            whole = array.known_number()
            number = "{}_{}".format(whole, array.task_of(place[1])) if whole else None
        if number:
            found.append(number)
    return found
