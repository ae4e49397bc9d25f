"""Reads what file systems and quota programs tell of room on disks. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dray import checks
from dray.checks import count, integer, note, optional, several, table
from dray.clusters.agent.answers import Told, reading, told
from dray.job.situation import Allowance, Disk, Own
from dray.records import NamedTuple

BLOCK = 1024  # bytes, in which quota and lfs count
SITE = "site"
NUMBER = re.compile(r"\d{1,18}")


class Storage(NamedTuple):
    disks: tuple[Disk, ...]
    own: tuple[Own, ...]
    said: str  # by the site's own command, as it is


def storage(answer: Mapping[str, Any]) -> Storage:
    """Read the agent's answer: see dray.node.agent.storage."""
    read = checks.required(answer, places=several(place, 20), own=table(occupied))
    heard = told(answer)
    disks = [
        *read["places"],
        *quota_disks(heard.text("quota")),
        *beegfs_disks(heard.text("beegfs")),
        *lustre_disks(heard),
    ]
    own = [Own(what, *amounts) for what, amounts in read["own"].items() if amounts[1]]
    return Storage(tuple(disks), tuple(own), site_words(heard))


def site_words(heard: Told) -> str:
    return heard.text(SITE).strip() or heard.errors.get(SITE, "")


def amount(value: Any) -> int:
    return integer(value, 0)


def place(value: Any) -> Disk:
    read = checks.required(
        value,
        name=note,
        path=note,
        total=amount,
        free=amount,
        files=optional(amount),
        files_free=optional(amount),
    )
    most = read["files"]
    used = max(most - read["files_free"], 0) if most and read["files_free"] is not None else None
    return Disk(
        name=read["name"],
        path=read["path"],
        used=max(read["total"] - read["free"], 0),
        most=read["total"],
        files=used,
        most_files=most,
        scope="everybody",
    )


def occupied(value: Any) -> tuple[int, int, bool]:
    size, files, whole = several(amount, 3)(value)
    return size, count(files), bool(whole)


def quota_disks(text: str) -> list[Disk]:
    """Read ``quota -w -p``: a file system on each line, blocks of 1024 bytes, and times as numbers.
    A star marks what is over its quota."""
    found = []
    for line in text.splitlines():
        parts = line.split()
        numbers = [number(one.rstrip("*")) for one in parts[1:]]
        if len(parts) == 9 and all(one is not None for one in numbers):
            used, soft, hard, _, files, soft_files, hard_files, _ = numbers
            found.append(disk(parts[0], used, soft or hard, files, soft_files or hard_files))
    return found


def lustre_disks(heard: Told) -> list[Disk]:
    """Read ``lfs quota -q``: the file system on the first line, where it is long, and numbers."""
    found = []
    for name, text in heard.texts.items():
        if not name.startswith("lustre "):
            continue
        words = [one.rstrip("*") for one in text.split()]
        numbers = [number(one) for one in words[1:] if one != "-"]
        if len(numbers) >= 6 and all(one is not None for one in numbers[:6]):
            used, soft, hard, files, soft_files, hard_files = numbers[:6]
            path = name.partition(" ")[2]
            found.append(disk(path, used, soft or hard, files, soft_files or hard_files))
    return found


def beegfs_disks(text: str) -> list[Disk]:
    """Read ``beegfs-ctl --getquota --csv``: name, id, bytes used and allowed, files likewise."""
    found = []
    for line in text.splitlines():
        parts = [one.strip() for one in line.split(",")]
        numbers = [number(one) for one in parts[2:6]]
        if len(parts) >= 6 and numbers[0] is not None and numbers[2] is not None:
            used, most, files, most_files = numbers
            found.append(disk("beegfs", used, most, files, most_files, 1))
    return found


def disk(
    path: str,
    used: int | None,
    most: int | None,
    files: int | None,
    most_files: int | None,
    block: int = BLOCK,
) -> Disk:
    """Make a quota of these numbers; 0 stands for no limit."""
    return Disk(
        name="quota",
        path=path,
        used=(used or 0) * block,
        most=most * block if most else None,
        files=files,
        most_files=most_files or None,
        scope="you",
    )


def number(text: str) -> int | None:
    return int(text) if NUMBER.fullmatch(text) and text.isascii() else None


def with_disks(allowance: Allowance, cluster: str, answer: Mapping[str, Any]) -> Allowance:
    """Add what the agent has found out about disks to what the scheduler allows."""
    with reading(cluster):
        found = storage(answer)
    said = [f"{SITE}: {line}" for line in found.said.splitlines()[:50]]
    remarks = (*allowance.remarks, *said)
    return allowance._replace(disks=found.disks, own=found.own, remarks=remarks)
