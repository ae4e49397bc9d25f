"""Population based training: a trial that does badly goes on from the checkpoint of one that does
well, with that one's parameters, of which some are changed by chance.

Trials are compared at even distances. One of the worst quarter takes over from one of the best
quarter. What it is to take over is in its result before its command is ended; the checkpoint is
copied, and the command changed, before its next attempt, which follows in the same allocation."""

import os

from ..checkpoints import giving, newest, origin
from ..code import worktree
from ..formats import files, shapes
from ..jobs.jobdir import JobDir
from . import space as spaces
from .stopping import loss

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from typing import Dict, List

    from ..formats.records import Parameter, Rules, StopRule
    from .space import Space, Values

QUARTER = 4
FEWEST = QUARTER  # trials at a step, from which on a quarter of them is somebody
FARTHER = 1.2  # the factor by which a number is changed
LEAST = 0.02  # of its range: how far a number moves, which may be zero
ANYWHERE = 0.25  # of the changed ones, how many are drawn anew
TAKEN = "taken"  # in the job's directory: a whole copy that is about to be put in place
ASIDE = ".set-aside-pbt"  # among the outputs: its own checkpoints from before


# -- deciding: pure -------------------------------------------------------------------------------


def better_ones(mode: str, own: int, values: "Dict[int, float]") -> "List[int]":
    """Return the trials that this one may go on from, given the values of all at one step; none
    where it does well enough, or there are too few to tell."""
    ranked = sorted(values, key=lambda number: (loss(mode, values[number]), number))
    size = len(ranked) // QUARTER
    if not size or own not in ranked[-size:]:
        return []
    bad = loss(mode, values[own])
    return [number for number in ranked[:size] if loss(mode, values[number]) < bad]


def changed(
    space: "Space", rule: "StopRule", values: "Values", number: int, rng: "random.Random"
) -> "Values":
    """Return another trial's parameters, with those changed that may be: the ones that the rule
    names, or else all floating-point numbers. A network's shape has to stay what it is."""
    names = rule.get("change") or [one["name"] for one in space if one["kind"] == "float"]
    found = {}  # type: Values
    for one in spaces.learnt(space):
        name = one["name"]
        is_new = name not in values  # it may be there with another choice
        if not is_new and name not in names:
            found[name] = values[name]
        elif is_new or spaces.is_choice(one) or rng.random() < ANYWHERE:
            found[name] = spaces.from_unit(one, spaces.spread(one, rng.random()))
        else:
            found[name] = moved(one, values[name], rng)
    return spaces.complete(space, found, number)


def moved(parameter: "Parameter", value: float, rng: "random.Random") -> float:
    """Return a number a little above or below, by a step at least; from an end of its range, the
    other way."""
    low, high, step = parameter["low"], parameter["high"], spaces.step_of(parameter)
    up = value < high and (rng.random() < 0.5 or value <= low)
    least = step or (0.0 if parameter.get("log") else (high - low) * LEAST)
    away = max(abs(value * FARTHER - value if up else value - value / FARTHER), least)
    at = min(max(value + away if up else value - away, low), high)
    at = spaces.on_raster(parameter, at, step) if step else at
    return int(at) if parameter["kind"] == "int" else float(at)


# -- taking over ----------------------------------------------------------------------------------


def has_checkpoint(root: str, job_id: str, rules: "Rules") -> bool:
    """Return whether there is anything to go on from: a trial on another cluster has nothing
    here."""
    try:
        giving.find(trial_of(root, job_id), "", rules)
    except (origin.NothingToGoOnFrom, OSError):
        return False
    return True


def trial_of(root: str, job_id: str) -> JobDir:
    if not shapes.is_id(job_id):
        raise origin.NothingToGoOnFrom("this is no trial's id: {!r}".format(job_id)[:300])
    return JobDir(os.path.join(root, "jobs", job_id))


def take_over(job_dir: JobDir, job_id: str, rules: "Rules") -> None:
    """Put the newest checkpoint of another trial where this one resumes from, and its own ones
    aside. A kill at any moment leaves either, or the whole copy, with which the next call goes
    on."""
    taken = os.path.join(job_dir.path, TAKEN)
    if not files.exists(taken):
        source = trial_of(job_dir.root, job_id)
        new = "{}.{}.tmp".format(taken, os.urandom(6).hex())
        try:
            path = giving.find(source, "", rules).path
            giving.copy_from(source, path, rules, os.path.join(new, path))
            os.rename(new, taken)
        finally:
            files.remove_tree(new)
    aside = os.path.join(job_dir.outputs, ASIDE)
    files.remove_tree(aside)
    origin.move_aside(job_dir.outputs, rules, newest.candidates(job_dir.outputs, rules), aside)
    for path in list(files.files_below(taken)):
        inside = os.path.relpath(path, taken)
        worktree.make_parents(job_dir.outputs, inside)
        os.utime(path)  # the newest of this run
        files.put_in_place(path, os.path.join(job_dir.outputs, inside))
    files.remove_tree(taken)
