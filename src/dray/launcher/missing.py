"""Finds words of a command that name a file which the job will not have. Pure, except for a look at
the project's files.

A job is refused only where it is certain that it cannot start: its program or script is a relative
path, and not in the snapshot. For any other word it is unknown whether the file is to be read or to
be written, so there is at most a note, and nothing is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath

from dray.errors import Refused
from dray.job.model import JobSpec
from dray.node.code.packs import entries
from dray.records import NamedTuple

PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
PYTHON_FLAGS = re.compile(r"-[bBdEiIOPqsSuvx]+")
WITH_VALUE = ("-W", "-X")
SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
SHELL_FLAGS = re.compile(r"-[aefhlnuvx]+")
NO_PATH = re.compile(r"""[\s*?\[\]{}$<>|;&"'`\\]|://""")
ABSOLUTE = ("/", "~", "-", "@", "+")
CODE = (".py", ".sh")
SETTINGS = (".yaml", ".yml", ".toml", ".cfg", ".ini")
MOST_NAMES = 2000  # among which a similar one is looked for


class Tree:
    """Which files of a project are in the snapshot, and which are not."""

    def __init__(self, project: Path, manifest: bytes, outputs: Sequence[str]) -> None:
        self.project = project
        self.manifest = b"\0" + manifest
        self.outputs = outputs

    def has(self, path: str) -> bool:
        """Return whether the path is in the snapshot, or may be, behind a link."""
        name = os.fsencode(path)
        if b" %s\0" % name in self.manifest or b" %s/" % name in self.manifest:
            return True
        return any(self._is_link(str(one)) for one in PurePosixPath(path).parents)

    def _is_link(self, path: str) -> bool:
        line = rb"\0l \S+ \d+ " + re.escape(os.fsencode(path)) + rb"\0"
        return re.search(line, self.manifest) is not None

    def output_of(self, path: str) -> str:
        """Return the declared output that contains the path, or is below it."""
        return next((one for one in self.outputs if is_around(one, path)), "")

    def similar(self, path: str) -> str:
        """Find a file that may be meant: one of a similar name in the same folder, or of the same
        name in another."""
        import difflib  # only where a file is missing

        paths = [os.fsdecode(one.path) for one in entries(self.manifest[1:]) if one.kind != "d"]
        folder, _, name = path.rpartition("/")
        beside = [one for one in paths if one.rpartition("/")[0] == folder][:MOST_NAMES]
        found = difflib.get_close_matches(path, beside, n=1, cutoff=0.8)
        return next(iter(found or [one for one in paths if one.rpartition("/")[2] == name]), "")


def is_around(output: str, path: str) -> bool:
    """Return whether one of the two paths is below the other, or they are the same."""
    return f"{path}/".startswith(f"{output}/") or f"{output}/".startswith(f"{path}/")


class Word(NamedTuple):
    """A word of the command, and the path in the project that it may name."""

    text: str
    path: str


def look(job: JobSpec, manifest: bytes) -> tuple[str, ...]:
    """Return notes on words that name files which the job will not have. Raises Refused where the
    program or script to start is missing."""
    tree = Tree(Path(job.project), manifest, job.outputs)
    starts = [word for text in started(job.command) if (word := named(text, job))]
    for word in starts:
        if not tree.has(word.path):
            raise refusal(word, tree, job.folder)
    words = (word for text in others(job.command) if (word := named(text, job)))
    notes = (note_on(word, tree, job.folder) for word in words if word not in starts)
    return tuple(dict.fromkeys(one for one in notes if one))


def started(command: Sequence[str]) -> Iterator[str]:
    """Yield the program, if it is a path, and the script that an interpreter is to run."""
    program = command[0]
    if "/" in program:
        yield program
    name = program.rpartition("/")[2]
    if PYTHON.fullmatch(name):
        yield from script_of(command[1:], PYTHON_FLAGS, WITH_VALUE)
    elif name in SHELLS:
        yield from script_of(command[1:], SHELL_FLAGS)


def script_of(
    words: Sequence[str], flags: re.Pattern[str], with_value: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the first word that is not a flag. Behind a flag that is not known here nothing is
    certain, so nothing is yielded."""
    rest = iter(words)
    for word in rest:
        if word in with_value:
            next(rest, "")
        elif not word.startswith(("-", "+")):
            yield word
            return
        elif not flags.fullmatch(word):
            return


def others(command: Sequence[str]) -> Iterator[str]:
    """Yield words that may be paths, and the values of flags such as --config=x.yaml."""
    for before, word in pairwise(command):
        if before in ("-c", "-m"):
            continue
        yield word.partition("=")[2] if word.startswith("--") else word


def named(text: str, job: JobSpec) -> Word | None:
    """Return the path below the project that a word may name; None where it names none, or
    something that is made on the node."""
    if not text or NO_PATH.search(text) or text.startswith(ABSOLUTE) or not text.isprintable():
        return None
    path = os.path.normpath(os.path.join(job.folder, text))
    if path == "." or path.startswith("..") or len(path) > 1000:
        return None
    made = (os.path.normpath(os.path.join(job.folder, link)) for link in job.links)
    if any(f"{path}/".startswith(f"{one}/") for one in made):
        return None
    return Word(text, path)


def refusal(word: Word, tree: Tree, folder: str) -> Refused:
    place, output = tree.project / word.path, tree.output_of(word.path)
    if output:
        why = f"it lies in the output '{output}', which is empty when a job begins"
        hint = "Keep what is to be run outside of the outputs."
    elif os.path.lexists(place):
        why = "it is left out of the snapshot, as .gitignore or .drayignore has it"
        hint = f"Take it out of there, or name it as it is found on the node, such as {place}"
    else:
        why = f"there is no such file in {tree.project / folder}"
        hint = suggestion(word, tree, folder) or "Is it the right folder?"
    what = f"the command starts '{word.text}', which the job does not have"
    return Refused(f"{what}: {why}", hint=hint)


def note_on(word: Word, tree: Tree, folder: str) -> str:
    """Return a note on a word that is not what is started, or ''."""
    if tree.has(word.path):
        return ""
    place, output = tree.project / word.path, tree.output_of(word.path)
    if place.is_file() and output:
        return f"'{word.text}' lies in the output '{output}', which is empty when the job begins"
    if output:
        return ""
    if place.is_file() or (place.is_dir() and "/" in word.text):
        return f"'{word.text}' is not in the job: .gitignore or .drayignore leaves it out"
    if os.path.lexists(place):
        return ""
    if word.path.endswith(CODE + SETTINGS):
        similar = suggestion(word, tree, folder)
        if similar or word.path.endswith(CODE):
            return f"'{word.text}' is not in the project's folder. {similar}".strip()
    return ""


def suggestion(word: Word, tree: Tree, folder: str) -> str:
    similar = tree.similar(word.path)
    return f"Did you mean '{os.path.relpath(similar, folder or '.')}'?" if similar else ""
