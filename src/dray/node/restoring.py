"""For trainers that look for their checkpoint by themselves, under one name, and write it in place:
a kill in the middle leaves nothing that they could load.

A copy of each whole one is kept beside it, and put back where the original is not whole.
"""

import os

from . import checkpoints, files
from .notes import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    Record = Dict[str, Any]

KEPT = ".kept"
ASIDE = ".partial"


def copy_of(path: str) -> str:
    """last.ckpt → last.kept.ckpt"""
    start, end = os.path.splitext(path)
    return start + KEPT + end


def keep(found: "checkpoints.Checkpoint", name: "Optional[str]") -> None:
    """Copy this one, if it bears the name and was not written to meanwhile."""
    if os.path.basename(found.path) != name:
        return
    candidate = copy_of(found.path) + ASIDE
    copy(found.path, candidate)
    if checkpoints.is_whole(candidate) and checkpoints.look_at(found.path).same(found):
        os.replace(candidate, copy_of(found.path))
    else:
        files.remove(candidate)


def put_back(outputs: str, resume: "Record") -> None:
    """What is not whole is replaced by its copy, or put aside: better anew than not at all."""
    name = resume.get("looks_for")
    if not name:
        return
    for one in checkpoints.candidates(outputs, resume):
        if os.path.basename(one.path) != name or checkpoints.is_whole(one.path):
            continue
        try:
            mend(one.path)
        except OSError as error:  # no space for it now: the next attempt tries again
            note("{} could not be put back: {}".format(one.path, error))


def mend(path: str) -> None:
    kept = copy_of(path)
    if checkpoints.is_whole(kept):
        copy(kept, path + ASIDE)
        os.replace(path + ASIDE, path)
    else:
        os.replace(path, path + ASIDE)


def copy(source: str, target: str) -> None:
    """As old as the original: what is newest stays so."""
    import shutil  # with zlib, bz2 and lzma: only where it is needed

    shutil.copy2(source, target)
