"""Writes the tests' images as one archive: images.py PAUSE BASE SHELL ARCHIVE.

PAUSE is a program, BASE the root file system that ``tests/rigs/base-image`` has made, SHELL a
folder with what a work image has beyond it.
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
RESERVATION = "registry.local/reservation:1"
# What KAI's own program does in a pod that keeps a GPU for others: it says which one it has got.
# KAI's asks NVIDIA's driver, of which there is none here.
RESERVING = """
import json, os, ssl, threading, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
token = open(f"{folder}/token").read()
own = "/api/v1/namespaces/{POD_NAMESPACE}/pods/{POD_NAME}".format(**os.environ)
said = {"run.ai/reserve_for_gpu_index": os.environ["NVIDIA_VISIBLE_DEVICES"]}
request = urllib.request.Request(
    "https://{KUBERNETES_SERVICE_HOST}".format(**os.environ) + own,
    json.dumps({"metadata": {"annotations": said}}).encode(),
    {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
    method="PATCH",
)
urllib.request.urlopen(request, context=ssl.create_default_context(cafile=f"{folder}/ca.crt"))
threading.Event().wait()
"""
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


def layer_from(folder: Path) -> bytes:
    """Lay out a folder."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as layer:
        layer.add(folder, ".")
    return data.getvalue()


class Archive:
    """An archive as ``docker save`` writes it."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._images: list[dict[str, object]] = []
        self._written: set[str] = set()

    def add(self, name: str, command: list[str], *layers: bytes) -> None:
        digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
        config = json.dumps(
            {
                "architecture": MACHINES[platform.machine()],
                "os": "linux",
                "config": {"Cmd": command, "Env": [f"PATH={PATH}"], "WorkingDir": "/"},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in digests]},
                "history": [{"created_by": "dray's tests"} for _ in digests],
            }
        ).encode()
        about = f"{hashlib.sha256(config).hexdigest()}.json"
        paths = [f"{one}/layer.tar" for one in digests]
        for path, layer in zip(paths, layers, strict=True):
            self._write(path, layer)
        self._write(about, config)
        self._images.append({"Config": about, "RepoTags": [name], "Layers": paths})

    def close(self) -> None:
        """Write what is in the archive; its last entry."""
        self._write("manifest.json", json.dumps(self._images).encode())

    def _write(self, name: str, data: bytes) -> None:
        if name in self._written:
            return
        self._written.add(name)
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))


def main(pause: Path, base: Path, shell: Path, path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        archive = Archive(tar)
        archive.add("registry.local/pause:1", ["/pause"], layer_of("pause", pause))
        archive.add("registry.local/busybox:1", ["/bin/sh"], without_python(base))
        archive.add("registry.local/python:1", ["/usr/bin/python3"], base.read_bytes())
        archive.add(RESERVATION, ["/usr/bin/python3", "-c", RESERVING], base.read_bytes())
        archive.add("registry.local/shell:1", ["/bin/bash"], base.read_bytes(), layer_from(shell))
        archive.close()


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
