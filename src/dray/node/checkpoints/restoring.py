"""Keeps a copy of a checkpoint that its trainer overwrites under one name: a kill in the middle of
writing leaves nothing that could be loaded.

The copy of each whole checkpoint is kept beside it, and put back if the original is not whole. The
same goes for each file that is overwritten with it.
"""

import glob
import os

from ..formats import files
from ..formats.messages import print_message
from . import newest
from .resuming import overwritten_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List

    from ..formats.records import Rules

KEPT = ".kept"
ASIDE = ".partial"


def copy_of(path: str) -> str:
    """Return the path of the copy: last.ckpt → last.kept.ckpt."""
    start, end = os.path.splitext(path)
    return start + KEPT + end


def keep(found: "newest.Checkpoint", resume: "Rules") -> None:
    """Copy the checkpoint and what lies beside it, if its name is one that gets overwritten. A
    folder is not copied: it may be of any size, and its files have names of their own."""
    if os.path.basename(found.path) != overwritten_name(resume) or os.path.isdir(found.path):
        return
    for path in beside(found.path, resume):
        keep_one(newest.look_at(path))
    keep_one(found)


def beside(path: str, resume: "Rules") -> "List[str]":
    """Return the files that are overwritten together with this one, without their copies."""
    pattern = os.path.basename(resume.get("beside") or "")
    if not pattern:
        return []
    found = glob.glob(os.path.join(glob.escape(os.path.dirname(path)), pattern))
    files_only = (one for one in found if os.path.isfile(one))
    return [one for one in files_only if not os.path.splitext(one)[0].endswith(KEPT)]


def keep_one(found: "newest.Checkpoint") -> None:
    """Copy the checkpoint, unless it is written to in the meantime."""
    candidate = copy_of(found.path) + ASIDE
    copy(found.path, candidate)
    if newest.is_whole(candidate) and newest.look_at(found.path).same(found):
        os.replace(candidate, copy_of(found.path))
    else:
        files.remove(candidate)


def put_back(outputs: str, resume: "Rules") -> "List[str]":
    """Replace what is not whole by its copy, or move it aside: starting over is better than not
    starting. Return what was done, in words."""
    done = []  # type: List[str]
    for path in overwritten(outputs, resume):
        if newest.is_whole(path):
            continue
        shown = os.path.relpath(path, outputs)
        try:
            done.append("{} was not whole: {}".format(shown, repair(path)))
        except OSError as error:  # no space for it now: the next attempt tries again
            print_message("{} could not be put back: {}".format(path, error))
    return done


def overwritten(outputs: str, resume: "Rules") -> "Iterator[str]":
    name = overwritten_name(resume)
    for one in newest.candidates(outputs, resume) if name else ():
        if os.path.basename(one.path) == name and not os.path.isdir(one.path):
            yield one.path
            yield from beside(one.path, resume)


def repair(path: str) -> str:
    """Replace the damaged file by its copy, or move it aside. Return what was done, in words."""
    kept = copy_of(path)
    if newest.is_whole(kept):
        copy(kept, path + ASIDE)
        os.replace(path + ASIDE, path)
        return "the copy of the one before took its place"
    os.replace(path, path + ASIDE)
    return "moved to {}".format(os.path.basename(path) + ASIDE)


def copy(source: str, target: str) -> None:
    """Copy a file with its time, so that the newest stays the newest."""
    import shutil  # with zlib, bz2 and lzma: only where it is needed

    shutil.copy2(source, target)
