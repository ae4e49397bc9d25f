"""Finds where a project begins, and to whom its files belong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PROJECT_FILE = "dray.toml"


def find_project(start: Path) -> Path:
    """Return the nearest folder with a dray.toml, else with a .git, else the current one."""
    folders = searched(start)
    for mark in (PROJECT_FILE, ".git"):
        for folder in folders:
            if os.path.exists(folder / mark):
                return folder
    return start


def searched(start: Path) -> list[Path]:
    """Return the folders in which a project's files are looked for: this one and those above it, up
    to the home folder, while they are on one file system and nobody else could have put a file
    there."""
    home = identity(os.path.expanduser("~"))
    found = [start]
    while (here := status_of(found[-1])) is not None:
        above = found[-1].parent
        seen = status_of(above)
        if above == found[-1] or identity(found[-1]) == home or seen is None:
            break
        if seen.st_dev != here.st_dev or strangers(here) or strangers(seen):
            break
        found.append(above)
    return found


def strangers(status: os.stat_result) -> str:
    """Say who, other than the user and the administrator, controls a file: '' if nobody does. The
    result is the end of a sentence about the file."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to {user_name(status.st_uid)}"
    return "can be changed by everybody" if status.st_mode & stat.S_IWOTH else ""


def user_name(number: int) -> str:
    import pwd  # only to tell of somebody else

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def identity(folder: str | Path) -> tuple[int, int] | None:
    status = status_of(folder)
    return (status.st_dev, status.st_ino) if status else None


def status_of(folder: str | Path) -> os.stat_result | None:
    try:
        return os.stat(folder)
    except OSError:
        return None
