"""What the laptop starts on a login node to get into a job: it finds the door, and has the
scheduler start a relay on the job's node. Where the scheduler does not, the job is called. Where it
is on this very machine, this is the relay.
"""

import os

from ..formats import files, shapes
from ..formats.wire import MARK, Refusal
from ..jobs.jobdir import JobDir, is_held
from ..processes import layout
from ..schedulers import scheduler
from . import relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List  # noqa: F401

    from ..schedulers.scheduler import Scheduler

MOST_WORDS = 16


def enter(path: str, kind: str, rank: str) -> int:
    """Become the way to the door of a job's rank; ``path`` is the job's directory."""
    job_dir = JobDir(path)
    return lead(job_dir, scheduler.of_kind(kind, job_dir.root), int(rank))


def lead(job_dir: JobDir, batch: "Scheduler", rank: int) -> int:
    """Become the way to the door of a job's rank, or say why there is none. Returns once whoever
    came has left."""
    try:
        door = find_door(job_dir, rank)
        if batch.is_called:
            from . import detours  # with sockets: not for every agent

            return detours.go(job_dir.root, door)
        words = batch.way_to(door["place"])
        if not words:
            return relay.relay(door["socket"], MARK)
        words += relay.words(door["words"], door["socket"], MARK)
        os.execvpe(words[0], words, scheduler.clean_environment())
    except Refusal as error:
        return relay.refuse(MARK, str(error), error.family)
    except scheduler.SchedulerError as error:
        return relay.refuse(MARK, str(error), "Refused")
    except OSError as error:
        why = "{}: {}".format(error.filename or "", error.strerror).lstrip(": ")
        return relay.refuse(MARK, why)
    return 1


def find_door(job_dir: JobDir, rank: int) -> "Dict[str, Any]":
    """Read where the door of a rank is. Raises Refusal, with what to do, where there is none."""
    job = job_dir.description()
    if job is None:
        raise Refusal("Refused", "it is not running now: it waits, or its files are gone")
    numbers = job_dir.numbers()
    attempt = job_dir.attempt(numbers[-1]) if numbers else None
    if attempt is None or (attempt.ended() is not None and not is_held([attempt.record()])):
        end = job_dir.ended()
        if end is not None:
            raise Refusal("Refused", "it has ended: {}".format(end["state"]))
        raise Refusal("Refused", "it is not running now: it waits for its turn")
    if rank >= layout.tasks_of(job):
        last = layout.tasks_of(job) - 1
        raise Refusal("Refused", "it has no rank {}: its last is {}".format(rank, last))
    door = files.read_record(attempt.door_of(rank))
    if door is None:
        if not files.exists(attempt.attempt):
            raise Refusal("Refused", "its attempt is just starting: try again in a moment")
        raise Refusal("Refused", "it was started by a version of dray that lets nobody in")
    return dict(checked(door), file=attempt.door_of(rank))


def checked(door: "Dict[str, Any]") -> "Dict[str, Any]":
    """Check what a file says that the job's own code can write."""
    words, path, place = door.get("words"), door.get("socket"), door.get("place")
    is_fine = (
        isinstance(words, list)
        and shapes.is_texts(words)
        and 0 < len(words) <= MOST_WORDS
        and os.path.isabs(words[0])
        and isinstance(path, str)
        and os.path.isabs(path)
        and isinstance(place, dict)
    )
    if not is_fine:
        raise Refusal("ClusterError", "where its door is cannot be read")
    return door
