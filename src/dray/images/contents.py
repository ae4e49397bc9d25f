"""Reads an image from a file or a folder: docker-archive:FILE, oci-archive:FILE, oci:DIR."""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dray.errors import NotFound, Refused, UsageError
from dray.images.archive import Layers, checked, layers, plain, reading_errors, tidy

SCHEMES = ("docker-archive", "oci-archive", "oci")

Read = Callable[[str], bytes | None]  # a file in the archive, if it has it


class Contents(NamedTuple):
    name: str  # what the archive calls the image; "" where it does not
    config: bytes
    known: Mapping[str, str]  # the layer that a file in the archive is

    @property
    def id(self) -> str:
        return f"sha256:{hashlib.sha256(self.config).hexdigest()}"

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(json.loads(self.config)["rootfs"]["diff_ids"])

    @property
    def architecture(self) -> str:
        return str(json.loads(self.config).get("architecture", ""))


def is_archive(reference: str) -> bool:
    """Return whether a reference is an archive, and not the name of an image."""
    return reference.partition(":")[0] in SCHEMES or reference.endswith((".tar", ".tar.gz", ".tgz"))


def located(reference: str) -> tuple[Path, str]:
    """Return the archive's path, and which of its images is meant: docker-archive:FILE[:NAME]."""
    scheme, _, rest = reference.partition(":")
    rest = rest if scheme in SCHEMES else reference
    path, colon, name = rest, "", ""
    while not Path(path).exists() and ":" in path:
        path, colon, last = path.rpartition(":")
        name = f"{last}{colon if name else ''}{name}"
    if not Path(path).exists():
        raise NotFound(f"there is no archive {rest} on this machine")
    return Path(path), name


def look(path: Path, name: str = "") -> Contents:
    if path.is_dir():
        return contents(lambda file: read_from(path, file), {}, path, name)
    with reading_errors(), tarfile.open(path) as archive:
        members = {tidy(member.name): member for member in archive}

        def read(file: str) -> bytes | None:
            taken = archive.extractfile(members[file]) if file in members else None
            return taken.read() if taken else None

        links = {
            file: tidy(posixpath.join(posixpath.dirname(file), member.linkname))
            for file, member in members.items()
            if member.issym()
        }
        return contents(read, links, path, name)


def read_from(folder: Path, file: str) -> bytes | None:
    return (folder / file).read_bytes() if (folder / file).is_file() else None


def contents(read: Read, links: Mapping[str, str], path: Path, name: str) -> Contents:
    by_docker, by_oci = read("manifest.json"), read("index.json")
    if by_docker is None and by_oci is None:
        raise UsageError(
            f"{path} is no image: it has neither a manifest.json nor an index.json",
            hint="docker save, podman save and skopeo copy write such archives.",
        )
    try:
        if by_docker is not None:
            found = [docker_image(one, read, links) for one in json.loads(by_docker)]
        else:
            found = [oci_image(one, read) for one in manifests(json.loads(by_oci or b""), read)]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the image in {path} is described in a way unknown here: {error!r}"
        ) from error
    return pick(found, path, name)


def docker_image(record: Mapping[str, Any], read: Read, links: Mapping[str, str]) -> Contents:
    files = [links.get(tidy(file), tidy(file)) for file in record["Layers"]]
    return made((record.get("RepoTags") or [""])[0], record["Config"], files, read)


def oci_image(entry: Mapping[str, Any], read: Read) -> Contents:
    manifest = json.loads(need(blob(entry), read))
    files = [blob(layer) for layer in manifest["layers"]]
    name = entry.get("annotations", {}).get("org.opencontainers.image.ref.name", "")
    return made(name, blob(manifest["config"]), files, read)


def manifests(index: Mapping[str, Any], read: Read) -> Iterator[Mapping[str, Any]]:
    """Yield the images' manifests. An index may name further indexes, and manifests that only
    describe an image."""
    for entry in index["manifests"]:
        if "index" in entry.get("mediaType", "") or "manifest.list" in entry.get("mediaType", ""):
            yield from manifests(json.loads(need(blob(entry), read)), read)
        elif entry.get("platform", {}).get("os") != "unknown":
            yield entry


def made(name: str, config: str, files: list[str], read: Read) -> Contents:
    text = need(config, read)
    return Contents(
        name, text, dict(zip(files, json.loads(text)["rootfs"]["diff_ids"], strict=True))
    )


def blob(entry: Mapping[str, Any]) -> str:
    return f"blobs/{entry['digest'].replace(':', '/')}"


def need(file: str, read: Read) -> bytes:
    content = read(tidy(file))
    if content is None:
        raise Refused(
            f"the archive of the image lacks {file}", hint="Was it written and copied whole?"
        )
    return content


def pick(found: list[Contents], path: Path, name: str) -> Contents:
    """Choose an image by its name, or by the architecture where an archive has one image for
    several."""
    fitting = [
        one
        for one in found
        if name in ("", one.name, one.name.rpartition("/")[2], one.architecture)
    ]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted({one.name or one.architecture for one in found}))
    if not fitting:
        raise NotFound(f"{path} has no image '{name}'", hint=f"It has {names or 'none at all'}.")
    if len({one.name for one in fitting}) == 1:
        names = ", ".join(one.architecture for one in fitting)
    raise UsageError(f"{path} has several images: {names}", hint=f"Name one: {path}:NAME")


def size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


@contextmanager
def reading(path: Path, known: Mapping[str, str], wanted: frozenset[str]) -> Iterator[Layers]:
    if path.is_dir():
        yield from_folder(path, known, wanted)
    else:
        with path.open("rb") as file:
            yield layers(file, wanted, known)


def from_folder(path: Path, known: Mapping[str, str], wanted: frozenset[str]) -> Layers:
    for name, layer in {layer: name for name, layer in known.items()}.items():
        if name in wanted:
            with (path / layer).open("rb") as file:
                yield name, checked(plain(file), name)
