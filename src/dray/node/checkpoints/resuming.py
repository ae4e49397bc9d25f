"""Resumes a trainer from a checkpoint, by the rules in the job's ``resume``. Pure, but for a look
into the run's folder. No trainer is known here: a recipe has written the rules.

- ``number``: a regular expression whose first group is how far a checkpoint is.
- ``scale``: look-ups whose product is how many of those numbers make one iteration.
- ``anew``: the trainer counts from zero again when it is resumed.
- ``total``: how many iterations there are in all: the value of ``flag`` in the command, else what
  ``pattern`` finds in ``file``; with ``rest``, that is what was left when the run began. The
  first attempt begins at ``begin``. The trainer's last checkpoint has the number ``total + last``.
  With ``up``, it does its last iteration to the end, where its steps are not a multiple; with
  ``early``, what it saves at an iteration's last step does not have that iteration yet.
- ``finished``: a file in the run's folder that is written when all is done.
- ``partner``: the name of a file beside each checkpoint without which it is not whole, wherever
  others have theirs; ``{number}`` in it is that of the checkpoint.
- ``looks_for``: the name under which the trainer looks for its checkpoint by itself.
- ``beside``: a pattern for names of files beside that one, which are overwritten with it.
- ``args``: added to the command; the same arguments in the command are replaced.
- ``begin_args``: the same for a run that begins from a checkpoint of another one; without them, it
  does so as it would resume from one of its own.

A run that begins from a checkpoint of another one does as many iterations as it is asked for itself
(``start_of``). If the trainer continues to count from the checkpoint's number, that number is this
run's ``begin``, and is added to the ``total`` that the command names. If it counts ``anew``, it
starts from zero.

A run is a folder with checkpoints. Every attempt records which runs there were before it, so the
attempt that began a run is known without comparing clocks.
"""

import glob
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Sequence

    from ..formats.records import Lookup, Resume, Rules, Runs

PLACEHOLDERS = (
    "{checkpoint}", "{name}", "{run}", "{run_pattern}", "{partner}", "{number}", "{left}",
    "{total}",
)  # fmt: skip
LEVELS = 3  # how far above a checkpoint its run's files are looked for
MOST_READ = 1 << 20


class Progress:
    """``done`` of ``total`` iterations; None for what is not known."""

    def __init__(
        self, done: "Optional[int]" = None, total: "Optional[int]" = None, finished: bool = False
    ) -> None:
        self.done = done
        self.total = total
        self.finished = finished

    @property
    def left(self) -> "Optional[int]":
        if self.done is None or self.total is None:
            return None
        return max(self.total - self.done, 0)


def progress(
    resume: "Rules", command: "Sequence[str]", path: str, outputs: str, previous: "Sequence[Runs]"
) -> Progress:
    """Return how far the run is at this checkpoint. ``previous``: the records of all attempts so
    far."""
    if is_given(resume, path):
        return start_of(resume, command, path)
    folder = os.path.dirname(path)
    finished = exists_above(folder, resume.get("finished"))
    number = number_of(path, resume.get("number"))
    scale = scale_of(resume, folder)
    if number is None or scale is None:
        return Progress(finished=finished)
    rule = resume.get("total") or {}
    begin = rule.get("begin", 0)
    begun = begun_at(os.path.relpath(folder, outputs), previous) or begin
    # Whole iterations, run by run: an unfinished one is in no checkpoint.
    done = max(number - bool(rule.get("early")), 0) // scale + (begun if resume.get("anew") else 0)
    total = flag_value(command, rule.get("flag"))
    if total is not None:
        total += begin
    else:
        found = look_up(folder, rule)
        if found is not None:
            begun_too = scale - 1 if rule.get("up") else 0
            total = (found + begun_too) // scale + (begun if rule.get("rest") else 0)
    reached = total is not None and done >= total + rule.get("last", 0)
    return Progress(done, total, finished or reached)


def is_given(resume: "Rules", path: str) -> bool:
    """Return whether this path is the job's given checkpoint (see ``given``)."""
    return path in (resume.get("given") or {}).values()


