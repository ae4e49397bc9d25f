"""What a driver writes down of the jobs that it cares for, in placement.json of the job's or the
array's directory: which of them wait for their nodes, and what for."""

import os

from ..formats import files, shapes
from ..jobs import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Mapping, Optional, Tuple  # noqa: F401

NAME = "placement.json"
SHAPE = {"waiting": shapes.is_texts, "running": shapes.is_texts, "why": shapes.is_text}
FULL_SHAPE = dict(SHAPE, troubles=shapes.is_variables)
NONE = {}  # type: Dict[str, str]


def write(
    folder: str,
    waiting: "Iterable[str]",
    running: "Iterable[str]",
    why: str,
    troubles: "Mapping[str, str]" = NONE,
) -> None:
    """Write it down; on a disk that is full, what was written before stays. ``why`` they wait, and
    what some of them wait for besides, by their ids."""
    view = {
        "waiting": arrays.fold(waiting),
        "running": arrays.fold(running),
        "why": why,
        "troubles": dict(troubles),
    }
    try:
        files.write_json(os.path.join(folder, NAME), view, durable=False)
    except OSError:
        pass


def read(folder: str) -> "Optional[Dict[str, Tuple[str, str]]]":
    """Return the state of each job and why it waits; None where nothing is written down yet."""
    view = files.read_record(os.path.join(folder, NAME))
    if view is None or not shapes.fits(view, FULL_SHAPE, SHAPE):
        return None
    found = {}  # type: Dict[str, Tuple[str, str]]
    troubles = view.get("troubles") or {}
    try:
        for name in arrays.unfold(view["waiting"]):
            found[name] = ("waiting", troubles.get(name) or view["why"])
        found.update((name, ("running", "")) for name in arrays.unfold(view["running"]))
    except ValueError:  # more than anybody could mean
        return None
    return found


def forget(folder: str) -> None:
    files.discard(os.path.join(folder, NAME))
