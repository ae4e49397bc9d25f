"""Chooses where an attempt begins: from which checkpoint, and which ones are passed over.

None of this happens silently: what was passed over is a remark in the attempt's record and in its
log, and a run that had a checkpoint never starts again from nothing by itself.
"""

import os

from ..formats import files
from ..jobs import policy
from . import given, newest, restoring
from .resuming import partner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional

    from ..formats.records import AttemptRecord, Description, Rules
    from .newest import Checkpoint

SCRATCH = "scratch"
ASIDE = ".set-aside"  # hidden: no pattern finds what is in it


class NothingToGoOnFrom(Exception):
    """The run had a checkpoint, but none is left to resume from."""

    permanent = True


class Origin:
    """Where an attempt begins. ``is_given``: the checkpoint is another run's."""

    def __init__(
        self, checkpoint: "Optional[Checkpoint]", remarks: "List[str]", is_given: bool = False
    ) -> None:
        self.checkpoint = checkpoint
        self.remarks = remarks
        self.is_given = is_given


def find(outputs: str, job: "Description", previous: "List[AttemptRecord]", number: int) -> Origin:
    """Choose the checkpoint that attempt ``number`` begins from. ``previous`` are the records of
    earlier attempts."""
    rules, wanted = job["resume"], job.get("start_from") or ""
    counted = [one for one in previous if one["number"] > job["resumed_after"]]
    remarks = []  # type: List[str]
    if wanted and not any(one.get("started") for one in counted):
        remarks += set_aside(outputs, rules, wanted, number)
    remarks += restoring.put_back(outputs, rules)
    # What ``retry_on`` says to try again is not the checkpoint's fault.
    suspect = [one for one in counted if not policy.may_retry(job, one)]
    origin = choose(outputs, rules, suspect)
    if origin.checkpoint is None:
        require_disk(outputs)
        origin = choose(outputs, rules, suspect)  # the disk may have been away for a moment
    if origin.checkpoint is None:
        require_no_progress(counted if wanted == SCRATCH else previous)
        if rules.get("given"):
            return Origin(begin_from_given(outputs, job), remarks + origin.remarks, True)
    return Origin(origin.checkpoint, remarks + origin.remarks)


def begin_from_given(outputs: str, job: "Description") -> "Checkpoint":
    """Return the given checkpoint that the job begins from, or raise: never begin from nothing
    instead."""
    found = given.to_begin_from(outputs, job["resume"])
    if found is None:
        told = (job.get("origin") or {}).get("told")
        raise NothingToGoOnFrom(
            "its copy of {}, which it was to begin from, is not whole any more".format(told)
        )
    return found


def choose(outputs: str, rules: "Rules", attempts: "List[AttemptRecord]") -> Origin:
    """Choose the newest whole checkpoint from which no attempt has crashed; if there is none, the
    newest whole one."""
    found = newest.candidates(outputs, rules)
    whole = [one for one in found if newest.is_valid(one, found, rules)]
    crashed = [one for one in whole if crash_from(one, outputs, attempts) is not None]
    chosen = next((one for one in whole if one not in crashed), whole[0] if whole else None)
    remarks = []
    for one in found[: found.index(chosen)] if chosen else found:
        number = crash_from(one, outputs, attempts) if one in crashed else None
        why = "it is not whole" if number is None else "attempt {} crashed from it".format(number)
        remarks.append("passed over {}: {}".format(os.path.relpath(one.path, outputs), why))
    return Origin(chosen, remarks)


def crash_from(one: "Checkpoint", outputs: str, attempts: "List[AttemptRecord]") -> "Optional[int]":
    """Return the attempt that crashed from this checkpoint without progress, as happens if a folder
    is incomplete in a way that nothing shows. A checkpoint that was written again since counts as
    another one."""
    for attempt in attempts:
        is_origin = attempt.get("from_checkpoint") == os.path.relpath(one.path, outputs)
        crashed = attempt["outcome"] == "failed" and not attempt.get("progress")
        if is_origin and crashed and attempt.get("from_time") == one.mtime:
            return int(attempt["number"])
    return None


def require_disk(outputs: str) -> None:
    """Raise the error of a disk that does not answer: that is no reason to give up a run."""
    if os.path.lexists(outputs):
        os.listdir(outputs)


def require_no_progress(previous: "List[AttemptRecord]") -> None:
    reached = [one["checkpoint"] for one in previous if one.get("checkpoint")]
    if reached:
        raise NothingToGoOnFrom(
            "it had come to {}, and there is no whole checkpoint any more; to begin again from "
            "nothing: dray resume --from {}".format(reached[-1], SCRATCH)
        )


def named(outputs: str, rules: "Rules", name: str) -> "List[Checkpoint]":
    """Return the checkpoints newer than the named one, followed by that one. The name is its path
    among the outputs, or the end of that path."""
    found = newest.candidates(outputs, rules)
    return found[: pick(outputs, found, name) + 1]


def pick(outputs: str, found: "List[Checkpoint]", name: str) -> int:
    """Return the index of the checkpoint that is meant by ``name``."""
    paths = [os.path.relpath(one.path, outputs) for one in found]
    fits = [at for at, path in enumerate(paths) if path == name]
    fits = fits or [at for at, path in enumerate(paths) if path.endswith("/" + name)]
    if len(fits) == 1:
        return fits[0]
    what = "several checkpoints are" if fits else "no checkpoint is"
    listed = ", ".join(paths[:5]) + (" …" if len(paths) > 5 else "")
    raise NothingToGoOnFrom("{} named {}; there are: {}".format(what, name, listed or "none"))


def require(outputs: str, rules: "Rules", start_from: str) -> None:
    """Check, before the job is queued, that the checkpoint to resume from exists."""
    if start_from and start_from != SCRATCH:
        named(outputs, rules, start_from)


def set_aside(outputs: str, rules: "Rules", wanted: str, number: int) -> "List[str]":
    """Move what is newer than the wanted checkpoint aside, so that a trainer that looks for its
    checkpoint by itself does not find it either."""
    if wanted == SCRATCH:
        newer = newest.candidates(outputs, rules)
    else:
        newer = named(outputs, rules, wanted)[:-1]
    place = os.path.join(outputs, "{}-{:03d}".format(ASIDE, number))
    moved = move_aside(outputs, rules, newer, place)
    if not moved:
        return []
    what = "1 checkpoint was" if moved == 1 else "{} checkpoints were".format(moved)
    return ["{} set aside in {}".format(what, os.path.basename(place))]


def move_aside(outputs: str, rules: "Rules", some: "List[Checkpoint]", place: str) -> int:
    """Move these checkpoints to a folder, with what is saved with them; return how many."""
    inside = [one for one in some if newest.is_inside(outputs, one.path)]
    for one in inside:
        for path in files_of(one, rules):
            target = os.path.join(place, os.path.relpath(path, outputs))
            files.make_folder(os.path.dirname(target), durable=False)
            os.rename(path, target)
    return len(inside)


def files_of(one: "Checkpoint", rules: "Rules") -> "Iterator[str]":
    """Yield the paths of a checkpoint, of what is saved with it, and of their copies."""
    saved = [one.path] + restoring.beside(one.path, rules)
    copies = [restoring.copy_of(path) for path in saved]
    for path in saved + [partner_of(one.path, rules) or ""] + copies:
        if path and os.path.lexists(path):
            yield path
