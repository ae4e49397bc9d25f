"""How trainers are started: what the recipes share. Pure, but for a look into scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dray.errors import UsageError
from dray.recipes import Request

SMALL = 1 << 20


def content(path: Path) -> str:
    """Return the beginning of a script; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(SMALL).decode(errors="replace")
    except OSError:
        return ""


def script_of(request: Request) -> Path | None:
    """Return the script that the command starts, if it is one of the project's."""
    paths = (request.folder / word for word in request.command if word.endswith(".py"))
    return next((path for path in paths if path.is_file()), None)


def has_flag(text: str, flag: str) -> bool:
    return re.search(rf"""["']{re.escape(flag)}["']""", text) is not None


def flag_like(text: str, pattern: str) -> str:
    """Return the first flag with a value that a script adds to its parser and whose name
    matches."""
    for found in re.finditer(r"""["'](--[\w-]+)["']([^)]*)""", text):
        if re.search(pattern, found[1]) and "action=" not in found[2]:
            return found[1]
    return ""


def is_arguments(command: Sequence[str]) -> bool:
    """Return whether only the trainer's arguments were given: flags, or overrides such as
    agent.seed=1."""
    return not command or re.match(r"-|[\w.+~/@]+=", command[0]) is not None


def require_command(request: Request, name: str) -> tuple[str, ...]:
    if is_arguments(request.command):
        raise UsageError(
            f"the recipe '{name}' does not know which program to start",
            hint="Write the whole command behind --: dray run -- python train.py …",
        )
    return request.command


def torchrun(request: Request, python: Sequence[str]) -> tuple[str, ...]:
    """Return Python started as one worker for each GPU of a single node; unchanged if that is not
    wanted, or the cluster does it."""
    if request.nodes > 1 or request.gpus < 2 or request.launch not in (None, "none"):
        return tuple(python)
    workers = f"--nproc-per-node={request.gpus}"
    return (*python, "-m", "torch.distributed.run", "--standalone", workers)


def value_of(command: Sequence[str], flags: Sequence[str]) -> tuple[str, int] | None:
    """Return the flag and its whole number, if one of these flags is given."""
    for position, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag in flags:
            text = value if equals else "".join(command[position + 1 : position + 2])
            if text.isdecimal():
                return flag, int(text)
    return None


def totals(request: Request, counts: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return notes on what per-GPU counts add up to. ``counts``: the flags for each thing
    counted."""
    if request.workers == 1:
        return ()
    where = f"{request.workers} GPUs" if request.gpus else f"{request.workers} nodes"
    notes = []
    for what, flags in counts.items():
        found = value_of(request.command, flags)
        if found:
            flag, each = found
            notes.append(f"{each * request.workers} {what} in all: {flag} {each} on {where}")
    return tuple(notes)
