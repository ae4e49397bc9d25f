"""Images made ready to run on this machine, for a cluster that cannot do it itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from dray.errors import Refused, from_os_error
from dray.images.push import Source
from dray.images.roads import Road
from dray.images.source import from_file
from dray.node.containers import converting
from dray.node.containers.container import ENROOT
from dray.node.containers.images import ENDINGS, hex_of
from dray.node.formats import files

PIECE = 1 << 20
KEPT = 3  # of the image files that were made here; they are big, and can be made again


def make(source: Source, road: Road, cache: Path) -> Source:
    """The same image as one file, kept for the next time; what is made of it has its id."""
    folder = cache / "images"
    files.make_folder(str(folder))
    target = folder / f"{hex_of(source.id)}.{road.format}"
    is_lasting = source.kind != "registry" or "@sha256:" in source.name  # a tag may move
    with files.Lock(f"{target}.lock"):
        if not (is_lasting and target.exists()):
            make_file(source, road, folder, target)
        made = from_file(target, cache)
    prune(folder)
    return made._replace(id=source.id, name=source.name, architecture=source.architecture)


def make_file(source: Source, road: Road, folder: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as scratch:
        try:
            os.replace(convert(source, road, scratch), target)
        except converting.CannotConvert as error:
            raise Refused(f"{source.name} could not be made ready here: {error}") from error
        except OSError as error:
            raise from_os_error(error) from error


def prune(folder: Path) -> None:
    """All but those that were made last."""
    with suppress(FileNotFoundError):  # another dray does the same
        made = [path for path in folder.iterdir() if path.suffix in ENDINGS]
        for path in sorted(made, key=lambda one: one.stat().st_mtime_ns)[:-KEPT]:
            path.unlink()


def convert(source: Source, road: Road, scratch: str) -> str:
    made = os.path.join(scratch, "image")
    if road.builder == ENROOT:
        converting.import_image(enroot_name(source), made, scratch)
        return made
    if source.kind == "registry":
        converting.build(source.name, made, scratch)
        return made
    layout = converting.Layout(os.path.join(scratch, "oci"))
    with source.read(frozenset(source.layers)) as layers:
        for digest, stream in layers:
            with layout.open(digest) as file:
                shutil.copyfileobj(stream, file, PIECE)
    layout.digests = list(source.layers)  # an archive may have them in another order
    converting.build(layout.finish(source.config), made, scratch)
    return made


def enroot_name(source: Source) -> str:
    if source.kind == "registry":
        return source.name
    if not source.engine:
        raise converting.CannotConvert("Enroot reads no archives: load it into podman first")
    scheme = "dockerd" if source.engine == "docker" else source.engine
    return f"{scheme}://{source.name}"
