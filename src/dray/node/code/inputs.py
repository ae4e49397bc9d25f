"""The inputs of a job: outputs of other jobs that its command reads (``dray run --input``).

Where the other job is of the same root, its outputs are used where they lie; the command is not to
write to them. What comes from another cluster is unpacked into the job's directory, or its array's,
when the job is submitted:

    <root>/jobs/<id>/inputs/<name>/<path>

``inputs`` in the description has for each name ``path``, a place among the other job's outputs ('':
all of them), ``told``, what people call it, and ``job`` or ``snapshot``: where it comes from.
"""

import os

from ..formats import files, shapes
from ..jobs import arrays
from ..jobs.arrays import ArrayDir
from .packs import Damaged, Packs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ..formats.records import Description, Input
    from ..jobs.jobdir import JobDir

FOLDER = "inputs"
VARIABLE = "DRAY_INPUT_"


class Missing(Exception):
    """An input is not there; waiting does not bring it."""

    permanent = True


def variables(job_dir: "JobDir", job: "Description") -> "Dict[str, str]":
    """Return the variables by which the command finds its inputs."""
    return {VARIABLE + name.upper(): path for name, path in places(job_dir, job).items()}


def places(job_dir: "JobDir", job: "Description") -> "Dict[str, str]":
    """Return where the inputs are, by name; raise Missing if one is not there."""
    return {name: place_of(job_dir, name, one) for name, one in (job.get("inputs") or {}).items()}


def place_of(job_dir: "JobDir", name: str, one: "Input") -> str:
    told = "its input {}, {},".format(name, one.get("told", ""))
    if one.get("snapshot"):
        top = sent_to(job_dir, name)
    else:
        top = os.path.join(job_dir.root, "jobs", one["job"], "outputs")
    if os.path.islink(top):
        raise Missing("{} is a link, which is not followed".format(told))
    path = os.path.join(top, one["path"]) if one["path"] else top
    if not os.path.exists(path):
        raise Missing("{} is not there: {}".format(told, path))
    inside = os.path.join(os.path.realpath(top), "")
    if not os.path.join(os.path.realpath(path), "").startswith(inside):
        raise Missing("{} leads out of the job's outputs".format(told))
    return path


def sent_to(job_dir: "JobDir", name: str) -> str:
    """Return where an input was unpacked: the jobs of an array share it."""
    own = os.path.join(job_dir.path, FOLDER, name)
    place = arrays.split(job_dir.id)
    if place is None or os.path.exists(own):
        return own
    return os.path.join(ArrayDir(job_dir.root, place[0]).path, FOLDER, name)


def take(root: str, job: "Description", folder: str) -> None:
    """Put what the laptop has sent into ``folder``, which becomes the directory of a job or an
    array."""
    inputs = job.get("inputs") or {}
    if not shapes.is_inputs(inputs):
        raise Missing("these are no inputs: {}".format(inputs)[:300])
    for name, one in inputs.items():
        if not one.get("snapshot"):
            continue
        place = os.path.join(folder, FOLDER, name)
        files.make_folder(place, durable=False)
        try:
            Packs(root).unpack(one["snapshot"], place)
        except Damaged as error:
            raise Missing("what was sent for {} is damaged: {}. Try again.".format(name, error))