def start_of(resume: "Rules", command: "Sequence[str]", path: str) -> Progress:
    """Return how far a run is that begins from this checkpoint of another one. It is never
    finished: what the other run has done is not what this one is asked to do."""
    begin = begin_of(resume, path)
    total = flag_value(command, (resume.get("total") or {}).get("flag"))
    known = begin is not None and total is not None
    return Progress(begin, begin + total if known else None)  # type: ignore


def begin_of(resume: "Rules", path: str) -> "Optional[int]":
    """Return the iteration that a run counts from if it begins from this checkpoint of another
    one."""
    if resume.get("anew"):
        return 0
    number, scale = number_of(path, resume.get("number")), scale_of(resume, os.path.dirname(path))
    return None if number is None or scale is None else number // scale


def begun_from(resume: "Resume", path: str) -> "Resume":
    """Return the rules of a run that has begun from this checkpoint of another one. If it is not
    known what it counts from, neither is how many iterations are left."""
    begin, total = begin_of(resume, path), resume.get("total")
    if not total:
        return resume
    rules, rule = resume.copy(), total.copy()
    if begin is not None:
        rule["begin"] = begin
    rules["total"] = rule if begin is not None else None
    return rules


def number_of(path: str, pattern: "Optional[str]") -> "Optional[int]":
    """Return how far a checkpoint is, by the number in its name."""
    found = re.search(pattern, os.path.basename(path)) if pattern else None
    return int(found.group(1)) if found else None


def overwritten_name(resume: "Rules") -> "Optional[str]":
    """Return the name of a checkpoint that is written again and again: the one that the trainer
    looks for by itself, or the only one that the pattern allows."""
    name = os.path.basename(resume.get("checkpoint") or "")
    return resume.get("looks_for") or (name if name and not glob.has_magic(name) else None)


def is_ahead(resume: "Rules", path: str, at: Progress, other: str, other_at: Progress) -> bool:
    """Return whether a checkpoint written since is ahead of ``other``, which the attempt began
    from. A trainer may save that one again at once, perhaps in a folder of its own."""
    is_beside = os.path.dirname(path) == os.path.dirname(other)
    if is_given(resume, other) and at.done is not None and other_at.done is not None:
        return at.done != other_at.done  # a trainer may count from zero again
    if at.done is not None and other_at.done is not None:
        return at.done > other_at.done or (at.done == other_at.done and is_beside and path != other)
    name = os.path.basename(path)
    if name == overwritten_name(resume):
        return True
    return name != os.path.basename(other) or not (is_beside or re.search("[0-9]", name))


def partner_of(path: str, resume: "Rules") -> "Optional[str]":
    """Return the path of the file that belongs to this checkpoint, whether it exists or not."""
    name, pattern = resume.get("partner"), resume.get("number")
    found = re.search(pattern, os.path.basename(path)) if name and pattern else None
    if not found:
        return None
    return os.path.join(os.path.dirname(path), str(name).replace("{number}", found.group(1)))


def scale_of(resume: "Rules", folder: str) -> "Optional[int]":
    scale = 1
    for rule in resume.get("scale") or ():
        factor = look_up(folder, rule)
        if not factor:
            return None
        scale *= factor
    return scale


def begun_at(run: str, previous: "Sequence[Runs]") -> int:
    """Return how many iterations were done when this run began. The last attempt that did not find
    its folder has begun it."""
    for attempt in reversed(previous):
        if "runs" in attempt and run not in attempt["runs"]:
            return int(attempt.get("done_before") or 0)
    return 0


def runs_of(paths: "Iterable[str]", outputs: str) -> "List[str]":
    """Return the folders that these checkpoints are in."""
    return sorted({os.path.relpath(os.path.dirname(path), outputs) for path in paths})


# -- the run's own files ------------------------------------------------------------------------


def above(folder: str) -> "List[str]":
    folders = [folder]
    for _ in range(LEVELS - 1):
        folders.append(os.path.dirname(folders[-1]))
    return folders


