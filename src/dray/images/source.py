"""Finds the image on this machine that a name means."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dray.errors import NotFound, UsageError
from dray.images.archive import Layers, checked
from dray.images.push import Source
from dray.node.containers.known import RUNTIMES
from dray.node.containers.runtime import Runtime
from dray.node.formats import files

REGISTRIES = ("docker://", "oras://", "library://")
FILES = {ending: runtime for runtime in RUNTIMES for ending in runtime.endings}
UNDECIDED = RUNTIMES[0].format  # until a builder is chosen


def find(reference: str, cache: Path) -> Source:
    """Find an image of docker or podman, an archive or a file that is ready to run, or one that the
    cluster fetches by itself."""
    if reference.startswith(REGISTRIES):
        return from_registry(reference)
    if Path(reference).suffix in FILES:
        return from_file(Path(reference), cache)
    from dray.images import engine

    return Source(kind="layers", format=UNDECIDED, **engine.find(reference)._asdict())


def from_registry(reference: str) -> Source:
    """Identify an image by the digest in its reference, else by the reference itself, as its
    content is not known here."""
    pinned = re.search(r"@(sha256:[0-9a-f]{64})$", reference)
    own = "sha256:" + hashlib.sha256(reference.encode()).hexdigest()
    return Source(
        id=pinned[1] if pinned else own,
        name=reference,
        kind="registry",
        format=UNDECIDED,
        architecture="",
        size=0,
        layers=(),
        config="",
        read=no_layers,
    )


@contextmanager
def no_layers(_: frozenset[str]) -> Iterator[Layers]:
    yield iter(())


def from_file(path: Path, cache: Path) -> Source:
    if not path.is_file():
        raise NotFound(
            f"there is no image file {path} on this machine",
            hint="One that is on the cluster is named with its absolute path there.",
        )
    runtime = FILES[path.suffix]
    architecture = inspect_file(path, runtime)
    digest = digest_of(path, cache)

    @contextmanager
    def read(_: frozenset[str]) -> Iterator[Layers]:
        with path.open("rb") as file:
            yield iter([(digest, checked(file, digest))])

    return Source(
        id=digest,
        name=path.name,
        kind="file",
        format=runtime.format,
        architecture=architecture,
        size=path.stat().st_size,
        layers=(digest,),
        config="",
        read=read,
    )


def inspect_file(path: Path, runtime: type[Runtime]) -> str:
    """Return the architecture, if the file shows it; refuse a file that is not an image."""
    with path.open("rb") as file:
        head = file.read(64)
    if not runtime.recognizes(head):
        raise UsageError(
            f"{path} is not an image that can be run: it begins with {head[:8]!r}",
            hint="Was it copied whole? apptainer inspect FILE tells more.",
        )
    return runtime.architecture(head)


def digest_of(path: Path, cache: Path) -> str:
    """Return a file's digest. As image files are large, it is remembered until the file changes."""
    status = path.stat()
    stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
    name = hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogateescape")).hexdigest()
    memory = cache / "digests" / name
    known = files.read_json(str(memory))
    if known is not None and known["stamp"] == stamp:
        return str(known["digest"])
    with path.open("rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    files.make_folder(str(memory.parent))
    files.write_json(str(memory), {"stamp": stamp, "digest": digest}, durable=False)
    return digest
