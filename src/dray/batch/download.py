"""Outputs on their way home: only what is new, each file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from dray.errors import ClusterError
from dray.transport.tree import make_way

CHUNK = 1 << 20


def stamps_below(target: Path) -> dict[str, list[Any]]:
    """What is here already, as the agent describes it (``agent.describe_file``)."""
    found: dict[str, list[Any]] = {}
    for folder, folders, names in os.walk(target):
        for name in (*names, *folders):
            path = Path(folder) / name
            if path.is_symlink():
                found[str(path.relative_to(target))] = ["link", os.readlink(path)]
            elif path.is_file():
                status = path.stat()
                found[str(path.relative_to(target))] = [status.st_size, status.st_mtime_ns]
    return found


def receive_file(stream: IO[bytes], target: Path, record: Mapping[str, Any]) -> bool:
    """One pulled file; it appears whole, or, where it could not be read there, not at all."""
    path = target / record["path"]
    if ".." in Path(record["path"]).parts or Path(record["path"]).is_absolute():
        raise ClusterError(f"the cluster sent a file for {record['path']}, outside of {target}")
    make_way(target, Path(record["path"]))
    temporary = path.with_name(f".{os.urandom(6).hex()}.part")
    try:
        if record["link"] is not None:
            temporary.symlink_to(record["link"])
        else:
            with temporary.open("wb") as file:
                copy_exactly(stream, file, record["size"])
            if stream.read(1) != b"\1":
                return False
            temporary.chmod(record["mode"] | 0o200)
            os.utime(temporary, ns=(record["mtime"], record["mtime"]))
        temporary.replace(path)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def copy_exactly(stream: IO[bytes], file: IO[bytes], length: int) -> None:
    while length:
        piece = stream.read(min(length, CHUNK))
        if not piece:
            raise ClusterError("the connection broke", hint="Pull again: only the rest is fetched.")
        file.write(piece)
        length -= len(piece)
