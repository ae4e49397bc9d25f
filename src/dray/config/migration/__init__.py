"""What users already have → a cluster's settings. One module per source, all of the same shape:

WHAT          what it reads, for people
BESIDE        files that belong to it, relative to its folder; the first of each name counts
recognises    whether this text is such a file, by its content
read          the text and those beside it → Found; nothing in them is ever executed
"""

from __future__ import annotations

import re
from pathlib import Path

from dray.config.migration import assignments, isaaclab, pods, protomotions, ray_list, runai
from dray.config.migration.found import Found, Source, Text
from dray.errors import ConfigError, Refused, UsageError

SOURCES: tuple[Source, ...] = (isaaclab, protomotions, pods, runai, ray_list, assignments)

# In a project's folder, what is looked for.
IN_FOLDER = (".env.cluster", "docker/cluster/.env.cluster", "protomotions/train_slurm.py")

NOT_YET = (
    (r"^#PBS\s", "PBS"),
    (r"^[ \t]*(?:export\s+)?RUNAI_\w+=", "Run:ai"),
)
MOST = 1 << 18  # bytes: no settings are longer


def read(path: Path) -> Found:
    """Read the file, and those that belong to it."""
    if path.is_dir():
        path = find_in(path)
    text = read_text(path)
    for source in SOURCES:
        if source.recognises(text):
            return source.read(text, beside(path, source.BESIDE))
    for sign, what in NOT_YET:
        if re.search(sign, text.content, re.M):
            raise Refused(f"{path} is for {what}, and {what} is not read yet")
    raise UsageError(f"{path}: this is none of the formats that can be imported", hint=known())


def known() -> str:
    return f"Recognised are {'; '.join(source.WHAT for source in SOURCES)}."


def find_in(folder: Path) -> Path:
    for name in IN_FOLDER:
        if (folder / name).is_file():
            return folder / name
    raise UsageError(f"{folder}: there is no {', '.join(IN_FOLDER[:-1])} or {IN_FOLDER[-1]} in it")


def beside(path: Path, names: tuple[str, ...]) -> dict[str, Text]:
    found: dict[str, Text] = {}
    for name in names:
        other = path.parent / name
        if other.name not in found and other.is_file() and not other.samefile(path):
            found[other.name] = read_text(other)
    return found


def read_text(path: Path) -> Text:
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MOST or b"\0" in data:
        raise UsageError(f"{path}: this is no settings file", hint=known())
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", hint="Save it as UTF-8.") from error
    return Text(str(path), content.replace("\r\n", "\n"))
