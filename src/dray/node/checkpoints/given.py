"""The given checkpoint: one of another run, which a job begins from (``dray run --from``).

It is copied into the job's own directory when the job is submitted (``giving``), from another job
of this root or from what the laptop has sent:

    <root>/jobs/<id>/given/<path>    <path> is its place among the outputs of a run

It is a copy, not a hard link: the trainer that wrote it may write to it again in place, and so may
the new one. A trainer that finds its checkpoint only by its place gets another copy there, which
time and size distinguish from the job's own checkpoints. The job's ``origin`` says more:

- ``path``: its place below ``given``; ``told``: what people call it.
- ``job`` and ``checkpoint``: another job of this root, and the path among its outputs.
- ``snapshot``: what the laptop has sent, in this root's packs.
"""

import fnmatch
import os

from ..code import worktree
from ..formats import files
from . import newest
from .resuming import begun_from, needs_place, partner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    from ..formats.records import Description, Resume, Rules
    from ..jobs.jobdir import JobDir
    from .newest import Checkpoint

FOLDER = "given"


def rules_of(job_dir: "JobDir", job: "Description") -> "Resume":
    """Return the job's rules for resuming, with the checkpoint it has begun from."""
    path = (job.get("origin") or {}).get("path")
    if not path:
        return job["resume"]
    here = os.path.join(job_dir.path, FOLDER, path)
    placed = os.path.join(job_dir.outputs, path) if needs_place(job["resume"]) else here
    rules = begun_from(job["resume"], here).copy()
    rules["given"] = {"path": here, "placed": placed}
    return rules


def known(job_dir: "JobDir", job: "Description") -> "Description":
    """Return the job's description with rules that know what it has begun from."""
    job = job.copy()
    job["resume"] = rules_of(job_dir, job)
    return job


def to_begin_from(outputs: str, rules: "Rules") -> "Optional[Checkpoint]":
    """Return the given checkpoint where the trainer finds it; None if it is no longer whole."""
    path, placed = rules["given"]["path"], rules["given"]["placed"]
    if not newest.is_whole(path):
        return None
    if placed != path:
        copy_into_outputs(outputs, rules, path, placed)
    return newest.look_at(placed)


def copy_into_outputs(outputs: str, rules: "Rules", path: str, placed: str) -> None:
    """Copy the given checkpoint and its partner to their place among the outputs."""
    worktree.make_parents(outputs, os.path.relpath(placed, outputs))
    partner = partner_of(path, rules)
    if partner and os.path.exists(partner):
        copy(partner, os.path.join(os.path.dirname(placed), os.path.basename(partner)))
    if not os.path.isdir(path):
        copy(path, placed)
        return
    if os.path.islink(placed):
        files.remove(placed)
    for one in newest.files_in(path):
        copy(one, os.path.join(placed, os.path.relpath(one, path)))


def copy(path: str, target: str) -> None:
    """Copy a file. The copy appears whole and has the original's time."""
    import shutil  # with zlib, bz2 and lzma: only where it is needed

    files.make_folder(os.path.dirname(target), durable=False)
    temporary = "{}.{}.tmp".format(target, os.urandom(6).hex())
    try:
        shutil.copy2(path, temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        files.put_in_place(temporary, target)
    finally:
        files.discard(temporary)


# -- its place ------------------------------------------------------------------------------------


def place_for(path: str, pattern: "Optional[str]") -> str:
    """Return the shortest end of this path that the checkpoint pattern matches; "" if none does."""
    names = path.split("/")
    for start in range(len(names) - 1, -1, -1):
        if pattern and matches(names[start:], pattern.split("/")):
            return "/".join(names[start:])
    return ""


def matches(names: "Sequence[str]", pattern: "Sequence[str]") -> bool:
    """Return whether a glob matches this path. ``**`` stands for any number of folders."""
    if not pattern or not names:
        return not pattern and not names
    if pattern[0] == "**":
        return any(matches(names[start:], pattern[1:]) for start in range(len(names)))
    return fnmatch.fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])
