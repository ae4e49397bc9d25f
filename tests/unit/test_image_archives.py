"""Layers out of archives of every kind: in one pass where it is an engine's, whole and once."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from dray.errors import NotFound, Refused, UsageError
from dray.images import archive, contents, engine

LAYERS = [b"base " * 5000, b"library " * 3000, b"program"]
IDS = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in LAYERS]
NAMES = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(3)]

Files = Mapping[str, bytes]


def hex_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def config_for(layers: Iterable[str], architecture: str = "amd64") -> bytes:
    rootfs = {"type": "layers", "diff_ids": list(layers)}
    return encoded({"architecture": architecture, "os": "linux", "rootfs": rootfs})


CONFIG = config_for(IDS)


def manifest(config: str, layers: list[str], tag: str = "train:1") -> bytes:
    return encoded([{"Config": config, "RepoTags": [tag], "Layers": layers}])


def blobs(*contents: bytes) -> dict[str, bytes]:
    return {f"blobs/sha256/{hex_of(content)}": content for content in contents}


def podman() -> Files:
    files = {f"{hex_of(layer)}.tar": layer for layer in LAYERS}
    config = f"{hex_of(CONFIG)}.json"
    return {**files, config: CONFIG, "manifest.json": manifest(config, list(files))}


def docker_25() -> Files:
    files = blobs(*LAYERS)
    config = f"blobs/sha256/{hex_of(CONFIG)}"
    return {**files, config: CONFIG, "manifest.json": manifest(config, list(files))}


def docker_of_containerd() -> Files:
    files = blobs(*(gzip.compress(layer, mtime=0) for layer in LAYERS))
    config = f"blobs/sha256/{hex_of(CONFIG)}"
    return {config: CONFIG, **files, "manifest.json": manifest(config, list(files))}


def docker_24() -> Files:
    files = {f"{name}/layer.tar": layer for name, layer in zip(NAMES, LAYERS, strict=True)}
    config = f"{hex_of(CONFIG)}.json"
    extra = {f"{NAMES[0]}/json": b"{}", f"{NAMES[0]}/VERSION": b"1.0"}
    return {**extra, **files, config: CONFIG, "manifest.json": manifest(config, list(files))}


def oci(pack: Callable[[bytes], bytes] = lambda layer: gzip.compress(layer, mtime=0)) -> Files:
    packed = [pack(layer) for layer in LAYERS]
    whole = oci_manifest(CONFIG, packed)
    entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(whole)}
    entry["annotations"] = {"org.opencontainers.image.ref.name": "train:1"}  # type: ignore[assignment]
    return {
        **blobs(CONFIG, whole, *packed),
        "index.json": encoded({"manifests": [entry]}),
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
    }


def oci_manifest(config: bytes, layers: list[bytes]) -> bytes:
    described = [{"digest": digest(layer)} for layer in layers]
    return encoded({"config": {"digest": digest(config)}, "layers": described})


def digest(content: bytes) -> str:
    return f"sha256:{hex_of(content)}"


def uncompressed_oci() -> Files:
    return oci(lambda layer: layer)


def tar_of(files: Files, links: Mapping[str, str] | None = None) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return sink.getvalue()


class Pipe(io.RawIOBase):
    """Gives a little at a time and cannot go back, as an engine's output."""

    def __init__(self, content: bytes) -> None:
        self.left = content

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self.left[: min(len(buffer), 1000)]
        self.left = self.left[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


def taken(layers: archive.Layers) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for layer, stream in layers:
        assert layer not in found
        found[layer] = stream.read()
    return found


FLAVOURS = [podman, docker_25, docker_of_containerd, docker_24, oci, uncompressed_oci]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("wanted", [[0, 1, 2], [2], [0, 2], []])
def test_wanted_layers_come_out_of_a_pipe(
    flavour: Callable[[], Files], wanted: list[int], tmp_path: Path
) -> None:
    stream = io.BufferedReader(Pipe(tar_of(flavour())))
    found = taken(archive.layers(stream, {IDS[number] for number in wanted}))
    assert found == {IDS[number]: LAYERS[number] for number in wanted}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("pack", [lambda tar: tar, gzip.compress], ids=["tar", "tar.gz"])
def test_an_archive_tells_what_is_in_it(
    flavour: Callable[[], Files], pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(pack(tar_of(flavour())))
    image = engine.find(f"docker-archive:{path}")
    assert image.id == digest(CONFIG)
    assert (image.name, image.architecture) == ("train:1", "amd64")
    assert image.layers == tuple(IDS)
    assert image.config.encode() == CONFIG
    with image.read(frozenset(IDS[1:])) as layers:
        assert taken(layers) == dict(zip(IDS[1:], LAYERS[1:], strict=True))


@pytest.mark.parametrize("flavour", [oci, uncompressed_oci])
def test_a_folder_is_read_as_an_archive_is(flavour: Callable[[], Files], tmp_path: Path) -> None:
    for name, content in flavour().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    image = engine.find(f"oci:{tmp_path}:train:1")
    assert (image.id, image.layers) == (digest(CONFIG), tuple(IDS))
    with image.read(frozenset(IDS)) as layers:
        assert taken(layers) == dict(zip(IDS, LAYERS, strict=True))


def test_a_plain_path_names_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("image.tar").write_bytes(tar_of(podman()))
    assert engine.find("image.tar").layers == tuple(IDS)


def test_a_layer_that_is_only_linked_to_is_found(tmp_path: Path) -> None:
    """docker before 25 writes a layer once, however many images of the archive have it."""
    files = dict(docker_24())
    config = files.pop("manifest.json") and f"{hex_of(CONFIG)}.json"
    listed = [f"{'e' * 64}/layer.tar", *(f"{name}/layer.tar" for name in NAMES[1:])]
    files["manifest.json"] = manifest(config, listed)
    path = tmp_path / "image.tar"
    path.write_bytes(tar_of(files, {listed[0]: f"../{NAMES[0]}/layer.tar"}))
    image = engine.find(str(path))
    with image.read(frozenset(IDS)) as layers:
        assert taken(layers) == dict(zip(IDS, LAYERS, strict=True))
    stream = io.BufferedReader(Pipe(path.read_bytes()))
    assert taken(archive.layers(stream, IDS)) == dict(zip(IDS, LAYERS, strict=True))


def test_an_image_may_have_a_layer_twice(tmp_path: Path) -> None:
    config = config_for([IDS[0], IDS[2], IDS[2]])
    files = {f"{hex_of(LAYERS[number])}.tar": LAYERS[number] for number in (0, 2)}
    names = [*files, list(files)[1]]
    described = {"c.json": config, "manifest.json": manifest("c.json", names)}
    path = tmp_path / "image.tar"
    path.write_bytes(tar_of({**files, **described}))
    image = engine.find(str(path))
    assert image.layers == (IDS[0], IDS[2], IDS[2])
    with image.read(frozenset(image.layers)) as layers:
        assert list(taken(layers)) == [IDS[0], IDS[2]]


def test_nothing_is_read_behind_the_last_layer_that_is_wanted() -> None:
    stream = io.BufferedReader(Pipe(tar_of({**podman(), "behind": b"x" * (4 << 20)})))
    assert list(taken(archive.layers(stream, [IDS[0]]))) == [IDS[0]]
    assert len(stream.read()) > 2 << 20


def test_one_of_several_images_is_picked_by_name(tmp_path: Path) -> None:
    first, second = config_for(IDS[:1]), config_for(IDS[1:2])
    records = [
        {"Config": "1.json", "RepoTags": ["localhost/one:1"], "Layers": ["1.tar"]},
        {"Config": "2.json", "RepoTags": ["two:2"], "Layers": ["2.tar"]},
    ]
    files = {"1.json": first, "2.json": second, "1.tar": LAYERS[0], "2.tar": LAYERS[1]}
    path = tmp_path / "both.tar"
    path.write_bytes(tar_of({**files, "manifest.json": encoded(records)}))
    image = engine.find(f"docker-archive:{path}:one:1")
    assert (image.name, image.layers) == ("one:1", (IDS[0],))
    with image.read(frozenset(image.layers)) as layers:
        assert taken(layers) == {IDS[0]: LAYERS[0]}
    with pytest.raises(UsageError, match=r"several images: localhost/one:1, two:2"):
        engine.find(str(path))
    with pytest.raises(NotFound, match="no image 'three'"):
        engine.find(f"docker-archive:{path}:three")


def test_one_of_several_architectures_is_picked_by_its_name(tmp_path: Path) -> None:
    files: dict[str, bytes] = {}
    entries = []
    for architecture, os in (("amd64", "linux"), ("arm64", "linux"), ("unknown", "unknown")):
        config = config_for(IDS[:1], architecture)
        whole = oci_manifest(config, [LAYERS[0]])
        files |= blobs(config, whole, LAYERS[0])
        platform = {"architecture": architecture, "os": os}
        entries.append({"digest": digest(whole), "platform": platform})
    inner = encoded({"manifests": entries})
    outer = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest(inner)}
    path = tmp_path / "both.tar"
    path.write_bytes(
        tar_of({**files, **blobs(inner), "index.json": encoded({"manifests": [outer]})})
    )
    assert engine.find(f"oci-archive:{path}:arm64").architecture == "arm64"
    with pytest.raises(UsageError, match="several images: amd64, arm64"):
        engine.find(f"oci-archive:{path}")


# -- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_archive_that_ends_too_early_is_told(flavour: Callable[[], Files]) -> None:
    whole = tar_of(flavour())
    for end in (0, 100, 600, 3000, 12_000):
        with pytest.raises(Refused, match="archive of the image"):
            taken(archive.layers(io.BytesIO(whole[: min(end, len(whole) // 3)]), IDS))


def test_a_layer_that_is_not_there_is_told() -> None:
    with pytest.raises(archive.Incomplete, match="does not have its layer sha256:eee"):
        taken(archive.layers(io.BytesIO(tar_of(podman())), ["sha256:" + "e" * 64]))


@pytest.mark.parametrize("flavour", [podman, docker_25])
def test_a_damaged_layer_is_told_before_its_end(flavour: Callable[[], Files]) -> None:
    files = dict(flavour())
    name = next(name for name in files if hex_of(LAYERS[1]) in name)
    files[name] = files[name].replace(b"library", b"Library", 1)
    stream = io.BytesIO(tar_of(files))
    with pytest.raises(archive.Damaged, match=f"layer {IDS[1]} of the image is damaged"):
        taken(archive.layers(stream, IDS))


def test_a_layer_packed_with_zstd_is_told(tmp_path: Path) -> None:
    stream = io.BytesIO(tar_of(oci(lambda layer: b"\x28\xb5\x2f\xfd" + layer)))
    with pytest.raises(Refused, match="zstd"):
        taken(archive.layers(stream, IDS))


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"x": b""}, "neither a manifest.json nor an index.json"),
        ({"manifest.json": b"[{"}, "described in a way unknown here"),
        ({"manifest.json": b"[{}]"}, "described in a way unknown here"),
        ({"manifest.json": manifest("c.json", ["1.tar"])}, "lacks c.json"),
        ({"manifest.json": manifest("c", ["1.tar"]), "c": b"{}"}, "described in a way unknown"),
    ],
)
def test_what_is_no_image_is_refused(files: Files, what: str, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(tar_of(files))
    with pytest.raises((UsageError, Refused), match=what):
        engine.find(str(path))


def test_an_archive_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no archive .*x\.tar:name on this machine"):
        engine.find(f"oci-archive:{tmp_path}/x.tar:name")
    (tmp_path / "y.tar").write_bytes(b"not a tar")
    with pytest.raises(Refused, match="cannot be read"):
        contents.look(tmp_path / "y.tar")
