"""Receives outputs from a cluster, each file whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from dray.errors import ClusterError
from dray.landing import Incoming, Landing, is_unwanted
from dray.reporter import Progress

CHUNK = 1 << 20


class NotWhole(Exception):
    """A file could not be read to its end on the cluster."""


def receive(
    stream: IO[bytes], coming: Sequence[Incoming], landing: Landing, progress: Progress
) -> list[str]:
    """Put the files into the folder; return the paths of those that could not be read there."""
    total = sum(file.size for file in coming)
    done = 0
    broken = []
    for file in coming:
        if file.link is not None:
            if not is_unwanted(file):  # it may have been another one when it was asked for
                landing.put(file, ())
            continue
        try:
            landing.put(file, contents(stream, file.size))
        except NotWhole:
            broken.append(file.path)
        done += file.size
        progress(done, total)
    return broken


def contents(stream: IO[bytes], length: int) -> Iterator[bytes]:
    """Yield a file's contents as the agent sends them: so many bytes, and a last one that says
    whether they are really the file's."""
    while length:
        piece = stream.read(min(length, CHUNK))
        if not piece:
            raise ClusterError("the connection broke", hint="Pull again: only the rest is fetched.")
        yield piece
        length -= len(piece)
    if stream.read(1) != b"\1":
        raise NotWhole