def exists_above(folder: str, name: "Optional[str]") -> bool:
    return bool(name) and any(os.path.exists(os.path.join(one, str(name))) for one in above(folder))


def look_up(folder: str, rule: "Lookup") -> "Optional[int]":
    """Return the number that the rule's pattern finds in its file, in this folder or one above
    it."""
    if not rule.get("file"):
        return None
    for one in above(folder):
        try:
            with open(os.path.join(one, rule["file"]), encoding="utf-8", errors="replace") as file:
                found = re.search(rule["pattern"], file.read(MOST_READ), re.M)
        except OSError:
            continue
        return whole(found.group(1)) if found else None
    return None


def whole(text: str) -> "Optional[int]":
    """Parse a number as people and YAML write it: 3000, 1e6, 1000000.0."""
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return None


# -- the command --------------------------------------------------------------------------------


def flag_value(command: "Sequence[str]", flag: "Optional[str]") -> "Optional[int]":
    """Return the flag's value. The last one counts, as in most parsers."""
    value = None
    for position, word in enumerate(command):
        if flag and word == flag:
            value = whole("".join(command[position + 1 : position + 2]))
        elif flag and word.startswith(flag + "="):
            value = whole(word[len(flag) + 1 :])
    return value


def needs_place(resume: "Rules") -> bool:
    """Return whether the trainer finds a checkpoint only by the names of its folder and file, below
    where it writes its own."""
    args = " ".join(args_of(resume, True))
    by_name = any(word in args for word in ("{name}", "{run}", "{run_pattern}"))
    return by_name and "{checkpoint}" not in args


def args_of(resume: "Rules", begins: bool) -> "Sequence[str]":
    """Return the arguments to resume with. ``begins``: from a checkpoint of another run."""
    return (resume.get("begin_args") if begins else None) or resume.get("args") or ()


def resumed(
    command: "List[str]", resume: "Rules", path: str, at: Progress, begins: bool = False
) -> "List[str]":
    """Return the command that resumes from this checkpoint, or ``begins`` from one of another
    run."""
    partner = partner_of(path, resume)
    values = {
        "{checkpoint}": path,
        "{name}": os.path.basename(path),
        "{run}": os.path.basename(os.path.dirname(path)),
        "{run_pattern}": pattern_for(os.path.basename(os.path.dirname(path))),
        "{partner}": partner if partner and os.path.exists(partner) else None,
        "{number}": number_of(path, resume.get("number")),
        "{left}": at.left,
        "{total}": at.total,
    }  # the PLACEHOLDERS
    groups = [filled(group, values) for group in grouped(args_of(resume, begins))]
    known = [group for group in groups if group]
    for group in known:
        command = without(command, group)
    return command + [word for group in known for word in group]


def pattern_for(name: str) -> str:
    """Return a regular expression for this name alone. ``re.escape`` would escape plain characters,
    too."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", name) + "$"


def grouped(args: "Sequence[str]") -> "List[List[str]]":
    """Group the arguments: each flag with its values."""
    groups = []  # type: List[List[str]]
    for word in args:
        if word.startswith("-") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def filled(group: "List[str]", values: "Dict[str, Any]") -> "List[str]":
    """Replace the placeholders by their values. Return nothing if one of them is not known."""
    found = []
    for word in group:
        for name, value in values.items():
            if name in word and value is None:
                return []
        # In one pass: braces that a path happens to contain are not a placeholder.
        names = "|".join(re.escape(name) for name in values)
        found.append(re.sub(names, lambda match: str(values[match.group()]), word))
    return found


def without(command: "List[str]", group: "List[str]") -> "List[str]":
    """Return the command without the argument that this group replaces."""
    flag, values = group[0].partition("=")[0], len(group) - 1
    if not flag.startswith("--") or flag == "--":
        return command
    kept = command[:1]
    skip = 0
    for word in command[1:]:
        if skip:
            skip -= 1
        elif word == flag:
            skip = values
        elif not word.startswith(flag + "="):
            kept.append(word)
    return kept
