"""Sends an image to a cluster: only what is missing there, and nothing twice."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from dray.clusters.protocol import ImagePart, ImageStore
from dray.errors import ClusterError, DrayError
from dray.images.archive import Layers
from dray.reporter import Progress

if TYPE_CHECKING:
    from dray.node.formats.records import ImageRecord

PART = 32 << 20  # bytes of a layer that are sent in one go
SENDERS = 3  # one SSH channel alone does not fill a long link
TRIES = 3
QUICK = 1  # gzip's level: a link is rarely slower than a higher one


class Source(NamedTuple):
    """An image on this machine, and how its layers are read. ``kind`` is "layers", "file" (ready to
    run, as its only layer) or "registry" (the cluster fetches it)."""

    id: str
    name: str
    kind: str
    format: str  # the ending of the file that containers start from
    architecture: str
    size: int
    layers: tuple[str, ...]
    config: str
    read: Callable[[frozenset[str]], AbstractContextManager[Layers]]
    engine: str = ""  # the one that has it

    def record(self, job: str, keep_layers: bool) -> ImageRecord:
        """Return the record of the image that the cluster keeps."""
        return {
            "id": self.id,
            "name": self.name,
            "source": self.kind,
            "format": self.format,
            "architecture": self.architecture,
            "size": self.size,
            "layers": list(self.layers),
            "config": self.config,
            "job": job,
            "keep_layers": keep_layers and self.kind == "layers",
        }


class Sent(NamedTuple):
    layers: int
    bytes: int  # as they went over the link


def send(
    source: Source,
    lacking: Mapping[str, Sequence[Sequence[int]]],
    store: ImageStore,
    progress: Progress,
    level: int = QUICK,
) -> Sent:
    """Send the layers that the cluster lacks, without the parts that have arrived there."""
    sending = Sending(store, level, progress, expected_size(source, lacking))
    with source.read(frozenset(lacking)) as layers, sending:
        for layer, stream in layers:
            have = {(offset, length) for offset, length in lacking[layer]}
            for part in pieces_of(layer, stream):
                sending.add(part, arrived=(part.offset, part.length) in have)
    return Sent(len(lacking), sending.sent)


def expected_size(source: Source, lacking: Mapping[str, Any]) -> int:
    """Estimate how much has to be read: no engine tells the size of a layer before it is read."""
    return source.size * len(lacking) // max(len(source.layers), 1)


def pieces_of(layer: str, stream: IO[bytes], size: int = PART) -> Iterator[ImagePart]:
    """Cut a layer into parts, which are not compressed yet."""
    offset, piece = 0, read_exactly(stream, size)
    while piece:
        following = read_exactly(stream, size)
        yield ImagePart(layer, offset, len(piece), not following, piece)
        offset, piece = offset + len(piece), following


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Read so many bytes, as a pipe may give less than is asked for."""
    pieces, left = [], size
    while left and (piece := stream.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


class Sending:
    """Compresses and sends several parts at a time; only a few are in memory."""

    def __init__(self, store: ImageStore, level: int, progress: Progress, expected: int) -> None:
        self.store = store
        self.level = level
        self.progress = progress
        self.expected = expected
        self.pool = ThreadPoolExecutor(SENDERS)
        self.room = threading.Semaphore(2 * SENDERS)
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self.sent = self.done = 0

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.pool.shutdown(cancel_futures=kind is not None or self.failure is not None)
        if kind is None:
            self.check()
            self.progress(self.done, self.done)

    def check(self) -> None:
        if isinstance(self.failure, ClusterError):
            hint = self.failure.hint or "What has arrived is not sent again: repeat the command."
            raise type(self.failure)(self.failure.message, hint=hint)
        if self.failure is not None:
            raise self.failure

    def add(self, part: ImagePart, *, arrived: bool) -> None:
        self.check()
        if arrived:
            self._count(part.length, 0)
            return
        self.room.acquire()
        self.pool.submit(self._send, part).add_done_callback(self._finished)

    def _send(self, part: ImagePart) -> None:
        packed = part._replace(content=gzip.compress(part.content, self.level, mtime=0))
        for attempt in range(1, TRIES + 1):
            try:
                self.store.take(packed)
                break
            except DrayError as error:
                if not error.transient or attempt == TRIES:
                    raise
        self._count(part.length, len(packed.content))

    def _finished(self, future: Future[None]) -> None:
        if not future.cancelled():
            self.failure = self.failure or future.exception()
        self.room.release()

    def _count(self, length: int, sent: int) -> None:
        with self.lock:
            self.done += length
            self.sent += sent
            self.expected = max(self.expected, self.done)
            self.progress(self.done, self.expected)
