"""Finds a checkpoint for a new job to begin from, and puts it into that job's directory (see
``given``). The job it is taken from may be running, and its files are data: no link leads out of
its outputs."""

import os

from ..code.packs import Damaged, Packs
from ..formats import files, shapes
from ..jobs.jobdir import JobDir
from . import given, newest
from .origin import NothingToGoOnFrom, choose, pick
from .resuming import partner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..formats.records import Description, Rules

TRIES = 3  # to copy what a running job may be writing to


class Found:
    """A checkpoint of a job. ``path`` and ``files`` are relative to the job's outputs."""

    def __init__(self, path: str, files: "List[str]", remarks: "List[str]") -> None:
        self.path = path
        self.files = files
        self.remarks = remarks


def find(job_dir: JobDir, name: str, rules: "Rules") -> Found:
    """Find the named checkpoint of this job, or its newest whole one. ``rules`` say which files are
    checkpoints if the job itself does not."""
    outputs = job_dir.outputs
    if os.path.islink(outputs):
        raise NothingToGoOnFrom("{} is a link, which is not followed".format(outputs))
    description = job_dir.description()
    own = given.rules_of(job_dir, description) if description else None
    rules = own if own and own.get("checkpoint") else rules
    remarks = []  # type: List[str]
    if name:
        path = named(job_dir, rules, name)
    else:
        chosen = choose(outputs, rules, job_dir.records())
        if chosen.checkpoint is None:
            raise NothingToGoOnFrom("{} has no whole checkpoint".format(job_dir.id))
        path, remarks = chosen.checkpoint.path, chosen.remarks
    if not newest.is_inside(outputs, path):
        raise NothingToGoOnFrom("{} leads out of the outputs of {}".format(name, job_dir.id))
    return describe(job_dir, os.path.realpath(path), rules, remarks)


def named(job_dir: JobDir, rules: "Rules", name: str) -> str:
    """Return the path of a checkpoint, or of any other file among the outputs: the final model may
    have a name that the checkpoint pattern does not match."""
    outputs = job_dir.outputs
    found = newest.candidates(outputs, rules)
    try:
        return found[pick(outputs, found, name)].path
    except NothingToGoOnFrom as error:
        others = other_files(outputs, name) if shapes.is_path_inside(name) else []
        if len(others) != 1:
            raise NothingToGoOnFrom("{}: {}".format(job_dir.id, error))
        return others[0]


def other_files(outputs: str, name: str) -> "List[str]":
    direct = os.path.join(outputs, name)
    if os.path.exists(direct):
        return [direct]
    return [path for path in files.files_below(outputs) if path.endswith("/" + name)]


def describe(job_dir: JobDir, path: str, rules: "Rules", remarks: "List[str]") -> Found:
    """Describe the checkpoint at ``path``, in which no link is left to follow."""
    top = os.path.realpath(job_dir.outputs)
    shown = os.path.relpath(path, top)
    if not newest.is_whole(path):
        raise NothingToGoOnFrom("{} of {} is not whole".format(shown, job_dir.id))
    paths = parts(path, rules)
    for one in paths:
        if not newest.is_inside(top, one):
            leads = os.path.relpath(one, top)
            raise NothingToGoOnFrom("{} leads out of the outputs of {}".format(leads, job_dir.id))
    return Found(shown, [os.path.relpath(one, top) for one in paths], remarks)


def parts(path: str, rules: "Rules") -> "List[str]":
    """Return the files of a checkpoint, and its partner."""
    found = sorted(newest.files_in(path)) if os.path.isdir(path) else [path]
    partner = partner_of(path, rules)
    return found + [partner] if partner and newest.is_whole(partner) else found


# -- into the new job's directory ------------------------------------------------------------------


def take(root: str, job: "Description", folder: str) -> None:
    """Put the job's given checkpoint into ``folder``, which becomes the job's directory."""
    origin = job["origin"]
    if not shapes.is_origin(origin) or not shapes.is_id(origin.get("job", job["id"])):
        raise NothingToGoOnFrom("this is nothing to begin from: {}".format(origin)[:300])
    place = os.path.join(folder, given.FOLDER)
    files.make_folder(place, durable=False)
    if origin.get("snapshot"):
        unpack(root, origin["snapshot"], place)
    else:
        source = JobDir(os.path.join(root, "jobs", origin["job"]))
        copy_from(source, origin["checkpoint"], job["resume"], os.path.join(place, origin["path"]))
    if not newest.is_whole(os.path.join(place, origin["path"])):
        raise NothingToGoOnFrom("{} did not arrive whole".format(origin["told"]))


def unpack(root: str, snapshot: str, place: str) -> None:
    try:
        Packs(root).unpack(snapshot, place)
    except Damaged as error:
        raise NothingToGoOnFrom("what was sent is damaged: {}. Try again.".format(error))


def copy_from(source: JobDir, name: str, rules: "Rules", target: str) -> None:
    """Copy a checkpoint as it is at one moment, though its job may be running."""
    for _ in range(TRIES):
        found = find(source, name, rules)
        path = os.path.join(os.path.realpath(source.outputs), found.path)
        before = newest.look_at(path)
        for one in found.files:
            beside = os.path.relpath(one, os.path.dirname(found.path))
            copied = os.path.join(os.path.dirname(target), beside)
            given.copy(os.path.join(source.outputs, one), copied)
        if newest.look_at(path).same(before):
            return
    raise NothingToGoOnFrom("{} of {} changes while it is copied".format(name, source.id))
