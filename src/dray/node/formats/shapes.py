"""Checks the shape of the values in a job's files before they are used.

A job's own code can write to every file of the job, a power cut can leave old or half content, and
a newer dray may have written more than is known here. A field of the wrong type is left out, as if
it had not been written; a description that lacks what every job has is damaged as a whole.
"""

import math
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Optional  # noqa: F401

    from .records import Description, Placeholder, Record

    Shape = Mapping[str, Callable[[Any], bool]]

# Of the form of job.json: see records.Description. Whoever reads one of an earlier version gets
# defaults for what that did not have; one of a later version is shown, and not resumed. The first
# had no version in it.
DESCRIPTION_VERSION = 2
FIRST_VERSION = 1
OUTCOMES = ("done", "failed", "stopped", "interrupted", "lost")
LARGEST_NUMBER = 1e15  # more than any time, size or count; fits into a float and into SQLite
FAR_FUTURE = 1e11  # seconds; any time of day is before that
LONGEST_ID = 100
MOST_RECENT = 16  # values that show the course of a metric
MOST_AFTER = 10000  # jobs, or runs of them, that one comes after
WHEN = ("ok", "any")  # a job that another one comes after has to be done, or only to have ended
DEEPEST = 10  # levels of lists and records in one another


def is_text(value: "Any") -> bool:
    return isinstance(value, str)


def is_flag(value: "Any") -> bool:
    return isinstance(value, bool)


def is_number(value: "Any") -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < LARGEST_NUMBER if isinstance(value, int) else math.isfinite(value)


def is_count(value: "Any") -> bool:
    return isinstance(value, int) and is_number(value)


def is_moment(value: "Any") -> bool:
    """Return whether this can be a time in seconds that the laptop accepts."""
    return is_number(value) and abs(value) <= FAR_FUTURE


def is_record(value: "Any") -> bool:
    return isinstance(value, dict) and is_shallow(value)


