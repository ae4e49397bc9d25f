"""Keeps a copy of a checkpoint that its trainer overwrites under one name: a kill in the middle of
that leaves nothing that could be loaded.

A copy of each whole one is kept beside it, and put back where the original is not whole.
"""

import os

from . import checkpoints, files
from .notes import note
from .resuming import overwritten_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Record = Dict[str, Any]

KEPT = ".kept"
ASIDE = ".partial"


def copy_of(path: str) -> str:
    """last.ckpt → last.kept.ckpt"""
    start, end = os.path.splitext(path)
    return start + KEPT + end


def keep(found: "checkpoints.Checkpoint", name: "Optional[str]") -> None:
    """Copy this one, if it bears the name and was not written to meanwhile. A folder is not
    copied: it may be of any size, and consists of files with names of their own."""
    if os.path.basename(found.path) != name or os.path.isdir(found.path):
        return
    candidate = copy_of(found.path) + ASIDE
    copy(found.path, candidate)
    if checkpoints.is_whole(candidate) and checkpoints.look_at(found.path).same(found):
        os.replace(candidate, copy_of(found.path))
    else:
        files.remove(candidate)


def put_back(outputs: str, resume: "Record") -> "List[str]":
    """Replace what is not whole by its copy, or move it aside: better anew than not at all. Return
    what was done, in words."""
    name = overwritten_name(resume)
    done = []  # type: List[str]
    for one in checkpoints.candidates(outputs, resume) if name else ():
        if os.path.basename(one.path) != name or os.path.isdir(one.path):
            continue
        if checkpoints.is_whole(one.path):
            continue
        shown = os.path.relpath(one.path, outputs)
        try:
            done.append("{} was not whole: {}".format(shown, mend(one.path)))
        except OSError as error:  # no space for it now: the next attempt tries again
            note("{} could not be put back: {}".format(one.path, error))
    return done


def mend(path: str) -> str:
    """Return what was done, in words."""
    kept = copy_of(path)
    if checkpoints.is_whole(kept):
        copy(kept, path + ASIDE)
        os.replace(path + ASIDE, path)
        return "the copy of the one before took its place"
    os.replace(path, path + ASIDE)
    return "moved to {}".format(os.path.basename(path) + ASIDE)


def copy(source: str, target: str) -> None:
    """As old as the original: what is newest stays so."""
    import shutil  # with zlib, bz2 and lzma: only where it is needed

    shutil.copy2(source, target)
