"""What a driver writes down of the jobs that it cares for, in placement.json of the job's or the
array's directory: which of them wait for their nodes, and what for."""

import os

from ..formats import files, shapes
from ..jobs import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Optional, Tuple

NAME = "placement.json"
SHAPE = {"waiting": shapes.is_texts, "running": shapes.is_texts, "why": shapes.is_text}


def write(folder: str, waiting: "Iterable[str]", running: "Iterable[str]", why: str) -> None:
    """Write it down; on a disk that is full, what was written before stays."""
    view = {"waiting": arrays.fold(waiting), "running": arrays.fold(running), "why": why}
    try:
        files.write_json(os.path.join(folder, NAME), view, durable=False)
    except OSError:
        pass


def read(folder: str) -> "Optional[Dict[str, Tuple[str, str]]]":
    """Return the state of each job and why it waits; None where nothing is written down yet."""
    view = files.read_record(os.path.join(folder, NAME))
    if view is None or not shapes.fits(view, SHAPE, SHAPE):
        return None
    found = {}  # type: Dict[str, Tuple[str, str]]
    try:
        found.update((name, ("waiting", view["why"])) for name in arrays.unfold(view["waiting"]))
        found.update((name, ("running", "")) for name in arrays.unfold(view["running"]))
    except ValueError:  # more than anybody could mean
        return None
    return found


def forget(folder: str) -> None:
    files.discard(os.path.join(folder, NAME))
