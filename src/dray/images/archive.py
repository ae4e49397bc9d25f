"""Reads the layers of an image from what docker, podman and others save.

A layer is named by the digest of its uncompressed tar. In an archive it may be a file of that name
(podman; docker from 25 on), a compressed one (OCI), or one whose name says nothing (docker before
25). An engine's output cannot be read twice, and its table of contents may come last: so a layer
whose name is not known is copied to a temporary file and hashed."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import posixpath
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from dray.errors import Refused

Layers = Iterator[tuple[str, IO[bytes]]]
Peekable = io.BufferedReader | io.BufferedRandom

PIECE = 1 << 20
NAMED = re.compile(r"blobs/sha256/([0-9a-f]{64})|([0-9a-f]{64})\.tar")
UNNAMED = re.compile(r"[0-9a-f]{64}/layer\.tar")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
LARGE = "/var/tmp"  # where /tmp is memory, this is not


class Incomplete(Refused):
    """The archive ends too early."""


class Damaged(Refused):
    """A layer is not what its name says."""


def layers(
    stream: IO[bytes], wanted: Iterable[str], known: Mapping[str, str] | None = None
) -> Layers:
    """Yield each wanted layer once, uncompressed, in the archive's order; each has to be read
    before the next. ``known`` maps files of the archive to layers, if it has been searched
    before."""
    missing = set(wanted)
    with reading_errors(), tarfile.open(fileobj=stream, mode="r|*", bufsize=PIECE) as archive:
        for member in archive:
            if not missing:
                return
            if not member.isreg():  # a link to a layer that has a file elsewhere
                continue
            file = archive.extractfile(member)
            assert isinstance(file, io.BufferedReader)
            with identified(tidy(member.name), file, missing, known or {}) as (layer, content):
                if layer in missing:
                    missing.remove(layer)
                    yield layer, checked(plain(content), layer)
    if missing:
        raise Incomplete(f"the archive of the image does not have its layer {min(missing)}")


def tidy(name: str) -> str:
    return posixpath.normpath(name)  # some write ./NAME


@contextmanager
def identified(
    name: str, file: Peekable, missing: set[str], known: Mapping[str, str]
) -> Iterator[tuple[str, Peekable]]:
    """Yield the layer that a file of the archive is; '' where it cannot be one that is missing."""
    named = NAMED.fullmatch(name)
    layer = known.get(name) or (f"sha256:{named[1] or named[2]}" if named else "")
    tells = name in known or layer in missing or (layer and not is_compressed(file))
    if tells or not (named or UNNAMED.fullmatch(name)):
        yield layer, file
    else:
        with put_aside(file) as aside:
            layer = digest_of(plain(aside))
            aside.seek(0)
            yield layer, aside


def folder_with_room() -> str | None:
    """Return a folder with room for a layer."""
    return os.environ.get("TMPDIR") or (LARGE if os.path.isdir(LARGE) else None)


@contextmanager
def put_aside(file: IO[bytes]) -> Iterator[io.BufferedRandom]:
    with tempfile.TemporaryFile(dir=folder_with_room()) as aside:
        assert isinstance(aside, io.BufferedRandom)
        shutil.copyfileobj(file, aside, PIECE)
        aside.seek(0)
        yield aside


@contextmanager
def reading_errors() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Incomplete(
            f"the archive of the image cannot be read: {error}",
            hint="Was it written and copied whole?",
        ) from error


def digest_of(file: IO[bytes]) -> str:
    check = hashlib.sha256()
    while piece := file.read(PIECE):
        check.update(piece)
    return f"sha256:{check.hexdigest()}"


def is_compressed(file: Peekable) -> bool:
    return file.peek(4).startswith((GZIP, ZSTD))


def plain(file: Peekable) -> IO[bytes]:
    """Return the file's content, uncompressed."""
    first = file.peek(4)
    if first.startswith(ZSTD):
        raise Refused(
            "the layers of this image are compressed with zstd, which dray cannot read",
            hint="Bring it into podman (podman load, podman pull) and name it as it is there.",
        )
    return io.BufferedReader(gzip.GzipFile(fileobj=file)) if first.startswith(GZIP) else file


class Checked(io.RawIOBase):
    """Raises Damaged at its end if the content does not match the digest."""

    def __init__(self, file: IO[bytes], digest: str) -> None:
        self._file = file
        self._digest = digest
        self._check = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with reading_errors():
            piece = self._file.read(len(buffer))
        self._check.update(piece)
        if not piece and f"sha256:{self._check.hexdigest()}" != self._digest:
            raise Damaged(
                f"the layer {self._digest} of the image is damaged: its content is another",
                hint="Build, load or copy the image again.",
            )
        buffer[: len(piece)] = piece
        return len(piece)


def checked(file: IO[bytes], digest: str) -> IO[bytes]:
    return io.BufferedReader(Checked(file, digest), PIECE)
