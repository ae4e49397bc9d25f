"""Exports some layers of an image from podman, without reading the others.

podman saves an image whole, which takes minutes for a large one. It can also push it into a folder
(an OCI layout), and does not write layers that are there already. So empty files are put there
under the names of the layers that are not wanted. The result is checked: if it is not as expected,
the image is saved whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dray.errors import DrayError
from dray.images import archive, contents
from dray.node.containers.images import hex_of
from dray.programs import calling


@contextmanager
def exported(
    image_id: str, layers: Iterable[str], wanted: frozenset[str]
) -> Iterator[tuple[Path, Mapping[str, str]] | None]:
    """Export the wanted layers into a folder; yield it with a map from its files to layers, or None
    where podman did something else."""
    with tempfile.TemporaryDirectory(prefix="dray-", dir=archive.folder_with_room()) as folder:
        blobs = Path(folder, "blobs/sha256")
        blobs.mkdir(parents=True)
        for layer in set(layers) - wanted:
            (blobs / hex_of(layer)).touch()
        argv = ["podman", "push", "--quiet", image_id, f"oci:{folder}:image"]
        ended = calling.ask(argv)
        yield found_in(Path(folder), wanted) if ended.code == 0 else None


def found_in(folder: Path, wanted: frozenset[str]) -> tuple[Path, Mapping[str, str]] | None:
    try:
        known = contents.look(folder).known
    except DrayError:
        return None
    whole = {layer for file, layer in known.items() if (folder / file).stat().st_size}
    return (folder, known) if wanted <= whole else None
