"""Selects among a job's outputs: by glob, or the newest whole checkpoint.

A glob is matched against the path below the outputs: ``*`` and ``?`` stay within a name, ``**`` is
any number of folders, ``[a-z]`` one of these characters. Without a slash it may be a name at any
depth. One that matches a folder means everything in it. The time of a match is bounded by the
lengths of glob and path, whatever they are.
"""

import os

from . import newest
from .resuming import partner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

    from ..jobs.jobdir import JobDir

    Item = TypeVar("Item")
    Token = Tuple[str, str]

MOST_GLOBS = 1000
LONGEST_GLOB = 4096
ANY, ONE, SET, NOT_SET, LETTER = "any", "one", "set", "not set", "letter"


def chooser(
    job_dir: "JobDir", globs: "Sequence[str]", latest_checkpoint: bool
) -> "Callable[[str], bool]":
    """Return a test that tells whether a path below the outputs is wanted. Without globs or a
    checkpoint, all are."""
    if not globs and not latest_checkpoint:
        return lambda path: True
    is_matched = matcher(globs)
    places = newest_checkpoint(job_dir) if latest_checkpoint else []

    def is_chosen(path: str) -> bool:
        if any(path == place or path.startswith(place + "/") for place in places):
            return True
        return is_matched(path)

    return is_chosen


def matcher(globs: "Sequence[str]") -> "Callable[[str], bool]":
    """Return a test that tells whether a path matches one of the globs."""
    patterns = [parts_of(one) for one in globs]

    def is_matched(path: str) -> bool:
        names = path.split("/")
        return any(fits(pattern, names, is_folders, name_fits) for pattern in patterns)

    return is_matched


def newest_checkpoint(job_dir: "JobDir") -> "List[str]":
    """Return the newest whole checkpoint and its partner, relative to the outputs; nothing if there
    is none."""
    description = job_dir.description()
    if description is None:
        return []
    rules = description["resume"]
    found = newest.newest(job_dir.outputs, rules)
    if found is None:
        return []
    partner = partner_of(found.path, rules)
    paths = [found.path] + ([partner] if partner else [])
    return [os.path.relpath(path, job_dir.outputs) for path in paths]


# -- globs --------------------------------------------------------------------------------------


def parts_of(glob: str) -> "List[Any]":
    """Split a glob into names, each as its tokens; None stands for any number of folders."""
    glob = glob[2:] if glob.startswith("./") else glob
    anywhere = "/" not in glob.rstrip("/")
    names = [name for name in glob.split("/") if name]
    parts = [None if name == "**" else tokens_of(name) for name in names]  # type: List[Any]
    return ([None] if anywhere else []) + parts + [None]  # everything in a folder that matches


def tokens_of(name: str) -> "List[Token]":
    found = []  # type: List[Token]
    at = 0
    while at < len(name):
        end = name.find("]", at + 3 if name[at + 1 : at + 2] in ("!", "^") else at + 2)
        if name[at] == "[" and end > 0:
            negated = name[at + 1] in "!^"
            letters = name[at + 2 : end] if negated else name[at + 1 : end]
            found.append((NOT_SET if negated else SET, letters))
            at = end
        elif name[at] == "*":
            found.append((ANY, ""))
        else:
            found.append((ONE, "") if name[at] == "?" else (LETTER, name[at]))
        at += 1
    return found


def is_folders(part: "Optional[List[Token]]") -> bool:
    return part is None


def name_fits(tokens: "List[Token]", name: str) -> bool:
    return fits(tokens, name, is_any, letter_fits)


def is_any(token: "Token") -> bool:
    return token[0] == ANY


def letter_fits(token: "Token", letter: str) -> bool:
    kind, letters = token
    if kind in (SET, NOT_SET):
        return is_among(letters, letter) == (kind == SET)
    return kind == ONE or letters == letter


def is_among(letters: str, letter: str) -> bool:
    at = 0
    while at < len(letters):
        if letters[at + 1 : at + 2] == "-" and at + 2 < len(letters):
            if letters[at] <= letter <= letters[at + 2]:
                return True
            at += 3
        else:
            if letters[at] == letter:
                return True
            at += 1
    return False


def fits(
    pattern: "Sequence[Any]",
    items: "Sequence[Item]",
    is_wild: "Callable[[Any], bool]",
    one_fits: "Callable[[Any, Item], bool]",
) -> bool:
    """Return whether the items match the pattern, in which a wildcard stands for any number of
    them.

    ``is_wild`` tells whether a part of the pattern is a wildcard, ``one_fits`` whether a part
    matches an item. Only the last wildcard that was passed ever has to take more, so no path is
    tried twice.
    """
    at = here = 0
    wild, tried = -1, 0
    while here < len(items):
        if at < len(pattern) and is_wild(pattern[at]):
            wild, tried = at, here
            at += 1
        elif at < len(pattern) and one_fits(pattern[at], items[here]):
            at += 1
            here += 1
        elif wild >= 0:
            tried += 1
            at, here = wild + 1, tried
        else:
            return False
    return all(is_wild(one) for one in pattern[at:])
