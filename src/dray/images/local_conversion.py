"""Converts images on this machine, for a cluster that cannot do it itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from dray.errors import Refused, from_os_error
from dray.images.conversion import Builder
from dray.images.push import Source
from dray.images.source import from_file
from dray.node.containers import converting
from dray.node.containers.images import hex_of
from dray.node.containers.known import ENDINGS
from dray.node.formats import files

PIECE = 1 << 20
KEPT = 3  # of the image files that were made here; they are big, and can be made again


def make(source: Source, builder: Builder, cache: Path) -> Source:
    """Make an image's file, and keep it for the next time; it has the image's id."""
    folder = cache / "images"
    files.make_folder(str(folder))
    target = folder / f"{hex_of(source.id)}.{builder.format}"
    is_lasting = source.kind != "registry" or "@sha256:" in source.name  # a tag may move
    with files.Lock(f"{target}.lock"):
        if not (is_lasting and target.exists()):
            make_file(source, builder, folder, target)
        made = from_file(target, cache)
    prune(folder)
    return made._replace(id=source.id, name=source.name, architecture=source.architecture)


def make_file(source: Source, builder: Builder, folder: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as scratch:
        try:
            os.replace(convert(source, builder, scratch), target)
        except converting.CannotConvert as error:
            raise Refused(f"{source.name} could not be made ready here: {error}") from error
        except OSError as error:
            raise from_os_error(error) from error


def prune(folder: Path) -> None:
    """Remove all but the newest files."""
    with suppress(FileNotFoundError):  # another dray does the same
        made = [path for path in folder.iterdir() if path.suffix in ENDINGS]
        for path in sorted(made, key=lambda one: one.stat().st_mtime_ns)[:-KEPT]:
            path.unlink()


def convert(source: Source, builder: Builder, scratch: str) -> str:
    """Make an image's file in a scratch folder; return its path."""
    made = os.path.join(scratch, "image")
    converting.build(builder.runtime, reference(source, builder, scratch), made, scratch)
    return made


def reference(source: Source, builder: Builder, scratch: str) -> str:
    """Return what the builder reads the image from."""
    if source.kind == "registry":
        return source.name
    if builder.runtime.converts_layers:
        return layout_of(source, os.path.join(scratch, "oci"))
    if not source.engine:
        title = builder.runtime.title
        raise converting.CannotConvert(f"{title} reads no archives: load it into podman first")
    return builder.runtime.engine_reference(source.engine, source.name)


def layout_of(source: Source, folder: str) -> str:
    """Write an image's layers out as an OCI layout."""
    layout = converting.Layout(folder)
    with source.read(frozenset(source.layers)) as layers:
        for digest, stream in layers:
            with layout.open(digest) as file:
                shutil.copyfileobj(stream, file, PIECE)
    layout.digests = list(source.layers)  # an archive may have them in another order
    return layout.finish(source.config)
