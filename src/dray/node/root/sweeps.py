"""The sweeps of a root: begun with their first array, looked at, closed, and removed with their
last trial."""

import os

from ..formats import files, shapes
from ..formats.wire import Refusal
from ..sweeps.study import PART, Study, Taken, is_study

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from ..formats.records import PartRecord, StudyFiles, StudyRecord

FOLDER = "sweeps"
ABANDONED = 86400.0  # seconds
OTHERS = {
    "mark": shapes.is_text,
    "trials": shapes.is_record,
    "results": shapes.is_record,
}  # type: shapes.Shape


def begin(root: str, study: "StudyRecord", part: "PartRecord") -> None:
    """Write a sweep down before its trials are submitted; refuse what another one has."""
    is_whole = shapes.fits(part, PART, ("id", "first", "count"))  # type: ignore[arg-type]
    if not is_study(study) or not is_whole:  # type: ignore[arg-type]
        raise Refusal("Refused", "this is not a sweep")
    try:
        Study(root, checked(study["id"])).begin(study, part)
    except Taken as error:
        raise Refusal("Refused", str(error))


def withdraw(root: str, sweep_id: "Any", part: "PartRecord") -> None:
    """Forget an array that has no job, and the sweep where it has no other; of one whose jobs were
    submitted one by one, those that are not there."""
    study = Study(root, checked(sweep_id))
    if has_jobs(root, [part["id"]]):
        if not is_array(root, part["id"]):
            study.shorten(part, number_there(root, part["id"]))
        return
    study.withdraw(part)
    if not study.parts():
        files.remove_tree(study.path)


def look(root: str, sweep_id: "Any") -> "StudyFiles":
    found = Study(root, checked(sweep_id)).all_files()
    if found is None:
        raise Refusal("NotFound", "there is no sweep {}".format(sweep_id))
    return found


def close(root: str, sweep_id: "Any") -> None:
    study = Study(root, checked(sweep_id))
    if study.record() is None:
        raise Refusal("NotFound", "there is no sweep {}".format(sweep_id))
    study.close()


def hear(root: str, sweep_id: "Any", others: "Any") -> None:
    """Write down what is told of the sweep's trials on other clusters."""
    study = Study(root, checked(sweep_id))
    if study.record() is None:
        raise Refusal("NotFound", "there is no sweep {}".format(sweep_id))
    if not shapes.fits(others, OTHERS, OTHERS):
        raise Refusal("Refused", "this is nothing that a sweep can be told")
    study.hear({key: others[key] for key in OTHERS})


def checked(sweep_id: "Any") -> str:
    if not shapes.is_id(sweep_id):
        raise Refusal("Refused", "this is no sweep's id: {!r}".format(sweep_id)[:300])
    return str(sweep_id)


def prune(root: str, arrays: "List[str]") -> None:
    """Remove the sweeps of these arrays that have no job any more."""
    top = os.path.join(root, FOLDER)
    for name in filter(shapes.is_id, files.names_in(top)):
        study = Study(root, name)
        parts = [one["id"] for one in study.parts()]
        if not set(parts).isdisjoint(arrays) and not has_jobs(root, parts):
            files.remove_tree(study.path)


def prune_abandoned(root: str) -> None:
    """Remove the sweeps whose submission was cut off: a day later, no job of theirs is there."""
    top = os.path.join(root, FOLDER)
    for name in filter(shapes.is_id, files.names_in(top)):
        study = Study(root, name)
        try:
            places = (study.path, os.path.join(study.path, "parts"))
            last = max(os.lstat(one).st_mtime for one in places if files.exists(one))
            is_old = files.now_in(top) - last > ABANDONED
            if is_old and not has_jobs(root, [one["id"] for one in study.parts()]):
                files.remove_tree(study.path)
        except (OSError, ValueError):  # somebody else has just removed it
            pass


def number_there(root: str, array: str) -> int:
    """Return how many trials there are of an array that was submitted one by one, in order."""
    names = [name.rpartition(".") for name in files.names_in(os.path.join(root, "jobs"))]
    return max((int(at) + 1 for name, _, at in names if name == array and at.isdigit()), default=0)


def is_array(root: str, part: str) -> bool:
    """Return whether the scheduler has got it as one array."""
    return files.exists(os.path.join(root, "arrays", part))


def has_jobs(root: str, parts: "List[str]") -> bool:
    if any(is_array(root, one) for one in parts):
        return True
    names = files.names_in(os.path.join(root, "jobs"))
    return any(name.rpartition(".")[0] in parts for name in names)
