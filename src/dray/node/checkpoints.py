"""Which checkpoint is the newest whole one.

A trainer killed while it saves leaves a file that looks like a checkpoint and cannot be loaded.
Formats that say where they end are checked for that end; the rest must at least not be empty.
"""

import glob
import json
import os
import re
import struct
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

UNFINISHED_NAME = re.compile(r"(\.tmp|\.temp|\.part|\.partial|\.incomplete|~)$|^\.|\.tmp\.", re.I)


class Checkpoint:
    def __init__(self, path: str, mtime: float, size: int) -> None:
        self.path = path
        self.mtime = mtime
        self.size = size

    def same(self, other: "Optional[Checkpoint]") -> bool:
        return other is not None and (self.path, self.mtime, self.size) == (
            other.path,
            other.mtime,
            other.size,
        )


def newest(outputs: str, pattern: "Optional[str]") -> "Optional[Checkpoint]":
    """The newest valid checkpoint below ``outputs`` that matches the glob."""
    for candidate in candidates(outputs, pattern):
        if is_whole(candidate.path):
            return candidate
    return None


def candidates(outputs: str, pattern: "Optional[str]") -> "List[Checkpoint]":
    """Everything that matches, newest first."""
    if not pattern:
        return []
    found = []
    for path in glob.iglob(os.path.join(glob.escape(outputs), pattern), recursive=True):
        if UNFINISHED_NAME.search(os.path.basename(path)):
            continue
        try:
            status = os.stat(path)
        except OSError:  # a dangling link, or removed by the trainer's own clean-up
            continue
        found.append(Checkpoint(path, status.st_mtime, status.st_size))
    return sorted(found, key=lambda one: (one.mtime, natural(one.path)), reverse=True)


def natural(path: str) -> "List[Tuple[int, str]]":
    """A sort key under which model_1000 comes after model_999."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]


def is_whole(path: str) -> bool:
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        with open(path, "rb") as file:
            head = file.read(8)
        if not head:
            return False
        if head.startswith(b"PK"):
            return is_whole_zip(path)
        if path.endswith(".safetensors"):
            return is_whole_safetensors(path, head)
        if path.endswith(".json"):
            return is_whole_json(path)
        if head[0] == 0x80 and head[1] <= 5:
            return is_whole_pickle(path)
        return True
    except OSError:
        return False


def is_whole_zip(path: str) -> bool:
    """torch.save, numpy.savez and stable-baselines3 write zips, whose directory comes last."""
    try:
        with zipfile.ZipFile(path) as archive:
            return bool(archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, struct.error):
        return False


def is_whole_safetensors(path: str, head: bytes) -> bool:
    if len(head) < 8:
        return False
    (length,) = struct.unpack("<Q", head)
    try:
        with open(path, "rb") as file:
            file.seek(8)
            header = json.loads(file.read(min(length, 100000000)).decode("utf-8"))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False
    return bool(os.path.getsize(path) == 8 + length + max(ends + [0]))


def is_whole_json(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            json.loads(file.read().decode("utf-8"))
    except ValueError:
        return False
    return True


def is_whole_pickle(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"."
