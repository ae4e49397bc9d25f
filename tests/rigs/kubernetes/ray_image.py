"""Writes an image with Ray as an archive: ray_image BASE MORE ENVIRONMENT ARCHIVE.

BASE is the root file system that ``tests/rigs/base-image`` has made, MORE a folder with what it
lacks, and ENVIRONMENT has Ray, for a Python of the same version as that of the base.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

from tests.rigs.kubernetes.images import Archive, layer_from

NAME = "registry.local/ray:1"
VERSION = "3.11"  # of the base's Python
PACKAGES = f"usr/local/lib/python{VERSION}/dist-packages"  # where it looks by itself
STARTER = '#!/bin/sh\nexec /usr/bin/python3 -m ray.scripts.scripts "$@"\n'
# What nobody needs who only runs Ray's core, and much of its size.
UNUSED = ("pip", "setuptools", "ray/rllib", "ray/serve/tests", "ray/jars", "ray/cpp")


def is_used(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = entry.name.removeprefix(f"{PACKAGES}/")
    # What was compiled stays: Ray gives up on parts of its own that take long to start.
    return None if name.startswith(tuple(f"{one}/" for one in UNUSED)) else entry


def layer_of(environment: Path) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as layer:
        packages = environment / f"lib/python{VERSION}/site-packages"
        layer.add(packages, PACKAGES, filter=is_used)
        for name, text in (("usr/local/bin/ray", STARTER),):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(text)
            layer.addfile(entry, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("usr/local/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        layer.addfile(link)
    return data.getvalue()


def main(base: Path, more: Path, environment: Path, path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        archive = Archive(tar)
        layers = (base.read_bytes(), layer_from(more), layer_of(environment))
        archive.add(NAME, ["/bin/bash"], *layers)
        archive.close()


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