def is_shallow(value: "Any", levels: int = DEEPEST) -> bool:
    """Return whether JSON is nested no deeper than ``levels``. The limit differs between
    Pythons: what is read here must not make an answer that cannot be written, or not be read on
    the laptop."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return True
    return levels > 0 and all(is_shallow(one, levels - 1) for one in value)


def is_use(value: "Any") -> bool:
    """Return whether this is how much is used, of how much."""
    return is_counts(value) and len(value) == 2


def is_rule(value: "Any") -> bool:
    """Return whether this is a record without others in it (see ``resuming``)."""
    return isinstance(value, dict) and is_shallow(value, levels=1)


def is_rules(value: "Any") -> bool:
    return isinstance(value, list) and all(is_rule(one) for one in value)


def is_texts(value: "Any") -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def is_counts(value: "Any") -> bool:
    return isinstance(value, list) and all(is_count(one) for one in value)


def is_variables(value: "Any") -> bool:
    return isinstance(value, dict) and all(isinstance(value[name], str) for name in value)


def is_paths_inside(value: "Any") -> bool:
    return is_texts(value) and all(is_path_inside(path) for path in value)


def is_path_inside(path: "Any") -> bool:
    """Return whether a path that is joined to a folder stays below it."""
    return is_text(path) and not os.path.isabs(path) and ".." not in path.split("/")


def is_place(path: "Any") -> bool:
    """Return whether this can be the path of a folder, wherever one stands."""
    return is_text(path) and os.path.isabs(path) and "\0" not in path


def is_links(value: "Any") -> bool:
    return is_variables(value) and all(is_path_inside(name) for name in value)


def is_never(_: "Any") -> bool:
    """Reject any value: for fields that are not stored but found out anew each time."""
    return False


def is_origin(value: "Any") -> bool:
    """Return whether this describes a given checkpoint (see ``given``)."""
    return is_variables(value) and is_path_inside(value.get("path", ""))


def is_sweep(value: "Any") -> bool:
    """Return whether this says which trial of a sweep a job is; an empty record: of none."""
    if not is_record(value):
        return False
    return not value or fits(value, SWEEP, ("id",))


def is_after(value: "Any") -> bool:
    """Return whether these are jobs that one comes after (see ``following``)."""
    if not is_variables(value) or len(value) > MOST_AFTER:
        return False
    return all(is_id(name) and value[name] in WHEN for name in value)


def is_inputs(value: "Any") -> bool:
    """Return whether these are outputs of other jobs, by name (see ``inputs``)."""
    return isinstance(value, dict) and all(is_id(name) and is_input(value[name]) for name in value)


def is_input(value: "Any") -> bool:
    if not is_variables(value) or not is_path_inside(value.get("path")):
        return False
    return is_id(value.get("snapshot", value.get("job")))


def is_version(value: "Any") -> bool:
    """Return whether this can be the version of a description, which may be a later one."""
    return is_count(value) and value >= FIRST_VERSION


def is_pattern(value: "Any") -> bool:
    try:
        return is_text(value) and bool(re.compile(value))
    except (re.error, RecursionError, OverflowError):
        return False


def is_metric(value: "Any") -> bool:
    if not is_record(value) or not is_text(value.get("name")):
        return False
    if not is_course(value.get("recent", [])):
        return False
    return all(value.get(key) is None or is_number(value[key]) for key in ("value", "step"))


def is_course(value: "Any") -> bool:
    if not isinstance(value, list) or len(value) > MOST_RECENT:
        return False
    return all(one is None or is_number(one) for one in value)


def is_id(value: "Any") -> bool:
    """Return whether this id of a job or an array can name its directory, and nothing else."""
    if not is_text(value) or not 0 < len(value) <= LONGEST_ID:
        return False
    return value[0] != "." and ".." not in value and "/" not in value and value.isprintable()


END = {"state": is_text, "reason": is_text, "time": is_moment}  # type: Shape
ATTEMPT = {
    "outcome": is_text,
    "reason": is_text,
    "cause": is_text,
    "signal": is_text,
    "host": is_text,
    "from_checkpoint": is_text,
    "checkpoint": is_text,
    "snapshot": is_text,
    "exit_code": is_count,
    "pid": is_count,
    "rank": is_count,
    "done_before": is_count,
    "iteration": is_count,
    "total": is_count,
    "started": is_moment,
    "ended": is_moment,
    "heartbeat": is_moment,
    "deadline": is_moment,
    "held": is_moment,
    "ending": is_number,
    "from_time": is_number,
    "interval": is_number,
    "hopeless": is_flag,
    "progress": is_flag,
    "saved_at_end": is_flag,
    "gpus": is_counts,
    "memory": is_use,
    "gpu_use": is_number,
    "gpu_idle": is_moment,
    "command": is_texts,
    "container": is_texts,
    "runs": is_texts,
    "left": is_texts,
    "remarks": is_texts,
    "metric": is_metric,
}  # type: Shape
DESCRIPTION = {
    "id": is_id,
    "name": is_text,
    "version": is_version,
    "command": is_texts,
    "folder": is_path_inside,
    "project": is_text,
    "snapshot": is_id,
    "resources": is_record,
    "resume": is_record,
    "metrics": is_record,
    "container": is_record,
    "scheduler": is_record,
    "share": is_place,
    "order": is_text,
    "retries": is_count,
    "recipe": is_text,
    "launch": is_text,
    "outputs": is_paths_inside,
    "env": is_variables,
    "links": is_links,
    "secrets": is_texts,
    "notes": is_texts,
    "created": is_moment,
    "resumed_after": is_count,
    "start_from": is_text,
    "limits": is_record,
    "retry_on": is_counts,
    "fail_on": is_counts,
    "hold": is_moment,
    "stall": is_moment,
    "origin": is_origin,
    "sweep": is_sweep,
    "after": is_after,
    "inputs": is_inputs,
}  # type: Shape
NEEDED = ("command", "resources", "resume", "outputs", "retries", "resumed_after")
RESOURCES = {
    "nodes": is_count,
    "cpus": is_count,
    "memory": is_count,
    "gpus": is_number,
    "time": is_moment,
    "time_min": is_moment,
    "gpu_type": is_text,
}  # type: Shape
SWEEP = {
    "id": is_id,
    "first": is_count,
    "trial": is_count,
    "at_once": is_count,
    "per_node": is_count,
    "asked_for": is_flag,
    "values": is_record,
    "template": is_texts,
}  # type: Shape
LIMITS = {"total_time": is_moment, "gpu_hours": is_number, "start_by": is_moment}  # type: Shape
METRICS = {"main": is_texts, "tensorboard": is_text, "pattern": is_pattern}  # type: Shape
RESUME = {
    "checkpoint": is_text,
    "number": is_text,
    "args": is_texts,
    "begin_args": is_texts,
    "total": is_rule,
    "scale": is_rules,
    "anew": is_flag,
    "finished": is_text,
    "partner": is_text,
    "looks_for": is_text,
    "beside": is_text,
    "keep": is_count,
    "signal": is_text,
    "saves": is_text,
    "grace": is_number,
    "backoff": is_number,
    "given": is_never,
}  # type: Shape
RESUME_NEEDED = ("grace", "backoff")


def fitting(record: "Optional[Record]", shape: "Shape") -> "Any":
    """Leave out fields of the wrong type, and those that are None, as if they had not been written.
    Fields that the shape does not name stay. What is left has the type that the shape is for (see
    ``records``), which the caller names."""
    return {key: value for key, value in (record or {}).items() if is_fit(key, value, shape)}


def is_fit(key: str, value: "Any", shape: "Shape") -> bool:
    return value is not None and shape.get(key, is_shallow)(value)


def fits(record: "Record", shape: "Shape", needed: "Iterable[str]" = ()) -> bool:
    """Return whether every field is None or of its type, and every needed one is there."""
    return all(value is None or is_fit(key, value, shape) for key, value in record.items()) and all(
        record.get(key) is not None for key in needed
    )


def description(record: "Any") -> "Optional[Description]":
    """Return a job's description if it is usable; else None."""
    if record is None or not fits(record, DESCRIPTION, NEEDED):
        return None
    if not fits(record["resume"], RESUME, RESUME_NEEDED):
        return None
    if not fits(record.get("metrics") or {}, METRICS):
        return None
    if not fits(record.get("limits") or {}, LIMITS):
        return None
    checked = record  # type: Description
    return checked if fits(record["resources"], RESOURCES) else None


def placeholder(job_id: str) -> "Placeholder":
    """Return what to report for a job whose description is damaged."""
    return {"id": job_id, "name": job_id, "command": [], "resources": {}, "resume": {}}
