"""Writes the tests' images as one archive: images.py PAUSE BASE ARCHIVE.

PAUSE is a program, BASE the root file system that ``tests/rigs/base-image`` has made.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def layer_of(name: str, program: Path) -> bytes:
    """Lay out one program, and nothing else."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as layer:
        entry = tarfile.TarInfo(name)
        entry.mode = 0o755
        entry.size = program.stat().st_size
        with program.open("rb") as content:
            layer.addfile(entry, content)
    return data.getvalue()


def without_python(base: Path) -> bytes:
    """Leave only the shell of the base: what has no Python must do as well."""
    data = io.BytesIO()
    with tarfile.open(base) as source, tarfile.open(fileobj=data, mode="w") as layer:
        for entry in source:
            if entry.name != "./usr" and not entry.name.startswith(("./usr/", "./lib")):
                layer.addfile(entry, source.extractfile(entry) if entry.isreg() else None)
    return data.getvalue()


class Archive:
    """An archive as ``docker save`` writes it."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._images: list[dict[str, object]] = []

    def add(self, name: str, layer: bytes, command: list[str]) -> None:
        """Add an image of one layer."""
        digest = hashlib.sha256(layer).hexdigest()
        config = json.dumps(
            {
                "architecture": MACHINES[platform.machine()],
                "os": "linux",
                "config": {"Cmd": command, "Env": [f"PATH={PATH}"], "WorkingDir": "/"},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created_by": "dray's tests"}],
            }
        ).encode()
        about = f"{hashlib.sha256(config).hexdigest()}.json"
        self._write(f"{digest}/layer.tar", layer)
        self._write(about, config)
        self._images.append(
            {"Config": about, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}
        )

    def close(self) -> None:
        """Write what is in the archive; its last entry."""
        self._write("manifest.json", json.dumps(self._images).encode())

    def _write(self, name: str, data: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))


def main(pause: Path, base: Path, path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        archive = Archive(tar)
        archive.add("registry.local/pause:1", layer_of("pause", pause), ["/pause"])
        archive.add("registry.local/busybox:1", without_python(base), ["/bin/sh"])
        archive.add("registry.local/python:1", base.read_bytes(), ["/usr/bin/python3"])
        archive.close()


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
